"""Joint-distribution tests in paired form (after Geweke 2004; Gandy & Scott 2020).

Draw hyperparameters, Z and X from the model, then apply one step of the sampler: it must leave the joint distribution
unchanged. Each replicate gives a pair of statistics, before and after; their mean difference must be zero within its
standard error. Replicates are independent, so no autocorrelation blurs the answer.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from thali.core.model import Model
from thali.core.observation import Observation
from thali.core.protocols.engines.chains import AuxiliaryRows, ChainRows
from thali.errors import InvalidParameterError
from thali.inference.calibration.noise_floor import calibrate
from thali.kernels.bits.replicates import sweep_replicates
from thali.testing.zscores import z_limit, z_scores

Array = np.ndarray
Quantities = Callable[[Any], dict[str, float]]  # of a state


class GewekeResult(NamedTuple):
    """z-scores by statistic."""

    z: dict[str, float]
    n_replicates: int

    @property
    def worst(self) -> tuple[str, float]:
        name = max(self.z, key=lambda n: abs(self.z[n]))
        return name, self.z[name]

    @property
    def passed(self) -> bool:
        return abs(self.worst[1]) <= z_limit(len(self.z))


def _result(before: dict[str, Array], after: dict[str, Array]) -> GewekeResult:
    n_replicates = len(next(iter(before.values())))
    scores = {name: float(z_scores(after[name] - before[name], np.zeros(()))) for name in before}
    return GewekeResult(scores, n_replicates)


def matrix_statistics(Z: Array, X: Array) -> dict[str, Array]:
    """Label-invariant statistics of replicates: Z (R, N, K) with empty columns allowed, X (R, N, D) complete."""
    dense = Z.astype(float)
    counts = dense.sum(axis=1)
    used = (counts > 0).sum(axis=1).astype(float)
    on = counts.sum(axis=1)
    shared = np.einsum("rnk,rmk->rnm", dense, dense)
    inner = np.einsum("rnd,rmd->rnm", X, X)
    explained = np.einsum("rnm,rnm->r", shared, inner)
    return {
        "K": used,
        "K^2": used**2,
        "K = 0": (used == 0).astype(float),
        "ones": on,
        "ones^2": on**2,
        "singletons": (counts == 1).sum(axis=1).astype(float),
        "pairs": (counts == 2).sum(axis=1).astype(float),
        "full columns": (counts == Z.shape[1]).sum(axis=1).astype(float),
        "largest column": counts.max(axis=1, initial=0.0),
        "first row": dense[:, 0].sum(axis=1),
        "last row": dense[:, -1].sum(axis=1),
        "shared(0,1)": shared[:, 0, 1] if Z.shape[1] > 1 else shared[:, 0, 0],
        "shared(0,1)^2": (shared[:, 0, 1] if Z.shape[1] > 1 else shared[:, 0, 0]) ** 2,
        "counts^2": (counts**2).sum(axis=1),
        "fit": np.log1p(np.maximum(explained, 0.0)),
        "fit x K": np.log1p(np.maximum(explained, 0.0)) * used,
        "row 0 fit": np.einsum("rm,rm->r", shared[:, 0], np.tanh(inner[:, 0])),
        "row 0 x |x|": dense[:, 0].sum(axis=1) * np.tanh(inner[:, 0, 0]),
        "X": np.tanh(X).mean(axis=(1, 2)),
        "X^2": np.tanh(X**2).mean(axis=(1, 2)),
    }


def simulate_replicates(prior: Any, n_rows: int, n_replicates: int, capacity: int, rng: np.random.Generator) -> Array:
    """n_replicates draws of Z from any predictive prior, row by row from its own tables; (R, N, capacity) uint8."""
    Z = np.zeros((n_replicates, n_rows, capacity), dtype=np.uint8)
    n_fixed = getattr(prior, "n_features", None)
    used = np.full(n_replicates, 0 if n_fixed is None else n_fixed)
    column = np.arange(capacity)
    for n in range(n_rows):
        odds = prior.log_odds(n + 1)
        counts = Z[:, :n].sum(axis=1, dtype=np.int64)
        chance = 1.0 / (1.0 + np.exp(-odds[counts]))
        born = rng.poisson(prior.new_rate(n + 1), size=n_replicates)
        taken = (rng.random((n_replicates, capacity)) < chance) & (column < used[:, None])
        fresh = (column >= used[:, None]) & (column < (used + born)[:, None])
        Z[:, n] = taken | fresh
        used = used + born
        if used.max() > capacity:
            raise InvalidParameterError(
                f"capacity must exceed the features of every replicate. Got {capacity}; double it."
            )
    return Z


def geweke_sweeps(
    prior: Any,
    observation: Any,
    rng: np.random.Generator,
    *,
    n_rows: int = 4,
    n_dims: int = 2,
    n_replicates: int = 1_000_000,
    capacity: int = 32,
    missing: Array | None = None,
    group: int = 1,
    sweep: Callable[..., int] = sweep_replicates,
) -> GewekeResult:
    """The sweep over rows alone, hyperparameters fixed, in compiled code: a million replicates in seconds.

    `observation` has one noise level, no offset. `missing` marks the cells (n_rows, n_dims) that the sweep must draw.
    For a model with weights, `sweep` takes the law of a weight in place of `group`.
    """
    missing = np.zeros((n_rows, n_dims), dtype=bool) if missing is None else np.asarray(missing, dtype=bool)
    start = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64)
    dims = np.nonzero(missing)[1].astype(np.int64)
    before: list[dict[str, Array]] = []
    after: list[dict[str, Array]] = []
    left = n_replicates
    while left > 0:
        size = min(left, 50_000)
        left -= size
        Z = simulate_replicates(prior, n_rows, size, capacity, rng)
        K = _columns_in_use(Z, prior)
        codes = observation.draw_codes(rng, Z)
        A = np.sqrt(observation.feature_var) * rng.standard_normal((size, capacity, n_dims))
        X = codes @ A + np.sqrt(observation.noise_var) * rng.standard_normal((size, n_rows, n_dims))
        before.append(_code_statistics(codes, X))
        noise, feature = float(observation.noise_var), float(observation.feature_var)
        how = getattr(observation, "law", (group,))
        tables = prior.log_odds(n_rows), prior.new_rate(n_rows)
        full = sweep(X, start, dims, codes, K, *tables, noise, feature, *how, rng)
        if full:
            raise InvalidParameterError(f"capacity = {capacity} was too small for {full} replicates. Double it.")
        after.append(_code_statistics(codes, X))
    return _result(_joined(before), _joined(after))


def _code_statistics(codes: Array, X: Array) -> dict[str, Array]:
    """Of the bits, and of the weights where there are any."""
    statistics = matrix_statistics((codes != 0).astype(np.uint8), X)
    if codes.dtype.kind == "f":
        power = np.tanh(codes**2).sum(axis=(1, 2))
        explained = np.einsum("rnk,rmk,rnd,rmd->r", codes, codes, np.tanh(X), np.tanh(X), optimize=True)
        statistics |= {"w^2": power, "w^2 x K": power * statistics["K"], "w fit": np.arctan(explained)}
    return statistics


def _columns_in_use(Z: Array, prior: Any) -> Array:
    n_fixed = getattr(prior, "n_features", None)
    if n_fixed is not None:
        return np.full(len(Z), n_fixed, dtype=np.int64)
    return Z.any(axis=1).sum(axis=1).astype(np.int64)


def _joined(parts: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def geweke(
    model: Model,
    inference: Any,
    rng: np.random.Generator,
    *,
    n_rows: int = 4,
    n_dims: int = 2,
    n_replicates: int = 10_000,
    missing: Array | None = None,
    more: Quantities | None = None,
) -> GewekeResult:
    """The whole step, learned hyperparameters included, for any model and sampler.

    Priors must be absolute (not relative to the data, which changes from one replicate to the next). `more` gives
    further statistics of a state, with finite variance.
    """
    model = calibrate(model, np.zeros((1, n_dims)))
    before: list[dict[str, Array]] = []
    after: list[dict[str, Array]] = []
    left = n_replicates
    while left > 0:
        size = min(left, 2_000)
        left -= size
        pairs = [_one_step(model, inference, rng, n_rows, n_dims, missing) for _ in range(size)]
        before.append(_state_statistics(model, [pair[0] for pair in pairs], more))
        after.append(_state_statistics(model, [pair[1] for pair in pairs], more))
    return _result(_joined(before), _joined(after))


Snapshot = tuple[Any, Array]  # a state and the complete X, with a row for each row of Z


def _one_step(
    model: Model, inference: Any, rng: np.random.Generator, n_rows: int, n_dims: int, missing: Array | None
) -> tuple[Snapshot, Snapshot]:
    state, data, _ = draw_joint(model, inference, rng, n_rows, n_dims, missing)
    moved, _ = inference.step(rng, state, model, data)
    before, after = ((one, _completed(one, data)) for one in (state, moved))
    return before, after


def _completed(state: Any, data: Any) -> Array:
    observation: Observation = state.observation
    return observation.by_owner(observation.engine(ChainRows).completed(data, state.local))


def draw_joint(
    model: Model, inference: Any, rng: np.random.Generator, n_rows: int, n_dims: int, missing: Array | None = None
) -> tuple[Any, Any, Array]:
    """(state, data, complete X) from the model: the state is an exact posterior draw given its own data."""
    prior = model.prior.draw(rng)
    observation = model.observation.draw(rng, n_dims)
    n_owners, n_values = (n_rows, n_dims) if observation.owners == "rows" else (n_dims, n_rows)
    Z = prior.simulate(rng, n_owners)
    if observation.has(AuxiliaryRows):  # it keeps more than its codes, which X and codes do not determine
        X, local = observation.engine(AuxiliaryRows).simulate_local(rng, Z, n_values, missing)
        data = observation.engine(ChainRows).prepare(X if missing is None else np.where(missing, np.nan, X))
        state = inference.at(prior, observation, data, observation.engine(ChainRows).codes(local), X)
        return state._replace(local=local), data, X
    codes = observation.draw_codes(rng, Z)
    X = observation.simulate(rng, Z, n_dims=n_values, codes=codes)
    data = observation.engine(ChainRows).prepare(X if missing is None else np.where(missing, np.nan, X))
    return inference.at(prior, observation, data, codes, X), data, X


def _state_statistics(model: Model, snapshots: list[Snapshot], more: Quantities | None) -> dict[str, Array]:
    """Of codes and X, of each learned hyperparameter, and of both together."""
    codes_of = [state.observation.engine(ChainRows).codes(state.local) for state, _ in snapshots]
    widest = max(1, *(codes.shape[1] for codes in codes_of))
    padded = np.zeros((len(snapshots), len(snapshots[0][1]), widest), dtype=codes_of[0].dtype)
    for i, codes in enumerate(codes_of):
        padded[i, :, : codes.shape[1]] = codes
    statistics = _code_statistics(padded, np.array([X for _, X in snapshots]))
    for part in ("prior", "observation"):
        for name in getattr(model, part).learned:
            values = np.array([np.ravel(getattr(getattr(state, part), name)) for state, _ in snapshots], dtype=float)
            bounded = np.arctan(values) if name == "offset" else np.log(values)  # finite variance whatever the prior
            mean = bounded.mean(axis=1)
            statistics[name] = mean
            statistics[f"{name}^2"] = (bounded**2).mean(axis=1)
            for other in ("K", "fit", "X^2"):
                statistics[f"{name} x {other}"] = mean * statistics[other]
    if more is not None:
        found = [more(state) for state, _ in snapshots]
        for name in found[0]:
            values = np.array([one[name] for one in found])
            statistics[name] = values
            for other in ("K", "fit", "X^2"):
                statistics[f"{name} x {other}"] = values * statistics[other]
    return statistics
