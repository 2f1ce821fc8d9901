"""Numbers that leave their range in the middle of a run, in words that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

from thali.errors import InvalidParameterError, ThaliError
from thali.posterior import Posterior


@contextmanager
def numbers_in_range() -> Iterator[None]:
    """All else was checked before, so an error of arithmetic or memory means that the scales do not fit."""
    try:
        yield
    except ThaliError:
        raise
    except (ArithmeticError, ValueError, MemoryError) as error:
        raise InvalidParameterError(
            "The hyperparameters must suit the scale of X, so that numbers stay in range. "
            f"Got: {error}. Let noise_var and feature_var be learned, or scale X."
        ) from error


def check_finite(posterior: Posterior) -> None:
    if not posterior.is_finite():
        raise FloatingPointError("a draw is not finite")
