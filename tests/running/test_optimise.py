"""An optimiser behind the estimator: one draw that does all that a posterior does, and an honest verdict."""

import numpy as np
import pytest

import thali
from thali import BetaBernoulli, BPMeans, LatentFeatures, LinearGaussian
from thali.errors import InvalidDataError, InvalidParameterError
from thali.running.choose import AUTO, choose
from thali.verdicts.restarts import Restarts

DATA = thali.datasets.bars(80)
HOLES = np.random.default_rng(0).random(DATA.X.shape) < 0.1
X = np.where(HOLES, np.nan, DATA.X)


@pytest.fixture(scope="module")
def model():
    return LatentFeatures(inference=BPMeans(), random_state=0).fit(X)


def test_one_draw_does_all_that_a_posterior_does(model, tmp_path):
    assert model.n_components_ == 4
    assert model.k_posterior_ == {4: 1.0}
    assert (model.stability_ == 1.0).all()
    assert {tuple(f) for f in np.round(model.components_)} == {tuple(f) for f in DATA.features}
    codes = model.transform(X)
    assert np.array_equal(codes, model.presence(X))
    assert np.mean((model.inverse_transform(codes) - DATA.Z @ DATA.features) ** 2) < 0.05
    filled, lower, upper = model.impute(X, interval=0.9)
    assert np.array_equal(filled[~HOLES], DATA.X[~HOLES])
    assert 0.8 < np.mean((lower <= DATA.X)[HOLES] & (upper >= DATA.X)[HOLES]) < 0.97
    assert model.heldout_score(DATA.X, HOLES) > -1.0  # that of a Gaussian fitted to each dim is about -1.1
    assert np.isfinite(model.score(DATA.X))
    assert model.sample(3, random_state=1).shape == (3, 36)
    assert (model.novelty(DATA.X) < 0.1).mean() > 0.9
    assert model.posterior_.draws["noise_var"][0, 0] == pytest.approx(0.25, rel=0.2)
    model.save(tmp_path / "point.thali")
    loaded = thali.load(tmp_path / "point.thali")
    assert loaded.check() == model.check()
    assert loaded.converged_ == model.converged_
    assert np.array_equal(loaded.transform(X), codes)
    assert np.array_equal(loaded.history_["objective"], model.history_["objective"])


def test_what_it_says_of_itself(model):
    history = model.history_
    assert history["objective"].shape == history["n_features"].shape
    assert (np.diff(history["objective"], axis=1) <= 1e-9 * history["objective"].max()).all()
    restarts = Restarts.of(history)
    assert model.converged_
    assert model.diagnostics_ == {}
    for part in ("converged (a minimum", "4 features", f"penalty {restarts.penalty:.4g}", "no posterior"):
        assert part in model.check()
    assert f"{restarts.n_best} of 5 restarts reached it" in model.check()
    assert model.check() in thali.how_many(X, inference=BPMeans(), random_state=0).reason


def test_a_run_cut_short_says_so():
    short = LatentFeatures(inference=BPMeans(max_iter=1, n_restarts=2), random_state=0).fit(DATA.X)
    history = short.history_ | {"settled": np.array([False, False])}
    assert "not converged: still falling" in Restarts.of(history).verdict()
    hurried = LatentFeatures(inference=BPMeans(n_restarts=50), random_state=0, max_time=1e-3).fit(DATA.X)
    assert hurried.stopped_by_ == "max_time"
    assert len(hurried.history_["settled"]) < 50


def test_a_lone_minimum_is_doubted():
    objective = np.array([[9.0, 5.0], [9.0, 6.0]])
    history = {
        "objective": objective,
        "n_features": np.array([[0, 2], [0, 3]]),
        "n_passes": np.array([1, 1]),
        "settled": np.array([True, True]),
    }
    alone = Restarts.of(history)
    assert not alone.converged
    assert alone.verdict().startswith("not converged: the restarts disagree (objective 5 with 2 features after 1 pass")
    assert "1 of 2 restarts reached it, the others have 3 features and lie up to 1 above" in alone.verdict()
    assert "more restarts" in alone.verdict()
    assert alone.agreement().best == 0
    both = Restarts.of(history | {"objective": np.array([[9.0, 5.0]] * 2), "n_features": np.array([[0, 2]] * 2)})
    assert both.n_best == 2
    assert both.converged
    assert "more restarts" not in both.verdict()


@pytest.mark.parametrize(
    ("gaps", "n_features", "settled", "converged"),
    [
        ([0, 0, 0, 0, 0], [4, 4, 4, 4, 4], [1, 1, 1, 1, 1], True),
        ([0, 6, 0, 90, 0], [4, 4, 4, 5, 4], [1, 1, 1, 1, 1], True),
        ([0, 0, 50, 60, 70], [4, 4, 5, 3, 4], [1, 1, 1, 1, 1], False),  # two of five
        ([0, 5, 5, 5, 5], [4, 5, 3, 6, 2], [1, 1, 1, 1, 1], False),  # as good, but other numbers
        ([0, 30, 40, 50, 60], [4, 4, 4, 4, 4], [1, 1, 1, 1, 1], False),  # as many, but other features
        ([0, 0, 90, 90, 90], [4, 4, 3, 3, 3], [1, 1, 0, 0, 0], True),  # the others had no time
        ([0, 1, 1, 1, 1], [4, 4, 4, 4, 4], [0, 1, 1, 1, 1], False),  # the best still rises
        ([0, 9], [4, 5], [1, 1], False),
        ([0], [4], [1], True),
        ([0, 1, 2], [40, 43, 37], [1, 1, 1], True),
        ([0, 1, 2], [40, 46, 30], [1, 1, 1], False),
    ],
)
@pytest.mark.parametrize("is_bound", [True, False])
def test_restarts_that_disagree_have_not_converged(gaps, n_features, settled, converged, is_bound):
    """A bound in nats, or a cost whose tenth of a penalty is as much."""
    scale = 1.0 if is_bound else 7.0
    history = {
        "objective": scale * (1000.0 + np.array(gaps, dtype=float))[:, None],
        "n_features": np.array(n_features)[:, None],
        "n_passes": np.full(len(gaps), 9),
        "settled": np.array(settled),
    } | ({"is_bound": np.ones(1)} if is_bound else {"penalty": np.array([200.0 * scale])})
    restarts = Restarts.of(history)
    assert restarts.converged == converged
    assert restarts.verdict().startswith("converged (" if converged else "not converged: ")
    assert ("What to do: more restarts" in restarts.verdict()) == (not converged and bool(settled[0]))


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_threads_do_not_matter(model, n_jobs):
    other = LatentFeatures(inference=BPMeans(), random_state=0, n_jobs=n_jobs).fit(X)
    for name, values in model.history_.items():
        assert np.array_equal(values, other.history_[name])
    for name, values in model.posterior_.draws.items():
        assert np.array_equal(values, other.posterior_.draws[name])
    assert np.array_equal(model.posterior_.Z(0, 0), other.posterior_.Z(0, 0))
    assert np.array_equal(model.components_, other.components_)


def test_a_finite_prior_has_its_empty_columns(tmp_path):
    fit = LatentFeatures(prior=BetaBernoulli(n_features=6), inference=BPMeans(n_restarts=1), random_state=0).fit(X)
    assert fit.posterior_.Z(0, 0).shape == (80, 6)
    assert fit.n_components_ == 4
    fit.save(tmp_path / "finite.thali")
    assert thali.load(tmp_path / "finite.thali").n_components_ == 4


@pytest.mark.parametrize(
    "observation",
    [
        LinearGaussian(noise_var=0.25, feature_var=0.2),
        LinearGaussian(noise_var=thali.PerDim(), offset=thali.NormalOffset(), noise_floor=0.1),
        LinearGaussian(offset=np.full(36, 0.1)),
    ],
    ids=["fixed", "per dim", "offset"],
)
def test_every_form_of_the_model(observation):
    fit = LatentFeatures(observation, inference=BPMeans(n_restarts=1), random_state=0).fit(X)
    assert fit.n_components_ == 4
    assert np.isfinite(fit.score(DATA.X))
    assert np.mean((fit.impute(X) - DATA.Z @ DATA.features)[HOLES] ** 2) < 0.15


@pytest.mark.parametrize("data", [np.zeros((6, 2)), np.ones((6, 2)), np.ones((1, 3))])
def test_plain_data(data):
    fit = LatentFeatures(inference=BPMeans(), random_state=0).fit(data)
    assert fit.converged_
    assert np.isfinite(fit.score_samples(data)).all()
    np.testing.assert_allclose(
        fit.inverse_transform(fit.posterior_.bits(0, 0)[:, fit.posterior_.consensus.columns]), data
    )


@pytest.mark.parametrize(
    "settings",
    [{"penalty": 0.0}, {"penalty": "auto"}, {"candidates": "lone"}, {"max_iter": 0}, {"tol": -1.0}, {"n_restarts": 0}],
    ids=lambda settings: next(iter(settings)),
)
def test_bad_settings(settings):
    with pytest.raises(InvalidParameterError, match=next(iter(settings))):
        BPMeans(**settings)


def test_what_only_samplers_have_is_refused():
    with pytest.raises(InvalidParameterError, match="for samplers"):
        LatentFeatures(inference=BPMeans(), target_ess=100.0).fit(X)
    with pytest.raises(InvalidParameterError, match="for samplers"):
        LatentFeatures(inference=BPMeans()).fit(X, heldout=DATA.X)
    with pytest.raises(InvalidDataError):
        LatentFeatures(inference=BPMeans()).fit(np.full((3, 2), np.nan))


def test_progress_goes_to_standard_error(capsys, monkeypatch):
    monkeypatch.setattr("thali.running.progress._QUIET", 0.0)
    monkeypatch.setattr("thali.running.progress._EVERY", 0.0)
    LatentFeatures(inference=BPMeans(n_restarts=2), random_state=0, verbose=True).fit(DATA.X)
    assert capsys.readouterr().err.splitlines()[-1].count("restart") == 2


def test_auto_never_chooses_it():
    assert BPMeans not in AUTO
    assert not isinstance(choose("auto", thali.IBP(), LinearGaussian(), 10, 2).inference, BPMeans)
    with pytest.raises(thali.IncompatibleModelError, match="Predictive"):
        LatentFeatures(prior=thali.HierarchicalBetaProcess(weights=np.eye(80)), inference=BPMeans()).fit(X)
