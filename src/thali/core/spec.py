"""Specs: the frozen, validated descriptions that a user writes (priors, observation models, inferences, distributions).

A spec holds settings, never state. A hyperparameter is a number (fixed) or a distribution (learned); a spec in which
every hyperparameter is a number is called *concrete*, and the current state of a chain is such a spec.
"""

import dataclasses
import math
import numbers
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

import numpy as np

from thali.errors import InvalidParameterError


@dataclasses.dataclass(frozen=True)
class Domain:
    """A set of allowed values: a test, and the words for it in an error message."""

    words: str
    contains: Callable[[Any], bool]
    low: float = -math.inf  # for distributions: their support must lie in (low, high)
    high: float = math.inf
    accepts: Callable[[Any], bool] = lambda distribution: not getattr(distribution, "per_dim", False)


def _is_number(value: Any) -> bool:
    """A plain finite number; a whole number that no float can hold is none."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return isinstance(value, float | np.integer | np.floating) and math.isfinite(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


positive = Domain("a positive number", lambda v: _is_number(v) and v > 0, low=0.0)
moderate = Domain("a positive number up to 1e6", lambda v: positive.contains(v) and v <= 1e6, low=0.0)
real = Domain("a number", _is_number)
not_negative = Domain("a number, zero or more", lambda v: _is_number(v) and v >= 0)
unit_interval = Domain("a number in [0, 1)", lambda v: _is_number(v) and 0 <= v < 1, low=0.0, high=1.0)

share = Domain("a number from 0 to 1", lambda v: _is_number(v) and 0 <= v <= 1)


def at_least(lowest: int) -> Domain:
    return Domain(f"an integer, {lowest} or more", lambda v: _is_integer(v) and v >= lowest)


def between(lowest: int, highest: int) -> Domain:
    return Domain(f"an integer from {lowest} to {highest}", lambda v: _is_integer(v) and lowest <= v <= highest)


def one_of(*values: Any) -> Domain:
    words = ", ".join(repr(value) for value in values)
    return Domain(f"one of {words}", lambda v: any(type(v) is type(w) and v == w for w in values))


def setting(default: Any, domain: Domain) -> Any:
    """A field with a fixed value from `domain`."""
    return dataclasses.field(default=default, metadata={"domain": domain})


def hyper(default: Any, domain: Domain) -> Any:
    """A hyperparameter: a value from `domain` (fixed), or a distribution on it (learned)."""
    return dataclasses.field(default=default, metadata={"domain": domain, "learnable": True})


@dataclasses.dataclass(frozen=True, eq=False)
class Spec:
    """Base of all specs. Subclasses are frozen dataclasses whose fields are made by `setting` and `hyper`."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            domain = field.metadata.get("domain")
            if domain is not None:
                self._check(field.name, getattr(self, field.name), domain, "learnable" in field.metadata)

    def _check(self, name: str, value: Any, domain: Domain, learnable: bool) -> None:
        if domain.contains(value):
            return
        if learnable and is_distribution(value):
            low, high = value.support
            if domain.accepts(value) and low >= domain.low and high <= domain.high:
                return
        wanted = domain.words
        if learnable:
            wanted += " (fixed) or a distribution on such numbers (learned)"
        raise InvalidParameterError(f"{type(self).__name__}.{name} must be {wanted}. Got {value!r}.")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Fields by name, and with `deep` those of nested specs as `outer__inner` (scikit-learn's convention)."""
        params = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if deep:
            for name, value in list(params.items()):
                if isinstance(value, Spec):
                    params.update({f"{name}__{inner}": v for inner, v in value.get_params().items()})
        return params

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; nested ones by `outer__inner`. Unknown names are refused."""
        known = {f.name for f in dataclasses.fields(self)}
        flat: dict[str, Any] = {}
        nested: dict[str, dict[str, Any]] = {}
        for key, value in changes.items():
            name, separator, inner = key.partition("__")
            if name not in known:
                raise InvalidParameterError(
                    f"{type(self).__name__} has no parameter {name!r}. It has {', '.join(sorted(known))}."
                )
            if separator:
                nested.setdefault(name, {})[inner] = value
            else:
                flat[name] = value
        for name, inner_changes in nested.items():
            part = flat.get(name, getattr(self, name))
            if not isinstance(part, Spec):
                raise InvalidParameterError(
                    f"{type(self).__name__}.{name} is {part!r}, which has no parameters of its own."
                )
            flat[name] = part.replace(**inner_changes)
        return dataclasses.replace(self, **flat)

    def updated(self, **values: Any) -> Self:
        """As `replace`, for values that were drawn and need no check: a chain does this several times a step."""
        copy = object.__new__(type(self))
        for f in dataclasses.fields(self):
            object.__setattr__(copy, f.name, values.get(f.name, getattr(self, f.name)))
        return copy

    @cached_property
    def learned(self) -> dict[str, Any]:
        """The hyperparameters that are distributions, by name."""
        return {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if is_distribution(getattr(self, f.name))
        }

    def require_concrete(self, action: str) -> None:
        if self.learned:
            names = ", ".join(self.learned)
            raise InvalidParameterError(
                f"{type(self).__name__}.{action} needs numbers, but {names} is given by a distribution. "
                f"Use .replace({next(iter(self.learned))}=<number>), or .draw(rng) for a random value."
            )

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        mine, theirs = self.get_params(deep=False), other.get_params(deep=False)
        return all(_same(mine[name], theirs[name]) for name in mine)

    def __hash__(self) -> int:
        return hash(type(self))  # fields may be arrays; equal specs have equal hashes, which is all that is needed


class ScalarHypers(Spec):
    """A spec whose learned hyperparameters are independent numbers."""

    def draw(self, rng: np.random.Generator) -> Self:
        """A number in place of each distribution."""
        return self.replace(**{name: prior.sample(rng) for name, prior in self.learned.items()})

    def log_hyper(self, current: Self) -> float:
        """Log density of the learned hyperparameters of `current`."""
        return float(sum(prior.log_prob(getattr(current, name)) for name, prior in self.learned.items()))


def _same(a: Any, b: Any) -> bool:
    if np.ndim(a) or np.ndim(b):
        return np.array_equal(np.asarray(a), np.asarray(b))
    return bool(a == b)


def is_distribution(value: Any) -> bool:
    """Whether a hyperparameter's value says "learn me"."""
    return isinstance(value, Spec) and hasattr(value, "sample") and hasattr(value, "log_prob")
