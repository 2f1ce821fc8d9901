"""Specs as JSON and back. Only the classes that thali exports can come out of a file."""

import dataclasses
from typing import Any

import numpy as np

from thali import distributions, inference, observations, priors
from thali.archives import number_dtype
from thali.errors import InvalidFileError
from thali.model import Model
from thali.priors import decays, distances
from thali.spec import Spec

_KINDS = {
    kind.__name__: kind
    for module in (distributions, priors, decays, distances, observations, inference)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Spec) and dataclasses.is_dataclass(kind)
} | {"Model": Model}


def to_json(value: Any) -> Any:
    """A spec, array, number, string, None or bool as plain JSON data; floats keep every bit."""
    if isinstance(value, Spec):
        return {"spec": type(value).__name__} | {k: to_json(v) for k, v in value.get_params(deep=False).items()}
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
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InvalidFileError(f"The file names a component {str(name)[:80]!r} that this version does not know.")
    return kind(**{k: from_json(v) for k, v in value.items() if k != "spec"})
