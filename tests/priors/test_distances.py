"""Forms of distances and decays: they agree with each other, make specs, and refuse what is wrong."""

import copy
import json
import math
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from decay_cases import DECAY_NAMES, DECAYS, LINE
from sklearn.base import clone

from thali import InvalidParameterError
from thali.priors.proximity import distances as module
from thali.priors.proximity.decays import ExponentialDecay, LogisticDecay, WindowDecay
from thali.priors.proximity.distance_dependent import DistanceDependentIBP
from thali.priors.proximity.distances import Coordinates, SparseDistances, Times, proximities
from thali.storage import spec_json

INF = math.inf


# --- forms of distances ---------------------------------------------------------------------------


@pytest.mark.parametrize("decay", DECAYS, ids=DECAY_NAMES)
@pytest.mark.parametrize("sequential", [False, True])
def test_all_forms_of_distances_agree(decay, sequential):
    times = np.arange(12) * 0.1  # in steps that are not exact: the window's edge is met and just missed
    decay = WindowDecay(0.3) if isinstance(decay, WindowDecay) else decay
    square = np.abs(np.subtract.outer(times, times))
    forms = [
        DistanceDependentIBP(1.0, square, decay, sequential=sequential),
        DistanceDependentIBP.from_times(times, decay, mass=1.0, sequential=sequential),
        DistanceDependentIBP.from_coordinates(
            times[:, None], decay, metric="cityblock", mass=1.0, sequential=sequential
        ),
        DistanceDependentIBP(1.0, sp.csr_array(square + np.eye(12)) - sp.eye_array(12), decay, sequential=sequential),
    ]
    for form in forms[1:]:
        np.testing.assert_array_equal(form.link_probs().toarray(), forms[0].link_probs().toarray())
    rows = np.asarray(forms[0].link_probs().sum(axis=1)).ravel()
    np.testing.assert_allclose(rows, 1.0, rtol=1e-12)


def test_times_in_any_order():
    times = np.array([3.0, -1.0, 0.5, 3.0, 2.0])
    square = np.abs(np.subtract.outer(times, times))
    for decay in (WindowDecay(1.0), ExponentialDecay(1.0), "constant"):
        by_times = DistanceDependentIBP.from_times(times, decay, mass=1.0).link_probs().toarray()
        np.testing.assert_array_equal(by_times, DistanceDependentIBP(1.0, square, decay).link_probs().toarray())


def test_the_windows_edge_counts():
    prior = DistanceDependentIBP(1.0, LINE, WindowDecay(1.0))
    assert (prior.link_probs().toarray() > 0).sum() == 10


def test_sparse_distances_are_infinite_where_absent():
    matrix = sp.coo_array(([0.0, 2.0, INF], ([0, 1, 2], [1, 2, 0])), shape=(3, 3))  # a stored zero is a distance
    prior = DistanceDependentIBP(1.0, matrix, ExponentialDecay(1.0))
    f = np.array([[1, 1, 0], [0, 1, math.exp(-2)], [0, 0, 1]])
    np.testing.assert_allclose(prior.link_probs().toarray(), f / f.sum(axis=1, keepdims=True))
    assert isinstance(prior.distances, SparseDistances)


def test_many_blocks_of_distances(monkeypatch):
    forms = [Times(np.arange(40.0)), Coordinates(np.arange(40.0)[:, None]), LINE]
    whole = [proximities(form, WindowDecay(2.0), False).toarray() for form in forms]
    monkeypatch.setattr(module, "_BLOCK", 7)
    for form, wanted in zip(forms, whole, strict=True):
        np.testing.assert_array_equal(proximities(form, WindowDecay(2.0), False).toarray(), wanted)
    monkeypatch.setattr(module, "MAX_LINKS", 50)
    with pytest.raises(InvalidParameterError, match="WindowDecay"):
        proximities(forms[0], WindowDecay(2.0), False)


# --- the spec -------------------------------------------------------------------------------------


SPECS = {
    "array": DistanceDependentIBP(1.1, np.where(LINE == 3, INF, LINE), ExponentialDecay(0.5)),
    "window": DistanceDependentIBP(1.1, LINE, WindowDecay(1.0)),
    "times": DistanceDependentIBP.from_times(range(4), "window", sequential=True),
    "coordinates": DistanceDependentIBP.from_coordinates([[0.0, 1.0], [2.0, 3.0]], "logistic", metric="cityblock"),
    "sparse": DistanceDependentIBP(1.0, sp.eye_array(3) * 0.0, "constant"),
}


@pytest.mark.parametrize("prior", SPECS.values(), ids=SPECS)
def test_it_is_a_spec(prior):
    for other in (clone(prior), copy.deepcopy(prior), pickle.loads(pickle.dumps(prior))):
        assert other == prior
        np.testing.assert_array_equal(other.link_probs().toarray(), prior.link_probs().toarray())
    assert prior.replace(mass=9.0) != prior
    assert prior.replace(decay="constant", sequential=True) != prior
    assert "DistanceDependentIBP" in repr(prior)


@pytest.mark.parametrize("prior", SPECS.values(), ids=SPECS)
def test_a_file_keeps_it(prior):
    assert spec_json.from_json(json.loads(json.dumps(spec_json.to_json(prior)))) == prior


def test_a_function_cannot_be_kept_in_a_file():
    with pytest.raises(TypeError, match="cannot be written"):
        spec_json.to_json(DistanceDependentIBP(1.0, LINE, lambda d: np.exp(-d)))


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DistanceDependentIBP(1.0).link_probs(), "needs distances.*times="),
        (lambda: DistanceDependentIBP(1.0, np.zeros((3, 2))), "square"),
        (lambda: DistanceDependentIBP(1.0, np.zeros(3)), "square.*from_times"),
        (lambda: DistanceDependentIBP(1.0, np.zeros((0, 0))), "square"),
        (lambda: DistanceDependentIBP(1.0, [[0, 1], [2]]), "array of numbers"),
        (lambda: DistanceDependentIBP(1.0, "far"), "array of numbers"),
        (lambda: DistanceDependentIBP(1.0, LINE - 2 * (LINE == 1)), r"zero or more.*Got -1"),
        (lambda: DistanceDependentIBP(1.0, np.where(LINE == 2, np.nan, LINE)), r"zero or more.*Got nan"),
        (lambda: DistanceDependentIBP(1.0, LINE + 1), "itself must be 0"),
        (lambda: DistanceDependentIBP(1.0, sp.csr_array(LINE[:3])), "square"),
        (lambda: DistanceDependentIBP(1.0, sp.csr_array(-LINE)), "zero or more"),
        (lambda: DistanceDependentIBP(1.0, sp.eye_array(3)), "itself must be 0"),
        (lambda: DistanceDependentIBP(1.0, sp.coo_array(([1.0, 1.0], ([0, 0], [1, 1])), shape=(2, 2))), "two entries"),
        (lambda: DistanceDependentIBP(1.0, LINE, lambda d: 1.0 + d), "must not increase"),
        (lambda: DistanceDependentIBP(1.0, LINE, lambda d: np.where(d > 2, np.nan, 1.0)), "finite and not negative"),
        (lambda: DistanceDependentIBP(1.0, LINE, lambda d: np.where(d > 2, np.inf, 1.0)), "finite and not negative"),
        (lambda: DistanceDependentIBP(1.0, LINE, lambda d: 1.0 - d), "finite and not negative.*-1"),
        (lambda: DistanceDependentIBP(1.0, LINE, lambda d: 0.0 * d), "positive at distance 0"),
        (lambda: DistanceDependentIBP(1.0, LINE, lambda d: 1.0), "same shape"),
        (lambda: DistanceDependentIBP(1.0, LINE, LogisticDecay(1.0, -800.0)), "positive at distance 0"),
        (lambda: DistanceDependentIBP(1.0, LINE, "gaussian"), "'window'"),
        (lambda: DistanceDependentIBP(1.0, LINE, 2.0), "'window'"),
        (lambda: DistanceDependentIBP(0.0, LINE), "mass must be a positive"),
        (lambda: DistanceDependentIBP(1.0, LINE, sequential=1), "sequential must be"),
        (lambda: WindowDecay(0.0), "width must be a positive"),
        (lambda: ExponentialDecay(-1.0), "rate must be a positive"),
        (lambda: DistanceDependentIBP.from_times([0, 2, 1], sequential=True), "Sort the rows"),
        (lambda: DistanceDependentIBP.from_times([0, math.inf]), "finite"),
        (lambda: DistanceDependentIBP.from_times([]), "one per row"),
        (lambda: DistanceDependentIBP.from_times([[0.0, 1.0]]), "one per row"),
        (lambda: DistanceDependentIBP.from_coordinates([0.0, 1.0]), "matrix"),
        (lambda: DistanceDependentIBP.from_coordinates([[0.0, np.nan]]), "finite"),
        (lambda: DistanceDependentIBP.from_coordinates(np.eye(2), metric="crow"), "metric.*'crow'"),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused(make, words):
    with pytest.raises(InvalidParameterError, match=words):
        make()


def test_a_decay_that_rises_between_blocks_is_seen(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 1)
    upward = np.array([[0.0, 1.0], [3.0, 0.0]])  # each row alone shows no rise beyond its own
    with pytest.raises(InvalidParameterError, match="must not increase"):
        DistanceDependentIBP(1.0, upward, lambda d: np.where(d == 1.0, 0.1, 1.0))
