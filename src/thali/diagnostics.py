"""Convergence, judged on label-invariant summaries of several chains (R-hat and ESS by arviz-stats)."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

R_HAT_LIMIT = 1.05
ESS_LIMIT = 100.0


class Diagnosis(NamedTuple):
    """R-hat and effective sample size of one summary."""

    r_hat: float
    ess: float

    @property
    def good(self) -> bool:
        return self.r_hat <= R_HAT_LIMIT and self.ess >= ESS_LIMIT


def diagnose(draws: Mapping[str, np.ndarray]) -> dict[str, Diagnosis]:
    """Of each (chain, draw) array. A summary that never varies has converged if all chains agree on it."""
    from arviz_stats.base import array_stats

    result = {}
    for name, values in draws.items():
        values = np.asarray(values, dtype=float)
        if np.ptp(values) == 0:
            result[name] = Diagnosis(1.0, float(values.size))
        elif (np.ptp(values, axis=1) == 0).all():
            result[name] = Diagnosis(np.inf, 1.0)  # every chain is constant, and they differ
        elif values.shape[1] < 4:
            result[name] = Diagnosis(np.nan, np.nan)
        else:
            if len(values) == 1:  # one chain is judged by its two halves
                values = values[:, : values.size // 2 * 2].reshape(2, -1)
            with np.errstate(divide="ignore", invalid="ignore"):  # half a chain may be constant
                ess = float(array_stats.ess(values, chain_axis=0, draw_axis=1, method="bulk"))
                r_hat = float(array_stats.rhat(values, chain_axis=0, draw_axis=1, method="rank"))
            result[name] = Diagnosis(r_hat, ess)
    return result


def verdict(diagnoses: Mapping[str, Diagnosis]) -> str:
    """In words: what is wrong, and what to do."""
    bad = {name: d for name, d in diagnoses.items() if not d.good}
    if not bad:
        worst = max(d.r_hat for d in diagnoses.values())
        least = min(d.ess for d in diagnoses.values())
        return (
            f"converged (R-hat at most {worst:.2f} on {len(diagnoses)} label-free summaries, ESS at least {least:.0f})"
        )
    listed = ", ".join(f"{name} (R-hat {d.r_hat:.2f}, ESS {d.ess:.0f})" for name, d in bad.items())
    remedy = "draw more (n_warmup, n_draws)"
    if "n_features" in bad and bad["n_features"].r_hat > R_HAT_LIMIT:
        remedy += "; the chains disagree on the number of features, so look at k_posterior_ chain by chain"
    return f"not converged: {listed}. What to do: {remedy}."
