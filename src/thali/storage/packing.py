"""Lists of like things (states, draws, remarks) as JSON and arrays, and back: what a checkpoint is made of.

A thing consists of specs, NamedTuples, dictionaries and lists, down to arrays and numbers. Things are packed column by
column, so that a thousand draws take no more arrays than one. Only classes that have a name in files
(`thali.core.registry`) come out of one.
"""

from collections.abc import Sequence
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from thali.core.codebook import Codebook
from thali.core.registry import kind_of, name_of
from thali.core.spec import Spec
from thali.files.archives import number_dtype
from thali.posteriors.ragged import Ragged
from thali.storage.old_names import OLD_NAMES
from thali.storage.spec_json import from_json, unknown

Array = np.ndarray

_FEW = 1000  # things that may have no number of their own


def pack(things: Sequence[Any], name: str, arrays: dict[str, Array]) -> Any:
    """The things as JSON; their arrays go into `arrays`, under names that begin with `name`."""
    first = things[0]
    kind, parts = _taken_apart(first)
    if parts is not None:
        columns: dict[str, list[Any]] = {key: [] for key in parts}
        for thing in things:
            other, inner = _taken_apart(thing)
            if inner is None or other != kind or inner.keys() != columns.keys():
                raise TypeError(f"{name}: {other} beside {kind}")
            for key, value in inner.items():
                columns[key].append(value)
        packed = [[key, pack(column, f"{name}.{key}", arrays)] for key, column in columns.items()]
        return {"kind": kind, "parts": packed}  # a list, since files sort the keys of a dictionary
    if isinstance(first, np.ndarray) or (isinstance(first, np.generic) and len(things) == 1):
        return _pack_arrays(things, name, arrays)
    if len(things) == 1 or (not isinstance(first, float | np.generic) and all(thing == first for thing in things)):
        if first is None or isinstance(first, bool | int | float | str):
            return {"value": first}
    elif all(isinstance(thing, bool | int | float | np.generic) for thing in things):
        arrays[name] = np.array(things)
        return {"numbers": name}
    raise TypeError(f"{name} cannot be written to a file: {first!r}")


def unpack(form: Any, arrays: dict[str, Array], n: int) -> list[Any]:
    """The n things that `pack` was given. A ValueError if there are not as many, or one array is asked for twice."""
    longest = max((len(array) for array in arrays.values() if array.ndim), default=0)
    if not 0 <= n <= max(longest, _FEW):  # many things that differ in nothing are none of ours
        raise ValueError(f"it speaks of {n} things and has {longest} at most")
    return _unpacked(form, arrays, n, set())


def _unpacked(form: Any, arrays: dict[str, Array], n: int, taken: set[str]) -> list[Any]:
    if "parts" in form:
        columns = {key: _unpacked(part, arrays, n, taken) for key, part in form["parts"]}
        return [_put_together(form["kind"], {key: column[i] for key, column in columns.items()}) for i in range(n)]
    if "value" in form:
        if not (form["value"] is None or isinstance(form["value"], bool | int | float | str)):
            raise ValueError("a value is none")
        return [form["value"]] * n
    name = form["numbers"] if "numbers" in form else form["arrays"]
    if name in taken:
        raise ValueError(f"{str(name)[:80]} stands for two things")
    taken.add(name)
    if "numbers" in form:
        if arrays[name].ndim != 1:
            raise ValueError(f"{name} is no list of numbers")
        numbers = arrays[name].tolist()
    else:
        ragged = Ragged(arrays[f"{name}.values"], arrays[f"{name}.shapes"])
        if not ragged.is_sound() or ragged.values.dtype.kind not in "biuf" or form["order"] not in ("C", "F"):
            raise ValueError(f"{name} does not have the size that it says")
        dtype = number_dtype(form["dtype"])
        numbers = [ragged[i].astype(dtype, order=form["order"])[()] for i in range(len(ragged))]
        numbers = numbers * n if form["same"] is True and len(numbers) == 1 else numbers
    if len(numbers) != n:
        raise ValueError(f"{len(numbers)} values where there should be {n}")
    return numbers


def _pack_arrays(things: Sequence[Any], name: str, arrays: dict[str, Array]) -> Any:
    """Their bits and their memory layout, which decides in what order sums are taken."""
    first = things[0]
    same = all(thing is first for thing in things)
    values = [np.asarray(thing) for thing in ([first] if same else things)]
    if any(value.dtype != first.dtype or value.ndim != first.ndim for value in values):
        raise TypeError(f"{name}: arrays of different kinds")
    if first.dtype == np.uint8 and any(value.max(initial=0) > 1 for value in values):
        values = [value.astype(np.int16) for value in values]  # bytes are stored as bits
    ragged = Ragged.pack(values)
    arrays |= {f"{name}.values": ragged.values, f"{name}.shapes": ragged.shapes}
    order = "F" if first.flags.f_contiguous and not first.flags.c_contiguous else "C"
    return {"arrays": name, "dtype": first.dtype.str, "order": order, "same": same}


def _taken_apart(thing: Any) -> tuple[str, dict[str, Any] | None]:
    """(kind, parts); no parts if it is an array or a number."""
    if isinstance(thing, Spec):
        return f"spec {name_of(type(thing))}", thing.get_params(deep=False)
    if isinstance(thing, tuple) and hasattr(thing, "_asdict"):
        return f"tuple {name_of(type(thing))}", thing._asdict()
    if isinstance(thing, Codebook):
        return f"codebook {name_of(type(thing))}", dict(thing.arrays())
    if isinstance(thing, dict):
        return "dict", thing
    if isinstance(thing, list | tuple):
        return "list", {str(i): value for i, value in enumerate(thing)}
    return type(thing).__name__, None


def _put_together(kind: str, parts: dict[str, Any]) -> Any:
    if not isinstance(kind, str):
        raise ValueError("a kind has no name")
    sort, _, name = kind.partition(" ")
    if sort == "spec":
        return from_json({"spec": name} | parts)
    if sort == "tuple":
        found = kind_of(OLD_NAMES.get(name, name))
        if found is None or not issubclass(found, tuple):
            raise unknown(name)
        wrong = [key for key, hint in _hints(found).items() if not _is(parts[key], hint)]
        if wrong:
            raise ValueError(f"{name}.{wrong[0]} is a {type(parts[wrong[0]]).__name__}, which it cannot be")
        return found(**{key: _as(value, _hints(found).get(key)) for key, value in parts.items()})
    if sort == "codebook":
        book = kind_of(name)
        if book is None or not issubclass(book, Codebook):
            raise unknown(name)
        if not all(isinstance(values, np.ndarray) for values in parts.values()):
            raise ValueError(f"{name} has something that is no array")
        return book(**parts)
    return parts if sort == "dict" else list(parts.values())


@cache
def _hints(kind: type) -> dict[str, Any]:
    """What the fields of a NamedTuple may hold."""
    return get_type_hints(kind)


def _as(value: Any, hint: Any) -> Any:
    """The value with tuples where a field has them; they are lists in a file."""
    if get_origin(hint) is tuple:
        return tuple(value)
    if get_origin(hint) is dict and get_origin(get_args(hint)[1]) is tuple:
        return {key: tuple(inner) for key, inner in value.items()}
    return value


def _is(value: Any, hint: Any) -> bool:
    """Whether a value out of a file is what a field asks for; tuples come back as lists."""
    origin = get_origin(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_is(value, one) for one in get_args(hint))
    if hint is int or hint is float:
        kinds: Any = int | np.integer if hint is int else int | float | np.integer | np.floating
        return isinstance(value, kinds) and not isinstance(value, bool)
    if origin is dict:
        return isinstance(value, dict) and all(_is(one, get_args(hint)[1]) for one in value.values())
    kind = origin or hint
    return isinstance(value, list | tuple if kind is tuple else kind)
