"""Every prior, observation model and inference that fit together: killed, resumed, saved, loaded, to the same bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import thali
from thali import (
    IBP,
    ICA,
    Bernoulli,
    BetaBernoulli,
    BetaProcess,
    BPMeans,
    CollapsedGibbs,
    DistanceDependentGibbs,
    DistanceDependentIBP,
    ExponentialDecay,
    FactorAnalysis,
    Gamma,
    Gibbs,
    HierarchicalBetaProcess,
    HierarchicalGibbs,
    LatentFeatures,
    LinearGaussian,
    MeanField,
    ParticleFilter,
    PoissonGamma,
    RecursiveIBP,
    SliceSampler,
    SparseFactorAnalysis,
    StickBreakingIBP,
    StochasticMeanField,
    StreamingMeanField,
    Times,
)
from thali.core.model import compatible
from thali.errors import InvalidFileError, InvalidParameterError
from thali.running import choose as auto
from thali.storage import archive as files
from thali.storage import checkpoint

SHORT: dict[str, Any] = {"n_warmup": 2, "n_draws": 3, "thin": 2}
SAMPLERS = [
    CollapsedGibbs(**SHORT, start="spectral", moves=0.5),
    Gibbs(**SHORT, moves=0.5),
    Gibbs(**SHORT, start="empty", births="importance", candidates=3),
    Gibbs(**SHORT, births="proposed", proposal=(2.0, 0.2)),
    SliceSampler(**SHORT, start="empty"),
    DistanceDependentGibbs(**SHORT, start="spectral"),
    HierarchicalGibbs(**SHORT, start="spectral"),
]
OTHERS = [
    MeanField(max_iter=5, n_restarts=2, truncation=3),
    StochasticMeanField(n_epochs=2, batch_size=6, truncation=3, n_restarts=1, moves=False),
    BPMeans(max_iter=5, n_restarts=2),
    ParticleFilter(n_particles=4),
    RecursiveIBP(n_start=8),
    StreamingMeanField(batch_size=4, truncation=3, n_inner=3),
]
PRIORS = [
    IBP(),
    BetaBernoulli(n_features=3),
    BetaProcess(concentration=2.0, rounds=2),
    StickBreakingIBP(truncation=4),
    DistanceDependentIBP.from_times(np.arange(14.0)),
    HierarchicalBetaProcess.from_distances(
        Times(np.arange(14.0)), ExponentialDecay(0.3), group_concentration=Gamma(2.0, 2.0)
    ),
]
OBSERVATIONS = [
    LinearGaussian(),
    FactorAnalysis(noise_floor=0.1),
    ICA(noise_floor=0.1),
    PoissonGamma(),
    Bernoulli(),
    SparseFactorAnalysis(),
    SparseFactorAnalysis(sparse="rows"),
]


def named(inferences: list[Any]) -> list[Any]:
    """Those with the first prior are tried in every run, the others in the slow ones."""
    return [
        pytest.param(
            *triple,
            id="-".join(type(part).__name__ for part in triple)
            + getattr(triple[2], "births", "")
            + getattr(triple[1], "sparse", ""),
            marks=() if triple[0] is PRIORS[0] else pytest.mark.slow,
        )
        for triple in compatible(PRIORS, OBSERVATIONS, inferences)
    ]


def data(observation: Any, inference: Any = None) -> np.ndarray:
    rng = np.random.default_rng(2)
    Z = rng.integers(2, size=(14, 2))
    if isinstance(observation, PoissonGamma):
        X = rng.poisson(Z @ rng.gamma(1.0, 5.0, (2, 4))).astype(float)
    else:
        X = Z @ (3 * rng.standard_normal((2, 4))) + 0.5 * rng.standard_normal((14, 4))
    if isinstance(observation, Bernoulli):
        X = (X > 1.0).astype(float)
    X[2, 1] = X[5, 3] = np.nan
    return X


def estimator(prior: Any, observation: Any, inference: Any, **settings: Any) -> LatentFeatures:
    common = {"n_chains": 2, "n_jobs": 1, "random_state": 5, "verbose": False}
    return LatentFeatures(observation, prior, inference, **common | settings)


def content(m: LatentFeatures, folder: Path) -> bytes:
    m.save(folder / "content.thali")
    return (folder / "content.thali").read_bytes()


class Killed(BaseException):
    """The end of a process, for the rest of it."""


def kill(m: LatentFeatures, X: Any, n_steps: int) -> bool:
    """Fit until so many steps have been kept; whether it came to that."""
    keep, done = checkpoint.Checkpoint.keep, []

    def keeping(self: Any, chain: Any, is_last: bool) -> None:
        keep(self, chain, is_last)
        done.append(1)
        if len(done) >= n_steps:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        for name in ("EVERY", "_SHARE", "_COST"):
            patch.setattr(checkpoint, name, 0.0)
        patch.setattr(checkpoint.Checkpoint, "keep", keeping)
        try:
            m.fit(X).save(Path(m.checkpoint).parent / "content.thali")
        except Killed:
            return True
    return False


def check_resumed(parts: tuple[Any, Any, Any], X: Any, tmp_path: Path, n_steps: tuple[int, ...]) -> None:
    whole = content(estimator(*parts).fit(X), tmp_path)
    folder = tmp_path / "fit.run"
    for n in n_steps:
        if not kill(estimator(*parts, checkpoint=folder), X, n):
            break  # it was done before
        m = thali.resume(folder, X)
        assert content(m, tmp_path) == whole, n
        assert not folder.exists()
    assert content(thali.load(tmp_path / "content.thali"), tmp_path) == whole


def test_the_table_is_whole() -> None:
    assert {type(inference) for inference in SAMPLERS + OTHERS} == set(auto.ALL)
    served = {type(triple[1]) for triple in compatible(PRIORS, OBSERVATIONS, SAMPLERS)}
    assert served == {type(observation) for observation in OBSERVATIONS}


@pytest.mark.parametrize(("prior", "observation", "inference"), named(SAMPLERS))
def test_samplers(prior: Any, observation: Any, inference: Any, tmp_path: Path) -> None:
    check_resumed((prior, observation, inference), data(observation), tmp_path, (9,))


@pytest.mark.slow
@pytest.mark.parametrize(("prior", "observation", "inference"), named(SAMPLERS))
def test_samplers_at_any_step(prior: Any, observation: Any, inference: Any, tmp_path: Path) -> None:
    check_resumed((prior, observation, inference), data(observation), tmp_path, tuple(range(1, 17, 2)))


@pytest.mark.parametrize("inference", [Gibbs(**SHORT), SliceSampler(**SHORT)], ids=["Gibbs", "SliceSampler"])
def test_sparse_counts(inference: Any, tmp_path: Path) -> None:
    X = np.nan_to_num(data(PoissonGamma()))
    check_resumed((IBP(), PoissonGamma(), inference), csr_array(X), tmp_path, (9,))
    folder = tmp_path / "fit.run"
    kill(estimator(IBP(), PoissonGamma(), inference, checkpoint=folder), csr_array(X), 9)
    unsorted = csr_array(X).tocoo().tocsc()
    assert thali.resume(folder, unsorted).stopped_by_ is None  # the same counts in another form
    with pytest.raises(thali.errors.InvalidDataError, match="sparse or dense as it was"):
        thali.resume(folder, X)


@pytest.mark.slow
def test_rows_on_threads(tmp_path: Path) -> None:
    """From a thousand rows on, `Gibbs` draws them side by side."""
    rng = np.random.default_rng(2)
    X = rng.integers(2, size=(1200, 2)) @ (3 * rng.standard_normal((2, 4))) + rng.standard_normal((1200, 4))
    check_resumed((IBP(), LinearGaussian(), Gibbs(**SHORT, start="spectral")), X, tmp_path, (5, 11))


@pytest.mark.parametrize(("prior", "observation", "inference"), named(OTHERS))
def test_other_shapes(prior: Any, observation: Any, inference: Any, tmp_path: Path) -> None:
    check_resumed((prior, observation, inference), data(observation), tmp_path, (2,))


@pytest.mark.slow
@pytest.mark.parametrize(("prior", "observation", "inference"), named(OTHERS))
def test_other_shapes_at_any_step(prior: Any, observation: Any, inference: Any, tmp_path: Path) -> None:
    check_resumed((prior, observation, inference), data(observation), tmp_path, tuple(range(1, 40)))


@pytest.mark.parametrize("inference", [ParticleFilter(n_particles=4), OTHERS[1]], ids=["rows", "blocks"])
def test_streams_go_on_after_a_run_was_resumed(inference: Any, tmp_path: Path) -> None:
    X, folder = data(LinearGaussian()), tmp_path / "fit.run"
    kill(estimator(IBP(), None, inference, checkpoint=folder), X, 3)
    resumed = thali.resume(folder, X).set_params(checkpoint=None)
    whole = estimator(IBP(), None, inference).fit(X)
    again = thali.load(tmp_path / "content.thali") if content(resumed, tmp_path) else None
    for m in (whole, resumed, again):
        m.partial_fit(X[:3])
    assert content(resumed, tmp_path) == content(whole, tmp_path) == content(again, tmp_path)


@pytest.mark.parametrize("inference", [ParticleFilter(n_particles=4), OTHERS[1]], ids=["rows", "blocks"])
def test_batches_refuse_a_checkpoint(inference: Any, tmp_path: Path) -> None:
    X, folder = data(LinearGaussian()), tmp_path / "fit.run"
    m = estimator(IBP(), None, inference, checkpoint=folder)
    with pytest.raises(InvalidParameterError, match="checkpoint is for fit and must be None with partial_fit"):
        m.partial_fit(X)
    if inference.shape == "blocks":
        with pytest.raises(InvalidParameterError, match="checkpoint must be None with batches"):
            m.fit(iter([X]))
    assert not folder.exists()


def test_data_on_disk(tmp_path: Path) -> None:
    """A memory map stays one, also when it is resumed."""
    X = data(LinearGaussian())
    np.save(tmp_path / "x.npy", X)
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    check_resumed((IBP(), None, OTHERS[1]), on_disk, tmp_path, (1, 2, 4))
    folder = tmp_path / "fit.run"
    kill(estimator(IBP(), None, OTHERS[1], checkpoint=folder), on_disk, 2)
    np.save(tmp_path / "y.npy", X + 1)
    with pytest.raises(thali.errors.InvalidDataError, match="X must be the data of the run"):
        thali.resume(folder, np.load(tmp_path / "y.npy", mmap_mode="r"))


# ---- states that a chain on these counts cannot have: kernels do not look before they read


def spoil(name: str, change: Any) -> Any:
    def spoiled(local: Any) -> Any:
        return local._replace(**{name: change(np.array(getattr(local, name)))})

    return spoiled


def cell(value: float) -> Any:
    def changed(array: np.ndarray) -> np.ndarray:
        array.flat[np.flatnonzero(array)[0]] = value
        return array

    return changed


HOSTILE = {
    "fewer rows": lambda local: local._replace(z=local.z[:-1], v=local.v[:-1]),
    "no bits": lambda local: local._replace(z=local.z[:, :0], v=local.v[:, :0], allocated=local.allocated[:0]),
    "bits of a row": spoil("z", lambda z: z * (np.arange(len(z)) != 0)[:, None].astype(np.uint8)),
    "wider bits": spoil("z", lambda z: np.hstack([z, z])),
    "real bits": spoil("z", lambda z: z.astype(float)),
    "fewer weights": spoil("v", lambda v: v[:, :-1]),
    "negative weight": spoil("v", cell(-1.0)),
    "infinite weight": spoil("v", cell(np.inf)),
    "no weight": spoil("v", cell(0.0)),
    "single precision": spoil("v", lambda v: v.astype(np.float32)),
    "flat weights": spoil("v", np.ravel),
    "fewer dims": spoil("allocated", lambda a: a[:, :-1]),
    "more features": spoil("allocated", lambda a: np.vstack([a, a])),
    "more counts": spoil("allocated", lambda a: a + 1),
    "NaN": spoil("allocated", cell(np.nan)),
    "whole numbers": spoil("allocated", lambda a: a.astype(np.int64)),
    "log_parts": lambda local: local._replace(log_parts=float("nan")),
    "log_parts of many": lambda local: local._replace(log_parts=np.zeros(3)),
    "another model": lambda local: thali.observations.gaussian.rows.GaussianRows(local.z, local.v, local.v, local.v),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "fit.run"
    kill(estimator(IBP(), PoissonGamma(), Gibbs(**SHORT), n_chains=1, checkpoint=folder), data(PoissonGamma()), 4)
    return folder


def rewritten(folder: Path, change: Any) -> Any:
    """Resume with a changed state."""
    path = folder / "chain-0.state.thali"
    kept = path.read_bytes()
    try:
        meta, arrays = files.read(path)
        state = change(checkpoint.unpack(meta["state"], arrays, 1)[0])
        arrays = {name: array for name, array in arrays.items() if not name.startswith("state")}
        meta["state"] = checkpoint.pack([state], "state", arrays)
        files.write(path, meta, arrays)
        thali.resume(folder, data(PoissonGamma()), verbose=False, max_time=0.01)
    finally:
        path.write_bytes(kept)


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_counts_are_found(how: str, stopped: Path) -> None:
    rewritten(stopped, lambda state: state)  # as it is, it is sound
    with pytest.raises(InvalidFileError, match=r"chain-0\.state"):
        rewritten(stopped, lambda state: state._replace(local=HOSTILE[how](state.local)))


def test_hostile_parameters_are_found(stopped: Path) -> None:
    for change in ({"weight_shape": 9.0}, {"feature_rate": 2.0}, {"leak": 0.5}):
        with pytest.raises(InvalidFileError, match="observation is another"):
            rewritten(stopped, lambda state, c=change: state._replace(observation=state.observation.replace(**c)))
    with pytest.raises(InvalidFileError, match="prior is another"):
        rewritten(stopped, lambda state: state._replace(prior=BetaBernoulli(mass=1.0, n_features=3)))
