"""What a fit found, in a few plain numbers: for a program as a dictionary, for a reader as lines."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from thali.estimator import LatentFeatures

_NOT_HYPERPARAMETERS = ("n_features", "n_on", "log_joint", "free_energy")
_WORDS = {"noise_var": "noise var", "mass": "mass", "feature_var": "feature var", "weight_rate": "weight rate"}


def summarise(model: "LatentFeatures") -> dict[str, Any]:
    """Numbers only, ready for JSON. A hyperparameter with a value per dim is averaged over the dims."""
    draws = model.posterior_.draws
    observation = model.posterior_.model.observation
    floor: Any = None if observation.floor_share is None else observation.noise_floor
    return {
        "k_posterior": {str(key): share for key, share in model.k_posterior_.items()},
        "n_features": model.posterior_.k,
        "n_features_interval_90": list(model.posterior_.k_interval),
        "n_persistent": model.n_components_,
        "n_features_by_chain": model.agreement_.n_features.tolist(),
        "noise_floor": floor if np.ndim(floor) == 0 else [float(share) for share in floor],
        "hyperparameters": {
            name: {"mean": float(np.mean(values)), "sd": float(np.std(values)) if np.ptp(values) > 0 else 0.0}
            for name, values in draws.items()
            if name not in _NOT_HYPERPARAMETERS
        },
        "converged": model.converged_,
        "diagnostics": {name: {"r_hat": d.r_hat, "ess": d.ess} for name, d in model.diagnostics_.items()},
        "n_chains": model.posterior_.n_chains,
        "n_draws": model.posterior_.n_draws,
    }


def found(summary: dict[str, Any]) -> str:
    """features: 6  (6-8 in use, 90 %; 6 persist)   noise var 0.24 +- 0.01   mass 1.3 +- 0.4"""
    k, n_persistent = summary["n_features"], summary["n_persistent"]
    low, high = summary["n_features_interval_90"]
    floor = summary["noise_floor"]
    at = f" at noise floor {floor:g}" if floor is not None and np.ndim(floor) == 0 and floor > 0 else ""
    persist = f"{n_persistent} persist{'s' if n_persistent == 1 else ''}"
    parts = [f"features: {k}{at}  ({low}-{high} in use, 90 %; {persist})"]
    parts += [
        f"{words} {plus_minus(**summary['hyperparameters'][name])}"
        for name, words in _WORDS.items()
        if name in summary["hyperparameters"]
    ]
    return "   ".join(parts)


def disagreement(summary: dict[str, Any]) -> str:
    """The number of features that persist in each chain."""
    return "features by chain: " + " ".join(map(str, summary["n_features_by_chain"]))


def plus_minus(mean: float, sd: float) -> str:
    """As many digits as the spread leaves certain: 0.243 +- 0.008, 1.3 +- 0.4, 1200 +- 30."""
    if not 0 < sd < np.inf:
        return f"{mean:.3g}"
    first = int(np.floor(np.log10(sd)))
    decimals = max(0, 1 - first if sd / 10**first < 2 else -first)
    return f"{mean:.{decimals}f} +- {sd:.{decimals}f}"
