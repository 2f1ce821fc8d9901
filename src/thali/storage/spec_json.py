"""Specs as JSON and back. Only classes that have a name in files (`thali.core.registry`) can come out of one."""

from typing import Any

import numpy as np

from thali import inference, observations, priors  # noqa: F401 (their types have names in files)
from thali.core.registry import kind_of, name_of
from thali.core.spec import Spec
from thali.errors import InvalidFileError
from thali.files.archives import number_dtype


def to_json(value: Any) -> Any:
    """A spec, array, number, string, None or bool as plain JSON data; floats keep every bit."""
    if isinstance(value, Spec):
        return {"spec": name_of(type(value))} | {k: to_json(v) for k, v in value.get_params(deep=False).items()}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"cannot be written to a file: {value!r}")


def from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [from_json(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return np.array(value["array"], dtype=number_dtype(value["dtype"]))
    name = value.get("spec")
    kind = kind_of(name)
    if kind is None or not issubclass(kind, Spec):
        raise unknown(name)
    return kind(**{k: from_json(v) for k, v in value.items() if k != "spec"})


def unknown(name: Any) -> InvalidFileError:
    """The error for a name that stands for nothing here."""
    remedy = ": import the module that registers it" if "." in str(name) else ""
    return InvalidFileError(f"The file names a component {str(name)[:80]!r} that this version does not know{remedy}.")
