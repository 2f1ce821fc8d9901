"""How many sticks or rounds are enough, from the simplest bound of what is left out."""

import math
from typing import Any

from thali.errors import InvalidParameterError


def enough(mass: float, base: float, n_rows: int, tolerance: float) -> int:
    """The smallest K with 1 - exp(-mass n_rows (base / (1 + base))^K) <= tolerance.

    The left side bounds P(some row has a feature beyond K): sticks with base = mass, rounds with the concentration.
    """
    log_excess = math.log(n_rows) + math.log(mass) - math.log(-math.log1p(-tolerance))
    # eq: own.enough
    return max(math.ceil(log_excess / math.log1p(1 / base)), 1)


def check_growth(prior: Any, n_now: int, n_features: int, truncation: int | None, most: int) -> None:
    """An error unless the variational weights of n_now features may become those of n_features."""
    name = type(prior).__name__
    if truncation is not None and n_features > truncation:
        raise InvalidParameterError(
            f"{name}(truncation={truncation}) allows no more features. Got {n_features}; use truncation=None, or more."
        )
    if not n_now <= n_features <= most:
        raise InvalidParameterError(f"{name} can grow from {n_now} to at most {most} features. Got {n_features}.")
