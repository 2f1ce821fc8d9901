"""how_many: the number of features, how sure it is, and why, in one call.

The file does not have the function's name: imported as a module, it would hide `thali.how_many`.
"""

from typing import Any, NamedTuple

import numpy as np

from thali.estimator import LatentFeatures


class HowMany(NamedTuple):
    """The number of features that persist, and the posterior of the number in use at a time."""

    k: int
    interval: tuple[int, int]  # central 90 % of the number in use
    probabilities: dict[int, float]
    reason: str


def how_many(X: Any, **settings: Any) -> HowMany:
    """Fit `LatentFeatures(**settings)` to X and count its features."""
    model = LatentFeatures(**settings).fit(X)
    return HowMany(model.n_components_, model.posterior_.k_interval, model.k_posterior_, reason(model))


def reason(model: LatentFeatures) -> str:
    """4 features persist and 0.8 more come and go on average; all 4 chains agree (R-hat and ESS are good)."""
    others = max(0.0, model.posterior_.k_mean - float(model.stability_.sum()))
    persist = "1 feature persists" if model.n_components_ == 1 else f"{model.n_components_} features persist"
    floor = getattr(model.posterior_.model.observation, "noise_floor", 0.0)
    at = f" at noise floor {np.mean(floor):g}" if np.any(np.asarray(floor) > 0) else ""
    return f"{persist}{at} and {others:.1f} more come and go on average; {model.check()}"
