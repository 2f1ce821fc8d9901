"""How a broken contract is told: an AssertionError whose first sentence is the contract."""

import copy
import json
import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from thali.core.codebook import Codebook
from thali.storage.packing import pack, unpack

Array = np.ndarray


@contextmanager
def contract(sentence: str) -> Iterator[None]:
    """What goes wrong inside breaks this contract."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{sentence} {error}".strip()) from error
    except Exception as error:
        raise AssertionError(f"{sentence} Got {type(error).__name__}: {error}") from error


@contextmanager
def unchanged(**things: Any) -> Iterator[None]:
    """These things must be the same afterwards, down to the bits of their arrays."""
    before = copy.deepcopy(things)
    yield
    changed = [name for name in things if not same(before[name], things[name])]
    assert not changed, f"It changed {' and '.join(changed)}, which it was given."


def same(a: Any, b: Any) -> bool:
    """Whether two things are equal in all their parts; NaN equals NaN."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, Codebook) and isinstance(b, Codebook):
        return type(a) is type(b) and same(a.arrays(), b.arrays())
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, numbers.Number) and isinstance(b, numbers.Number):
        return a == b or (a != a and b != b)
    return type(a) is type(b) and bool(a == b)


def stored_and_back(thing: Any) -> Any:
    """What a file would give back for it. Every class in it needs a name in files (`thali.register`)."""
    arrays: dict[str, Array] = {}
    form = json.loads(json.dumps(pack([thing], "thing", arrays)))
    return unpack(form, arrays, 1)[0]


def check_stored(what: str, thing: Any) -> Any:
    """The thing as a file gives it back, the same in all its parts."""
    with contract(f"{what} must come back from a file as it was."):
        back = stored_and_back(thing)
        assert same(thing, back), f"Got {back!r}."
        return back


def spoiled(thing: Any, among: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """(in words, a NamedTuple with one of these fields made nonsense): too short, or not a number."""
    for name in among:
        value = getattr(thing, name)
        if isinstance(value, np.ndarray) and value.size:
            yield f"{name} too short", thing._replace(**{name: value[:-1]})
            if value.dtype.kind == "f":
                yield f"{name} not a number", thing._replace(**{name: np.full_like(value, np.nan)})
        elif isinstance(value, float):
            yield f"{name} not a number", thing._replace(**{name: float("nan")})


def near(got: Any, wanted: Any, share: float = 1e-8) -> bool:
    """Whether two numbers, or arrays of them, agree but for rounding."""
    return bool(np.all(np.abs(np.asarray(got) - wanted) <= share * (1.0 + np.abs(wanted))))
