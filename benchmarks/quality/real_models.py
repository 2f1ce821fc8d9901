"""Models of the real data, their predictions of hidden cells, and the ordinary ones they are compared with."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.quality.chains import common_counts
from benchmarks.quality.real_sets import RealSet
from thali import CollapsedGibbs, FactorAnalysis, Gibbs, LatentFeatures, LinearGaussian, NormalOffset, PerDim
from thali.core.protocols.engines.predictions import Predictions
from thali.inference.calibration.factor_em import FactorFit, fill, log_cells, validated_factors

FLOORS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.03)
BINARY_CHAIN = {"n_warmup": 200, "n_draws": 200}
Array = np.ndarray
Entry = dict[str, Any]


class Cells(NamedTuple):
    """Predictions of cells: log density and mean of each."""

    log_density: Array
    mean: Array


# --- models with an unbounded number of features ---------------------------------------------------


def binary(floor: float | None, settings: dict[str, Any]) -> LatentFeatures:
    """A learned offset, a noise level per dim above a share of the dim's variance."""
    assert floor is not None
    observation = LinearGaussian(noise_var=PerDim(), offset=NormalOffset(), noise_floor=floor)
    return LatentFeatures(observation, inference=CollapsedGibbs(**(BINARY_CHAIN | settings)))


def factors(floor: float | None, settings: dict[str, Any]) -> LatentFeatures:
    """Features with normal weights, as they come: the floor and all else are found from the data."""
    inference = Gibbs(**settings) if settings else "auto"
    return LatentFeatures(FactorAnalysis(), inference=inference)


MODELS: dict[str, Callable[[float | None, dict[str, Any]], LatentFeatures]] = {"binary": binary, "factors": factors}


def fit(
    name: str,
    X: Array,
    hidden: Array,
    floor: float | None,
    seed: int,
    settings: dict[str, Any],
    n_chains: int | None = None,
) -> LatentFeatures:
    """The named model of the cells that are not hidden; the default number of chains unless one is given."""
    model = MODELS[name](floor, settings).set_params(random_state=seed)
    if n_chains is not None:
        model.set_params(n_chains=n_chains)
    model.fit(np.where(hidden, np.nan, X))
    if model.interrupted_:  # half a fit is no figure
        raise KeyboardInterrupt
    return model


def predict(posterior: Any, X: Array, hidden: Array, chain: int) -> Cells:
    """Mixtures over the draws of a chain, cell by cell."""
    total = np.full(np.count_nonzero(hidden), -np.inf)
    mean = np.zeros(len(total))
    n = posterior.n_draws
    for draw in range(n):
        observation, codebook = posterior.concrete(chain, draw).observation, posterior.codebook(chain, draw)
        codes = posterior.codes(chain, draw)
        total = np.logaddexp(total, observation.engine(Predictions).log_cells(X, codes, codebook)[hidden])
        mean += observation.reconstruct(codes, codebook.features)[hidden] / n
    return Cells(total - np.log(n), mean)


def pooled(chains: list[Cells]) -> Cells:
    log_density = np.logaddexp.reduce([one.log_density for one in chains]) - np.log(len(chains))
    return Cells(log_density, np.mean([one.mean for one in chains], axis=0))


def measure(
    data: RealSet,
    name: str,
    floor: float | None,
    seed: int,
    settings: dict[str, Any],
    n_chains: int | None,
    reference: Array,
) -> tuple[Entry, LatentFeatures]:
    """One fit and its figures; `reference` are log densities of the hidden cells to compare with, cell by cell."""
    wall, cpu = time.perf_counter(), time.process_time()
    model = fit(name, data.X, data.hidden, floor, seed, settings, n_chains)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    posterior = model.posterior_
    chains = [predict(posterior, data.X, data.hidden, chain) for chain in range(posterior.n_chains)]
    noise = posterior.hyper["observation.noise_var"]  # (chain, draw, dim)
    trace = model.history_["n_features"][0]
    together = pooled(chains)
    entry = {
        "set": data.name,
        "model": name,
        "floor": floor,
        "seed": seed,
        "seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        **figures(data, together),
        **difference("minus_fa", together.log_density, reference),
        "lpd_chains": [float(one.log_density.mean()) for one in chains],
        "k_chains": [float(k) for k in posterior.draws["n_features"].mean(axis=1)],
        "lpd_of_library": model.heldout_score(data.X, data.hidden, by="cell"),  # the same by other code
        "k_raw": float(posterior.draws["n_features"].mean()),
        "k_common": float(common_counts(posterior).mean()),
        "k_reported": int(model.n_components_),
        "k_trace": [int(trace[i]) for i in np.linspace(0, len(trace) - 1, 9).astype(int)],
        "noise_sd": float(np.sqrt(noise.mean())),
        "at_floor": float((noise <= 1.1 * posterior.model.observation.floor(data.X.shape[1])).mean()),
        "feature_var": float(posterior.draws["feature_var"].mean()),
        "free_energy": [float(v) for v in posterior.draws["free_energy"].mean(axis=1)],
    }
    return entry, model


def figures(data: RealSet, cells: Cells) -> dict[str, float]:
    log_density = cells.log_density
    return {
        "lpd": float(log_density.mean()),
        "lpd_error": float(log_density.std() / np.sqrt(len(log_density))),
        "rmse": float(np.sqrt(np.mean((data.X[data.hidden] - cells.mean) ** 2))),
    }


def difference(name: str, one: Array, other: Array) -> dict[str, float]:
    """Mean over cells of one minus the other, and its standard error."""
    gain = one - other
    return {name: float(gain.mean()), f"{name}_error": float(gain.std() / np.sqrt(len(gain)))}


# --- what is chosen by further hidden cells --------------------------------------------------------


def choose_floor(data: RealSet, settings: dict[str, Any]) -> tuple[float, list[dict[str, float]]]:
    """The share with the best density of further hidden cells: downwards, one chain each, until it falls."""
    tried: list[dict[str, float]] = []
    for floor in FLOORS:
        model = fit("binary", data.X, data.hidden | data.inner, floor, 0, settings, 1)
        log_density = predict(model.posterior_, data.X, data.inner, 0).log_density
        error = float(log_density.std() / np.sqrt(len(log_density)))
        k = float(model.posterior_.draws["n_features"].mean())
        tried.append({"floor": floor, "lpd": float(log_density.mean()), "error": error, "k": k})
        print(f"{data.name}: floor {floor:g}, inner LPD {tried[-1]['lpd']:.3f} (error {error:.3f}), K {k:.1f}")
        if len(tried) > 1 and tried[-1]["lpd"] < tried[-2]["lpd"]:
            break
    return max(tried, key=lambda one: one["lpd"])["floor"], tried


def choose_model(data: RealSet, floor: float, settings: dict[str, Any], n_chains: int | None) -> Entry:
    """Factors, unless the binary model predicts the inner cells as well but for one standard error: it is simpler."""
    inner = {}
    for name in ("binary", "factors"):
        posterior = fit(name, data.X, data.hidden | data.inner, floor, 0, settings, n_chains).posterior_
        inner[name] = pooled([predict(posterior, data.X, data.inner, c) for c in range(posterior.n_chains)]).log_density
    gain = difference("gain", inner["factors"], inner["binary"])
    return {
        "set": data.name,
        "model": "choice",
        "floor": floor,
        "seed": 0,
        **{f"inner_{name}": float(log_density.mean()) for name, log_density in inner.items()},
        **gain,
        "chosen": "factors" if gain["gain"] > gain["gain_error"] else "binary",
    }


# --- ordinary models -------------------------------------------------------------------------------


def ordinary(data: RealSet, per_dim: bool, seed: int = 0) -> tuple[FactorFit, Cells]:
    """Factor analysis (or probabilistic PCA) by EM, its number of factors chosen by further hidden cells."""
    seen = np.where(data.hidden, np.nan, data.X)
    found = validated_factors(np.random.default_rng(seed), seen, per_dim=per_dim)
    log_density = log_cells(found, data.X, ~data.hidden)[data.hidden]
    return found, Cells(log_density, fill(found, seen)[data.hidden])


def column_means(data: RealSet) -> Cells:
    """Each dim's own mean and variance, which is no less than 0.01 of the mean variance."""
    seen = np.where(data.hidden, np.nan, data.X)
    mean = np.broadcast_to(np.nanmean(seen, axis=0), data.X.shape)[data.hidden]
    var = np.broadcast_to(np.maximum(np.nanvar(seen, axis=0), 0.01), data.X.shape)[data.hidden]
    return Cells(-0.5 * np.log(2 * np.pi * var) - 0.5 * (data.X[data.hidden] - mean) ** 2 / var, mean)


def baselines(data: RealSet) -> list[Entry]:
    """An entry for column means, factor analysis (FA) and PCA."""
    start = time.perf_counter()
    entries: list[Entry] = [{"model": "column means", **figures(data, column_means(data)), "k": 0, "noise_sd": None}]
    for name, per_dim in (("FA", True), ("PCA", False)):
        found, cells = ordinary(data, per_dim)
        noise_sd = float(np.sqrt(found.noise_var.mean()))
        entries.append({"model": name, **figures(data, cells), "k": len(found.loadings), "noise_sd": noise_sd})
        entries[-1]["seconds"] = round(time.perf_counter() - start, 2)
        start = time.perf_counter()
    return [{"set": data.name, "floor": None, "seed": None, **entry} for entry in entries]
