"""Simulation-based calibration (Talts et al. 2018): the rank of a true value among its posterior draws is uniform.

Ranks of parameters alone cannot see a sampler that ignores a part of the data: its draws are right given the rest.
Ranks of quantities that depend on the data too can (Modrak et al. 2023), so both are taken.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc

from thali.core.binary import n_non_empty
from thali.core.model import Model
from thali.core.protocols.engines.chains import AuxiliaryRows, ChainRows, MarginalRows
from thali.core.protocols.engines.predictions import Predictions
from thali.inference.calibration.noise_floor import calibrate
from thali.testing.geweke import Quantities, draw_joint

Array = np.ndarray


class SBCResult(NamedTuple):
    """Ranks (n_replicates,) of each quantity among n_draws draws, and the chi-square p-value of their uniformity."""

    ranks: dict[str, Array]
    p_values: dict[str, float]
    n_draws: int

    def passed(self, false_alarm: float = 1e-4) -> bool:
        return min(self.p_values.values()) >= false_alarm / len(self.p_values)


def quantities(state: Any, model: Model, data: Any, X: Array) -> dict[str, float]:
    """What is ranked: functions of a state, and of a state and the data X (NaN where cells are missing) together.

    Of the first kind: K, the number of ones, bits and features of the first rows, and every learned hyperparameter (its
    first entry if there are many). Of the second: the log likelihood of all data, and the first cell as the codes of
    its row rebuild it.
    """
    z, observation = state.local.z, state.observation
    values = {
        "K": float(n_non_empty(z)),
        "ones": float(z.sum()),
        "bits of row 0": float(z[0].sum()),
        "shared(0, 1)": float(z[0].astype(float) @ z[1]),
        "log likelihood": _log_likelihood(observation, state.local, data, X),
    }
    book = observation.engine(ChainRows).codebook(data, state.local)
    codes = observation.engine(Predictions).codes(z[:, z.any(axis=0)], book)
    values["cell (0, 0)"] = float(observation.reconstruct(codes[:1], book.features)[0, 0])
    for part in ("prior", "observation"):
        for name in getattr(model, part).learned:
            values[name] = float(np.ravel(getattr(getattr(state, part), name))[0])
    return values


def _log_likelihood(observation: Any, local: Any, data: Any, X: Array) -> float:
    """log p(X | codes), from X itself, so that a sampler which loses a part of it on the way is seen.

    A model that keeps more than codes is asked for the likelihood of all that it keeps.
    """
    if observation.has(AuxiliaryRows):
        return float(observation.engine(ChainRows).log_evidence(data, local))
    return float(observation.engine(MarginalRows).log_marginal(X, observation.engine(ChainRows).codes(local)))


def sbc(
    model: Model,
    inference: Any,
    rng: np.random.Generator,
    *,
    n_rows: int = 6,
    n_dims: int = 2,
    n_replicates: int = 500,
    n_draws: int = 31,
    n_warmup: int = 100,
    thin: int = 5,
    n_bins: int = 8,
    missing: Array | None = None,
    more: Quantities | None = None,
) -> SBCResult:
    """Draw truth and data from the model, sample the posterior from the sampler's own start, rank the truth.

    Ties (K, ones) are broken at random, which keeps the rank uniform. (n_draws + 1) must be a multiple of n_bins.
    `missing` marks cells (n_rows, n_dims) that the sampler does not see; `more` gives further quantities of a state.
    """
    model = calibrate(model, np.zeros((1, n_dims)))
    ranks: dict[str, list[int]] = {}
    for _ in range(n_replicates):
        truth, data, X = draw_joint(model, inference, rng, n_rows, n_dims, missing)
        X = X if missing is None else np.where(missing, np.nan, X)
        true_values = quantities(truth, model, data, X) | ({} if more is None else more(truth))
        state = inference.init(rng, model, data, len(truth.local.z))
        for _ in range(n_warmup):
            state, _ = inference.step(rng, state, model, data)
        draws = []
        for _ in range(n_draws):
            for _ in range(thin):
                state, _ = inference.step(rng, state, model, data)
            draws.append(quantities(state, model, data, X) | ({} if more is None else more(state)))
        for name, true in true_values.items():
            values = np.array([draw[name] for draw in draws])
            ties = int((values == true).sum())
            ranks.setdefault(name, []).append(int((values < true).sum()) + int(rng.integers(ties + 1)))
    arrays = {name: np.array(values) for name, values in ranks.items()}
    return SBCResult(arrays, {name: uniformity(r, n_draws, n_bins) for name, r in arrays.items()}, n_draws)


def uniformity(ranks: Array, n_draws: int, n_bins: int) -> float:
    """Chi-square p-value of ranks in 0, ..., n_draws being uniform."""
    counts = np.bincount(ranks * n_bins // (n_draws + 1), minlength=n_bins)
    expected = len(ranks) / n_bins
    return float(chdtrc(n_bins - 1, np.sum((counts - expected) ** 2) / expected))
