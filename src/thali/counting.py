"""how_many: the number of features, how sure it is, and why, in one call.

The file does not have the function's name: imported as a module, it would hide `thali.how_many`.
"""

from typing import Any, NamedTuple

from thali.estimator import LatentFeatures


class HowMany(NamedTuple):
    """The number of features in use: what to report, how sure that is, and why."""

    k: int  # within `interval`, the number nearest to that of the features that persist
    interval: tuple[int, int]  # central 90 % of `probabilities`
    probabilities: dict[int, float]  # of the number in use, {K: probability}
    reason: str  # with the number that persists, which `components_` shows


def how_many(X: Any, **settings: Any) -> HowMany:
    """Fit `LatentFeatures(**settings)` to X and count its features."""
    return count(LatentFeatures(**settings).fit(X))


def count(model: LatentFeatures) -> HowMany:
    """What a fit says about the number of features."""
    posterior = model.posterior_
    return HowMany(posterior.k, posterior.k_interval, model.k_posterior_, reason(model))


def reason(model: LatentFeatures) -> str:
    """4 features persist and 0.8 more come and go on average; all 4 chains agree (R-hat and ESS are good)."""
    posterior = model.posterior_
    others = max(0.0, posterior.k_mean - float(model.stability_.sum()))
    persist = "1 feature persists" if model.n_components_ == 1 else f"{model.n_components_} features persist"
    floor = posterior.model.observation.floor_share
    at = f" at noise floor {floor:g}" if floor else ""
    return f"{persist}{at} and {others:.1f} more come and go on average{_beyond(model)}; {model.check()}"


def _beyond(model: LatentFeatures) -> str:
    """Why the number to report is not that of the features that persist."""
    k = model.posterior_.k
    if k == model.n_components_:
        return ""
    bound = "at least" if k > model.n_components_ else "at most"
    return f", so that {bound} {k} {'is' if k == 1 else 'are'} in use with a probability of 95 % or more"
