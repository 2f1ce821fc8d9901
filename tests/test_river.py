"""Rows one by one, as river hands them over."""

import warnings

import numpy as np
import pandas as pd
import pytest

from thali import (
    IBP,
    CollapsedGibbs,
    IncompatibleModelError,
    InvalidDataError,
    LatentFeatures,
    LinearGaussian,
    ParticleFilter,
    RecursiveIBP,
    StochasticMeanField,
)
from thali.river import OnlineLatentFeatures

QUICK = StochasticMeanField(n_start=20, n_restarts=3, moves=False, truncation=4)
FILTER = ParticleFilter(n_particles=5, n_sweeps=0)


def model(inference=QUICK) -> LatentFeatures:
    observation, prior = LinearGaussian(noise_var=1.0, feature_var=4.0), IBP(mass=1.0)
    return LatentFeatures(observation, prior, inference, n_chains=1, random_state=0, verbose=False)


@pytest.fixture
def rows(rng) -> list[dict]:
    """70 rows of two features; some lack a name, and one has none."""
    Z = rng.integers(0, 2, (70, 2))
    X = Z @ np.array([[3.0, 3, 0, 0], [0, 0, 3, 3]]) + rng.standard_normal((70, 4))
    found = [dict(zip("dcba", row, strict=True)) for row in X.tolist()]
    for n in (3, 30, 31):
        del found[n]["ab"[n % 2]]
    return [*found[:40], {}, {"a": None}, *found[40:]]


def learnt(rows, sizes=(), **how) -> OnlineLatentFeatures:
    """After these rows, in pieces of these sizes, or one by one."""
    codes = OnlineLatentFeatures(**{"model": model(), "batch": 20} | how)
    at = 0
    for size in sizes:
        codes.learn_many(pd.DataFrame(rows[at : at + size]))
        at += size
    for row in rows[at:]:
        codes.learn_one(row)
    return codes


@pytest.mark.parametrize("inference", [QUICK, FILTER])
def test_one_by_one_and_many_at_once_are_the_same(rows, inference):
    one, many = (learnt(rows, sizes, model=model(inference)) for sizes in ((), (3, 50, 19)))
    np.testing.assert_array_equal(one.fitted.components_, many.fitted.components_)
    assert one.fitted.n_components_ > 0
    assert one.fitted.n_samples_seen_ == many.fitted.n_samples_seen_ == (70 if inference is FILTER else 60)
    frame = pd.DataFrame(rows[:10], index=range(5, 15))
    codes = many.transform_many(frame)
    assert list(codes.index) == list(range(5, 15))
    for (_, mine), row in zip(codes.iterrows(), rows, strict=False):
        assert one.transform_one(row) == pytest.approx(mine.to_dict(), abs=1e-12)
    assert list(one.fitted.feature_names_in_) == list("abcd")


def test_the_given_model_stays_as_it_is(rows):
    given = model()
    codes = learnt(rows, model=given)
    assert not hasattr(given, "components_")
    assert codes.fitted.n_components_ > 0


def test_no_codes_before_the_first_batch(rows):
    codes = learnt(rows[:19])
    assert codes.fitted is None
    assert codes.transform_one(rows[0]) == {}
    assert codes.transform_many(pd.DataFrame(rows)).shape == (len(rows), 0)


def test_names_that_come_later_are_left_out_and_said(rows):
    later = [row | {"new": 1.0} for row in rows]
    with pytest.warns(UserWarning, match="'new' is not among the dims") as told:
        codes = learnt(rows[:25] + later[25:])
    assert len(told) == 1
    np.testing.assert_array_equal(codes.fitted.components_, learnt(rows).fitted.components_)
    named = learnt(rows, dims=("d", "c", "b", "a"))
    assert list(named.fitted.feature_names_in_) == ["d", "c", "b", "a"]
    assert learnt([{1: row["d"], "x": row["c"]} for row in rows if len(row) == 4]).fitted.n_features_in_ == 2


@pytest.mark.parametrize("cell", ["x", 1e200, float("inf"), [1]])
@pytest.mark.parametrize("n_before", [5, 30])
def test_a_bad_row_is_an_error_and_leaves_no_trace(rows, cell, n_before):
    codes = learnt(rows[:n_before])
    for learn in (codes.learn_one, lambda row: codes.learn_many(pd.DataFrame([rows[0], row]))):
        with pytest.raises(InvalidDataError):
            learn(rows[0] | {"b": cell})
    for row in rows[n_before:]:
        codes.learn_one(row)
    np.testing.assert_array_equal(codes.fitted.components_, learnt(rows).fitted.components_)


def test_an_inference_that_does_not_stream(rows):
    with pytest.raises(IncompatibleModelError, match="takes rows as they come"):
        learnt(rows, model=model(CollapsedGibbs()))


def test_a_pipeline_of_river(rows):
    compose = pytest.importorskip("river.compose", reason="river is not installed")
    from river import linear_model, preprocessing

    pipeline = (
        preprocessing.StandardScaler() | OnlineLatentFeatures(model(), batch=20)
    ) | linear_model.LinearRegression()
    assert isinstance(pipeline, compose.Pipeline)
    for row in (row for row in rows if len(row) == 4):
        pipeline.predict_one(row)
        pipeline.learn_one(row, row["a"])
    assert len(pipeline["LinearRegression"].weights) == pipeline["OnlineLatentFeatures"].fitted.n_components_


@pytest.mark.slow
@pytest.mark.parametrize("inference", [QUICK, RecursiveIBP(n_start=20)])
def test_river_finds_nothing_wrong(inference):
    checks = pytest.importorskip("river.checks", reason="river is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that come late
        estimator = LatentFeatures(inference=inference, n_chains=1, random_state=0, verbose=False)
        checks.check_estimator(OnlineLatentFeatures(estimator, batch=20))
