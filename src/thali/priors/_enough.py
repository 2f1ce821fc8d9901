"""How many sticks or rounds are enough, from the simplest bound of what is left out."""

import math


def enough(mass: float, base: float, n_rows: int, tolerance: float) -> int:
    """The smallest K with 1 - exp(-mass n_rows (base / (1 + base))^K) <= tolerance.

    The left side bounds P(some row has a feature beyond K): sticks with base = mass, rounds with the concentration.
    """
    log_excess = math.log(n_rows) + math.log(mass) - math.log(-math.log1p(-tolerance))
    # eq: own.enough
    return max(math.ceil(log_excess / math.log1p(1 / base)), 1)
