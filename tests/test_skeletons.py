"""The skeletons of docs/skeletons run as they stand: proved, fitted, saved, loaded, resumed."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import thali
from thali.core.protocols.prior import Predictive
from thali.storage import checkpoint

FOLDER = Path(__file__).parents[1] / "docs" / "skeletons"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
SHORT: dict[str, Any] = {"n_warmup": 4, "n_draws": 6}


def skeleton(name: str) -> ModuleType:
    """The file as it stands, imported under a name of its own."""
    module = f"skeleton_{name}"
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return sys.modules[module]


def parts(name: str) -> tuple[Any, Any, Any]:
    """(observation, prior, inference) with that of the skeleton among them."""
    if name == "likelihood":
        return skeleton(name).LaplaceNoise(scale=thali.Gamma(2.0, 4.0)), thali.IBP(), thali.Gibbs(**SHORT)
    if name == "prior":
        return thali.LinearGaussian(), skeleton(name).EvenOdds(n_features=3), thali.CollapsedGibbs(**SHORT)
    return thali.LinearGaussian(), thali.IBP(), skeleton(name).RandomScan(start="spectral", **SHORT)


def data() -> np.ndarray:
    rng = np.random.default_rng(0)
    Z = rng.integers(2, size=(12, 2))
    return Z @ np.array([[3.0, 3.0, 0.0, 0.0], [0.0, 0.0, 4.0, -4.0]]) + 0.3 * rng.standard_normal((12, 4))


def fitted(name: str, **settings: Any) -> thali.LatentFeatures:
    common = {"n_chains": 2, "n_jobs": 1, "random_state": 0, "verbose": False} | settings
    return thali.LatentFeatures(*parts(name), **common).fit(data())


def test_there_are_three() -> None:
    assert NAMES == ["likelihood", "prior", "sampler"]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_proved(name: str, rng: np.random.Generator) -> None:
    skeleton(name).prove(rng)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_it_learns_is_proved(name: str, rng: np.random.Generator) -> None:
    skeleton(name).prove_learning(rng)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_fitted_saved_and_loaded(name: str, tmp_path: Path) -> None:
    model, X = fitted(name), data()
    model.save(tmp_path / "fit.thali")
    again = thali.load(tmp_path / "fit.thali")
    assert [type(part).__name__ for part in (again.observation, again.prior, again.inference)] == [
        type(part).__name__ for part in parts(name)
    ]
    assert np.array_equal(again.transform(X), model.transform(X))
    assert again.score(X[:3]) == model.score(X[:3])
    assert np.isfinite(model.sample(3)).all()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_resumed_to_the_same_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, steps = checkpoint.Checkpoint.keep, []

    class Killed(BaseException):
        pass

    def killing(self: Any, chain: Any, is_last: bool) -> None:
        keep(self, chain, is_last)
        steps.append(1)
        if len(steps) == 9:
            raise Killed

    for setting in ("EVERY", "_SHARE", "_COST"):
        monkeypatch.setattr(checkpoint, setting, 0.0)
    monkeypatch.setattr(checkpoint.Checkpoint, "keep", killing)
    with pytest.raises(Killed):
        fitted(name, checkpoint=tmp_path / "run")
    monkeypatch.setattr(checkpoint.Checkpoint, "keep", keep)
    resumed = thali.resume(tmp_path / "run", data(), verbose=False)
    assert np.array_equal(resumed.posterior_.draws["log_joint"], fitted(name).posterior_.draws["log_joint"])


def test_the_likelihood_needs_five_methods() -> None:
    own = [name for name, value in vars(skeleton("likelihood").LaplaceNoise).items() if callable(value)]
    public = {name for name in own if not name.startswith("_")}
    assert public == {"draw_features", "log_features", "log_cells", "sample_cells", "reconstruct"}


def test_the_prior_has_what_samplers_ask_for() -> None:
    assert isinstance(skeleton("prior").EvenOdds(), Predictive)
    with pytest.raises(thali.InvalidParameterError, match="between 0 and 1"):
        skeleton("prior").EvenOdds(probability=1.5)


def test_the_sampler_refuses_what_it_cannot_do() -> None:
    sampler = skeleton("sampler").RandomScan(**SHORT)
    X = data()
    X[0, 0] = np.nan
    with pytest.raises(thali.InvalidDataError, match="needs all cells"):
        thali.LatentFeatures(thali.LinearGaussian(), thali.IBP(), sampler, verbose=False).fit(X)
    with pytest.raises(thali.IncompatibleModelError, match="Got FactorAnalysis"):
        thali.LatentFeatures(thali.FactorAnalysis(), thali.IBP(), sampler, verbose=False).fit(data())


@pytest.mark.parametrize("wrong", ["scale", "odds"])
def test_their_proofs_can_fail(wrong: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    if wrong == "scale":
        kind, method = skeleton("likelihood").LaplaceNoise, "sample_cells"
        monkeypatch.setattr(kind, method, lambda self, rng, codes, features: rng.laplace(codes @ features, 0.7))
        words = "simulate must draw from the density"
    else:
        kind, method = skeleton("prior").EvenOdds, "log_odds"
        monkeypatch.setattr(kind, method, lambda self, n_rows: np.log(np.arange(n_rows) + 0.5))
        words = "log_odds"
    with pytest.raises(AssertionError, match=words):
        skeleton("likelihood" if wrong == "scale" else "prior").prove(rng)
