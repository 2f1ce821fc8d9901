"""Numbers that leave their range in the middle of a run, and arrays too large, in words that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

from thali.errors import InvalidParameterError, OutOfMemoryError, ThaliError, words
from thali.posteriors.base import Posterior

_TOO_LARGE = ("array is too big", "Maximum allowed dimension exceeded", "Maximum allowed size exceeded")


@contextmanager
def numbers_in_range() -> Iterator[None]:
    """All else was checked before, so an error of arithmetic means that the scales do not fit."""
    try:
        yield
    except ThaliError:
        raise
    except MemoryError as error:
        raise _out_of_memory(error) from error
    except (ArithmeticError, ValueError) as error:
        if any(text in str(error) for text in _TOO_LARGE):  # NumPy's words for an array that no memory could hold
            raise _out_of_memory(error) from error
        raise InvalidParameterError(
            "The hyperparameters must suit the scale of X, so that numbers stay in range. "
            f"Got: {words(error).rstrip('.')}. Let noise_var and feature_var be learned, or scale X."
        ) from error


def _out_of_memory(error: Exception) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"There is not enough memory for this fit: {words(error).rstrip('.')}. "
        "Let fewer chains run at a time (n_jobs=1), keep fewer draws (n_chains, n_draws), use MeanField(), "
        "or take the rows in batches with StochasticMeanField()."
    )


def check_finite(posterior: Posterior) -> None:
    if not posterior.is_finite():
        raise FloatingPointError("a draw is not finite")
