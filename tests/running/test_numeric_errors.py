"""Errors in the middle of a fit, in words that are true."""

import numpy as np
import pytest

from thali import CollapsedGibbs, LatentFeatures
from thali.errors import InvalidParameterError, OutOfMemoryError, ThaliError
from thali.running.numeric_errors import numbers_in_range


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda: np.empty((2**30, 2**25)), "Unable to allocate 256. PiB"),
        (lambda: np.empty((2**40, 2**40)), "too big|allowed"),
        (lambda: np.empty(2**70), "allowed"),
        (lambda: [0] * 2**62, "MemoryError"),
    ],
)
def test_too_little_memory_is_called_so(work, words):
    with pytest.raises(MemoryError, match=rf"not enough memory .*({words}).*n_jobs=1") as caught, numbers_in_range():
        work()
    assert isinstance(caught.value, OutOfMemoryError)
    assert isinstance(caught.value, ThaliError)
    assert not isinstance(caught.value, ValueError)


def test_a_fit_without_memory(rng, monkeypatch):
    monkeypatch.setattr(CollapsedGibbs, "init", lambda *_: np.empty(2**57))  # before anything is compiled
    with pytest.raises(OutOfMemoryError, match=r"Unable to allocate 1\.00 EiB"):
        LatentFeatures(n_chains=2, random_state=0).fit(rng.standard_normal((6, 2)))


@pytest.mark.parametrize(
    "error", [ValueError("bad scale"), ZeroDivisionError(), np.linalg.LinAlgError("Singular matrix")]
)
def test_numbers_out_of_range(error):
    with pytest.raises(InvalidParameterError, match=r"must suit the scale of X.* Got: \w+"), numbers_in_range():
        raise error


def test_our_own_words_stay():
    with pytest.raises(OutOfMemoryError, match=r"^as it is$"), numbers_in_range():
        raise OutOfMemoryError("as it is")
