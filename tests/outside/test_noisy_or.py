"""A likelihood from outside of thali, written in six short methods: exact, saved, loaded, resumed, scored."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outside.noisy_or import NoisyOr
from outside.scaled import Scaled

import thali
from thali import IBP, BetaBernoulli, Gamma, Gibbs, LatentFeatures, SliceSampler
from thali.core.model import Model
from thali.core.protocols.engines.chains import MarginalRows
from thali.observations import Likelihood
from thali.rng import make_generator
from thali.storage import checkpoint
from thali.testing import check_inference, check_observation, geweke

TRUTH = np.array([[0.9, 0.9, 0.9, 0.02, 0.02, 0.02], [0.02, 0.02, 0.02, 0.95, 0.9, 0.95]])
SHORT = {"n_warmup": 4, "n_draws": 6}
X3 = np.array([[1.0, 0, 1], [1, 0, 1], [0, 1, 0]])


def data(n_rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    Z = rng.integers(2, size=(n_rows, 2)).astype(np.uint8)
    X = NoisyOr().simulate(rng, Z, features=TRUTH)
    X[3, 2] = np.nan
    return X, Z


def fitted(X: np.ndarray, **settings: Any) -> LatentFeatures:
    common = {"n_chains": 2, "n_jobs": 1, "random_state": 0, "verbose": False} | settings
    return LatentFeatures(NoisyOr(strength=Gamma(2.0, 1.0)), IBP(), Gibbs(**SHORT), **common).fit(X)


def test_it_is_short() -> None:
    own = [name for name, value in vars(NoisyOr).items() if callable(value) and not name.startswith("_")]
    assert len(own) == 6


@pytest.mark.parametrize("model", [NoisyOr(strength=2.0, leak=0.05), Scaled()], ids=["bits", "weights"])
def test_contract(model: Likelihood, rng: np.random.Generator) -> None:
    check_observation(model, rng, n_draws=2000)


def test_the_marginal_is_that_of_one_feature() -> None:
    """P(x = 1 | z = 1) = 1 - (1 - leak) E[1 - A], and of two rows by E[(1 - A)^2]."""
    model, keep = NoisyOr(strength=2.0, leak=0.1), 0.9
    first, second = 1 / 3, 1 / 6  # E[1 - A] and E[(1 - A)^2] of Beta(2, 1)
    marginal = model.engine(MarginalRows)
    ones = np.ones((2, 1), dtype=np.uint8)
    got = marginal.log_marginal(np.array([[0.0], [0.0]]), ones)
    assert got == pytest.approx(np.log(keep**2 * second), rel=0.02)
    got = marginal.log_marginal(np.array([[1.0], [0.0]]), ones)
    assert got == pytest.approx(np.log(keep * first - keep**2 * second), rel=0.02)


@pytest.mark.parametrize(
    ("prior", "kind", "n_steps"),
    [
        pytest.param(BetaBernoulli(mass=1.0, n_features=1), Gibbs, 60, id="finite"),
        pytest.param(IBP(mass=0.8), Gibbs, 150, marks=pytest.mark.slow, id="infinite"),
        pytest.param(IBP(mass=0.8), SliceSampler, 150, marks=pytest.mark.slow, id="slices"),
    ],
)
def test_samplers_are_exact(prior: Any, kind: Any, n_steps: int) -> None:
    model = Model(prior, NoisyOr(strength=4.0, leak=0.05))
    check_inference(kind(start="empty"), model, X3, make_generator(1), n_steps=n_steps, max_features=4)


JOINT = {
    "bits": (NoisyOr(strength=Gamma(4.0, 2.0)), Gibbs()),
    "weights": (Scaled(), Gibbs()),
    "weights, slices": (Scaled(), SliceSampler()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", JOINT)
def test_a_step_keeps_the_joint_distribution(name: str) -> None:
    observation, inference = JOINT[name]
    result = geweke(Model(IBP(mass=0.8), observation), inference, make_generator(0), n_rows=3, n_replicates=3000)
    assert result.passed, result.worst


def test_it_finds_what_made_the_data() -> None:
    X, Z = data()
    with pytest.warns(UserWarning, match="converged"):
        model = LatentFeatures(
            NoisyOr(), IBP(), Gibbs(n_warmup=20, n_draws=20), n_chains=2, random_state=0, verbose=False
        ).fit(X)
    assert model.n_components_ == 2
    presence = model.presence(X)
    order = np.argsort(model.components_[:, 0])[::-1]
    assert np.mean((presence[:, order] > 0.5) == Z) > 0.95
    assert 0.0 < model.impute(X)[3, 2] < 1.0
    assert np.isin(model.sample(20), (0.0, 1.0)).all()
    new = np.array([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    assert model.score_samples(new)[1] > model.score_samples(np.array([[1.0, 0, 0, 1, 0, 0]]))[0]
    assert ((model.novelty(new) >= 0) & (model.novelty(new) <= 1)).all()


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    X, _ = data(20)
    with pytest.warns(UserWarning, match="converged"):
        model = fitted(X)
    model.save(tmp_path / "fit.thali")
    again = thali.load(tmp_path / "fit.thali")
    assert np.array_equal(again.transform(X), model.transform(X))
    assert isinstance(again.observation, NoisyOr)
    assert again.score(X[:3]) == model.score(X[:3])


def test_it_is_resumed_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = data(20)
    with pytest.warns(UserWarning, match="converged"):
        whole = fitted(X)
    keep, steps = checkpoint.Checkpoint.keep, []

    class Killed(BaseException):
        pass

    def killing(self: Any, chain: Any, is_last: bool) -> None:
        keep(self, chain, is_last)
        steps.append(1)
        if len(steps) == 9:
            raise Killed

    for name in ("EVERY", "_SHARE", "_COST"):
        monkeypatch.setattr(checkpoint, name, 0.0)
    monkeypatch.setattr(checkpoint.Checkpoint, "keep", killing)
    with pytest.raises(Killed):
        fitted(X, checkpoint=tmp_path / "run")
    monkeypatch.setattr(checkpoint.Checkpoint, "keep", keep)
    with pytest.warns(UserWarning, match="converged"):
        resumed = thali.resume(tmp_path / "run", X, verbose=False)
    assert np.array_equal(resumed.posterior_.draws["log_joint"], whole.posterior_.draws["log_joint"])


def test_a_likelihood_without_its_methods_is_refused() -> None:
    with pytest.raises(thali.InvalidParameterError, match=r"Likelihood must say what it is\. It lacks .*log_cells"):
        Likelihood()

    class Weighted(NoisyOr):
        code_kind = "positive"

    with pytest.raises(thali.InvalidParameterError, match="It lacks draw_codes, log_codes"):
        Weighted()


def test_what_it_cannot_do_is_refused_in_words() -> None:
    X, _ = data(10)
    for inference in (thali.CollapsedGibbs(), thali.MeanField(), thali.BPMeans(), thali.ParticleFilter()):
        with pytest.raises(thali.IncompatibleModelError, match="which NoisyOr does not provide") as error:
            LatentFeatures(NoisyOr(), IBP(), inference).fit(X)
        assert "Inference that fits IBP x NoisyOr: Gibbs" in str(error.value)
    with pytest.raises(thali.InvalidDataError, match="zeros and ones"):
        fitted(X + 2)
