"""What a fit warns of, and what it shows on a terminal."""

import io
import os
import signal
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import thali
from thali import (
    IBP,
    BPMeans,
    CollapsedGibbs,
    LatentFeatures,
    LinearGaussian,
    MeanField,
    ParticleFilter,
    StochasticMeanField,
    how_many,
)
from thali.verdicts.judge import owned_by_one

RNG = np.random.default_rng(1)
X = RNG.integers(2, size=(30, 2)) @ np.array([[3.0, 3, 0], [0, 2, 3]]) + RNG.standard_normal((30, 3))
FIXED = {"observation": LinearGaussian(noise_var=1.0, feature_var=4.0), "prior": IBP(mass=1.0)}
SHORT = CollapsedGibbs(n_warmup=1, n_draws=3)
QUICK_BLOCKS = StochasticMeanField(batch_size=8, n_epochs=1, n_restarts=1, moves=False)

SHAPES = {
    "chains": ({"inference": SHORT}, "not converged: "),
    "restarts": ({"inference": MeanField(n_restarts=1, max_iter=1, start="random")}, "not converged: the bound"),
    "blocks": ({"inference": QUICK_BLOCKS}, "not converged: still rising"),
    "filters": ({"inference": ParticleFilter(n_particles=5), "n_chains": 1} | FIXED, "not converged: one filter"),
}


def estimator(**settings):
    return LatentFeatures(**{"n_chains": 2, "random_state": 0, "n_jobs": 1} | settings)


def caught(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_a_fit_that_has_not_converged_warns_once(name):
    settings, words = SHAPES[name]
    model = estimator(**settings)
    (found,) = caught(lambda: model.fit(X))
    assert not model.converged_
    assert found.category is ConvergenceWarning
    text = str(found.message)
    assert text.startswith(words)
    assert text.endswith(". check() says what to do.")
    assert model.check().startswith(text.removesuffix(" check() says what to do."))
    assert "What to do" not in text
    assert found.filename == __file__  # the caller's line, not ours


def test_every_way_to_a_fit_warns_at_the_caller(tmp_path):
    ways = (
        lambda: estimator(inference=SHORT).fit_transform(X),
        lambda: make_pipeline(StandardScaler(), estimator(inference=SHORT)).fit(X),
        lambda: how_many(X, inference=SHORT, n_chains=2, random_state=0),
    )
    for way in ways:
        (found,) = caught(way)
        assert (found.category, found.filename) == (ConvergenceWarning, __file__)
    folder = tmp_path / "run"
    caught(lambda: estimator(inference=SHORT, checkpoint=folder).fit(X))
    (found,) = caught(lambda: thali.resume(folder, X))
    assert (found.category, found.filename) == (ConvergenceWarning, __file__)


def test_no_warning_where_there_is_nothing_to_warn_of(tmp_path):
    converged = estimator(inference=BPMeans(n_restarts=1))
    assert caught(lambda: converged.fit(X)) == []
    assert converged.converged_
    short = estimator(inference=SHORT)
    caught(lambda: short.fit(X))
    short.save(tmp_path / "a.thali")
    assert caught(lambda: thali.load(tmp_path / "a.thali")) == []  # it was said at the fit
    assert caught(lambda: short.transform(X)) == []


@pytest.mark.parametrize("name", ["blocks", "filters"])
def test_batches_of_a_stream_do_not_warn(name):
    model = estimator(**SHAPES[name][0])
    assert caught(lambda: [model.partial_fit(X[:15]), model.partial_fit(X[15:])]) == []
    assert not model.converged_


def test_an_interrupted_run_gives_one_warning():
    model = estimator(inference=CollapsedGibbs(n_warmup=0, n_draws=10**6))
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    (found,) = caught(lambda: model.fit(X))
    assert str(found.message).startswith("Interrupted: kept ")
    assert found.filename == __file__


# ---- features of one row


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([], ""),
        ([2.0, 30.0], ""),
        ([1.0, 2.0, 30.0], "1 of 3 features has one row: an outlier?"),
        ([1.0, 1.2, 0.9, 1.0, 1.0, 9.0, 8.0, 7.0, 6.0], "5 of 9 features have one row: outliers?"),
        ([1.0], "The only feature has one row: an outlier?"),
    ],
)
def test_features_of_one_row_are_counted(counts, words):
    assert owned_by_one(np.array(counts)) == words


@pytest.mark.parametrize(
    "name",
    ["chains", "point", *(pytest.param(slow, marks=pytest.mark.slow) for slow in ("restarts", "blocks", "filters"))],
)
def test_outliers_are_spoken_of(name):
    inference = {
        "chains": CollapsedGibbs(n_warmup=30, n_draws=20),
        "restarts": MeanField(n_restarts=2),
        "point": BPMeans(n_restarts=2, penalty=30.0),
        "blocks": StochasticMeanField(batch_size=16),
        "filters": ParticleFilter(n_particles=20),
    }[name]
    odd = X.copy()
    odd[3] += [40.0, -30.0, 20.0]
    model = estimator(inference=inference, **FIXED).fit(odd)
    n_single = int(np.sum(model.posterior_.row_counts < 1.5))
    assert n_single >= 1
    assert model.check().endswith("outlier?" if n_single == 1 else "outliers?")
    assert f"{n_single} of {model.n_components_} features ha" in model.check()


# ---- quiet and not


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("terminal", [True, False])
def test_verbose_means_the_same_in_every_shape(name, terminal, monkeypatch):
    monkeypatch.setattr("thali.running.progress._QUIET", 0.0)
    monkeypatch.setattr("thali.running.progress._EVERY", 0.0)
    monkeypatch.setattr("thali.running.runner._LOOK", 0.001)
    monkeypatch.setenv("COLUMNS", "200")
    shown = {}
    for verbose in (0, False, None, 1, True):
        stream = Terminal() if terminal else io.StringIO()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", stream)
            caught(lambda verbose=verbose: estimator(**SHAPES[name][0], verbose=verbose).fit(X))
        shown[f"{verbose!r}"] = stream.getvalue()
    assert shown["0"] == shown["False"] == ""
    if name != "filters":  # these may have ended before anybody looked
        assert shown["1"]
        assert shown["True"]
    if not terminal:
        assert shown["None"] == ""
    elif name == "blocks":  # others look now and then, and may be done before
        assert shown["None"]
