"""Specs as JSON and back. Only classes that have a name in files (`thali.core.registry`) can come out of one."""

from typing import Any

import numpy as np

from thali import inference, observations, priors  # noqa: F401 (their types have names in files)
from thali.core.registry import kind_of, name_of
from thali.core.spec import Spec
from thali.errors import InvalidFileError
from thali.files.archives import number_dtype

_LARGE = 10_000  # numbers: more are kept as they are, not as text


def to_json(value: Any, arrays: dict[str, np.ndarray] | None = None) -> Any:
    """A spec, array, number, string, None or bool as plain JSON data; floats keep every bit. Large arrays are put into
    `arrays`, where there is one, and named."""
    if isinstance(value, Spec):
        return {"spec": name_of(type(value))} | {k: to_json(v, arrays) for k, v in value.get_params(deep=False).items()}
    if isinstance(value, np.ndarray) and arrays is not None and value.size > _LARGE:
        return {"member": _member(value, arrays), "dtype": value.dtype.str}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [to_json(v, arrays) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"cannot be written to a file: {value!r}")


def _member(value: np.ndarray, arrays: dict[str, np.ndarray]) -> str:
    """The name of an array among those of a file; one that is there twice has one name."""
    for name, array in arrays.items():
        if array is value:
            return name
    name = f"spec/{len(arrays)}.values"
    arrays[name] = value
    return name


def from_json(value: Any, arrays: dict[str, np.ndarray] | None = None) -> Any:
    if isinstance(value, list):
        return [from_json(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return np.array(value["array"], dtype=number_dtype(value["dtype"]))
    if "member" in value:
        array = ({} if arrays is None else arrays).get(value["member"])
        if array is None or array.dtype != number_dtype(value["dtype"]):
            raise InvalidFileError(f"The file has no array {str(value['member'])[:80]!r} of the kind that it names.")
        return array
    name = value.get("spec")
    kind = kind_of(name)
    if kind is None or not issubclass(kind, Spec):
        raise unknown(name)
    return kind(**{k: from_json(v, arrays) for k, v in value.items() if k != "spec"})


def unknown(name: Any) -> InvalidFileError:
    """The error for a name that stands for nothing here."""
    remedy = ": import the module that registers it" if "." in str(name) else ""
    return InvalidFileError(f"The file names a component {str(name)[:80]!r} that this version does not know{remedy}.")
