"""What the quality benchmarks ask of chains: a start at the truth, counts of features, Monte Carlo errors."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from thali import CollapsedGibbs
from thali.core.model import Model

Array = np.ndarray


def lacks(settings: dict[str, Any]) -> list[str]:
    """The names among `settings` that CollapsedGibbs does not know."""
    known = {field.name for field in fields(CollapsedGibbs)}
    return sorted(set(settings) - known)


def at_truth(inference: Any, rng: np.random.Generator, model: Model, data: Any, truth: Any) -> Any:
    """The state of a sampler at what made the data, a QualitySet."""
    prior = model.prior.resample(rng, model.prior.draw(rng), truth.Z)
    n_dims = truth.X.shape[1]
    observation = model.observation.draw(rng, n_dims)
    feature_var = float(np.mean(truth.features**2))
    values = {"noise_var": truth.noise_var, "feature_var": feature_var}
    if observation.per_dim:  # then features are measured in units of the noise
        values = {"noise_var": np.full(n_dims, truth.noise_var), "feature_var": feature_var / truth.noise_var}
    if observation.offset is not None:
        values["offset"] = np.zeros(n_dims)
    return inference.at(prior, observation.replace(**values), data, truth.codes, truth.X)


@dataclass(frozen=True, eq=False)
class FromTruth(CollapsedGibbs):
    """The same sampler, started at what made the data; hyperparameters are learned from there."""

    truth: Any = None  # a QualitySet

    def init(
        self, rng: np.random.Generator, model: Model, data: Any, n_rows: int, tick: Callable[[], None] | None = None
    ) -> Any:
        return at_truth(self, rng, model, data, self.truth)


def n_common(Z: Array) -> int:
    """Features that at least 1 % of the rows have, and at least two rows."""
    return int((Z.sum(axis=0, dtype=np.int64) >= max(2.0, 0.01 * len(Z))).sum())


def common_counts(posterior: Any) -> Array:
    """`n_common` of every draw, (chain, draw)."""
    shape = posterior.n_chains, posterior.n_draws
    return np.array([n_common(posterior.Z(*divmod(i, shape[1]))) for i in range(shape[0] * shape[1])]).reshape(shape)


def most_frequent(values: Array) -> int:
    found, counts = np.unique(values, return_counts=True)
    return int(found[np.argmax(counts)])


def effective_size(values: Array) -> float | None:
    """Effective number of independent draws in a (chain, draw) array; None if it never varies or is too short."""
    from arviz_stats.base import array_stats

    values = np.asarray(values, dtype=float)
    if np.ptp(values) == 0 or values.shape[1] < 4:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):  # half a chain may be constant
        ess = float(array_stats.ess(values, chain_axis=0, draw_axis=1, method="mean"))
    return ess if np.isfinite(ess) else None


def mean_error(values: Array) -> float:
    """Monte Carlo standard error of the mean of one chain."""
    ess = effective_size(values[None, :])
    return 0.0 if ess is None else float(values.std(ddof=1) / np.sqrt(max(ess, 1.0)))


def disagreements(rows: list[dict[str, Any]], names: list[str], limit: float = 4.0) -> list[list[str]]:
    """Means that are more than `limit` errors away from those of the variant of the same set with the most effective
    samples, as cells of a table."""
    found = []
    for row in rows:
        for name in names:
            others = [r for r in rows if r["set"] == row["set"] and r[name]["ess"] is not None]
            if not others:
                continue
            best = max(others, key=lambda r: r[name]["ess"])
            error = np.hypot(row[name]["error"], best[name]["error"])
            apart = abs(row[name]["mean"] - best[name]["mean"]) / error if error > 0 else 0.0
            if apart > limit:
                ess = row[name]["ess"]
                found.append([
                    f"{row['set']} / {row['variant']}", name, f"{row[name]['mean']:.5g}", best["variant"],
                    f"{best[name]['mean']:.5g}", f"{apart:.1f}", "still" if ess is None else f"{ess:.0f}",
                ])  # fmt: skip
    return found
