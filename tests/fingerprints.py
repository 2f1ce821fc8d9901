"""Fingerprints of small fits and of all that they say: a change that should change nothing leaves them as they are.

    python tests/fingerprints.py        writes tests/golden/fingerprints.json anew, for a change that is meant

Bits hang on the processor and on the libraries that compute, so hashes are compared only where these are the ones with
which the file was written.
"""

import hashlib
import json
import platform
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numba import __version__ as numba_version
from scipy.sparse import csr_array, issparse

from thali import (
    IBP,
    ICA,
    BetaBernoulli,
    BetaProcess,
    BPMeans,
    CollapsedGibbs,
    FactorAnalysis,
    Gamma,
    Gibbs,
    LatentFeatures,
    LinearGaussian,
    MeanField,
    NormalOffset,
    ParticleFilter,
    PerDim,
    PoissonGamma,
    SliceSampler,
    StickBreakingIBP,
    StochasticMeanField,
)
from thali.core.model import compatible
from thali.errors import ThaliError

GOLDEN = Path(__file__).parent / "golden" / "fingerprints.json"

SHORT: dict[str, Any] = {"n_warmup": 3, "n_draws": 4, "thin": 2}
PRIORS = {
    "IBP": IBP(),
    "three parameters": IBP(mass=Gamma(2, 1), concentration=1.5, discount=0.2),
    "finite": BetaBernoulli(n_features=3),
    "rounds": BetaProcess(concentration=2.0, rounds=2),
    "beta process": BetaProcess(),
    "sticks": StickBreakingIBP(truncation=4),
}
OBSERVATIONS = {
    "binary": LinearGaussian(),
    "binary, per dim": LinearGaussian(noise_var=PerDim(), offset=NormalOffset(), noise_floor=0.05),
    "factors": FactorAnalysis(noise_floor=0.1),
    "factors, floor": FactorAnalysis(),
    "ARD": FactorAnalysis(noise_floor=0.1, ard=2.0),
    "independent": ICA(noise_floor=0.1),
    "counts": PoissonGamma(),
    "counts, leak": PoissonGamma(leak=0.05),
}
INFERENCES = {
    "collapsed": CollapsedGibbs(**SHORT, moves=0.5),
    "collapsed, alone": CollapsedGibbs(**SHORT, start="empty", group=1, moves=0.0),
    "Gibbs": Gibbs(**SHORT, moves=0.5),
    "importance": Gibbs(**SHORT, start="empty", births="importance", candidates=3),
    "slice": SliceSampler(**SHORT),
    "mean field": MeanField(max_iter=6, n_restarts=2),
    "hard": MeanField(max_iter=6, n_restarts=1, bits="hard"),
    "independent features": MeanField(max_iter=6, n_restarts=1, features="independent"),
    "independent codes": MeanField(max_iter=6, n_restarts=1, codes="independent", gradual=True),
    "single": MeanField(max_iter=6, n_restarts=1, precision="single", start="random", annealing=4.0),
    "blocks": StochasticMeanField(n_epochs=2, batch_size=6, n_restarts=1),
    "decaying": StochasticMeanField(n_epochs=2, batch_size=6, n_restarts=1, method="robbins-monro"),
    "point": BPMeans(max_iter=5, n_restarts=2),
    "particles": ParticleFilter(n_particles=4),
}
QUICK = {"prior": {"IBP"}, "observation": {"binary", "factors, floor", "counts"}}

Case = tuple[str, str, str, str]  # prior, observation, inference, data


def cases() -> list[Case]:
    """Names of all that fit together, on data with missing cells; with one prior, on other data, too."""
    found = []
    for prior, one in PRIORS.items():
        for observation, other in OBSERVATIONS.items():
            for inference, third in INFERENCES.items():
                if compatible([one], [other], [third]):
                    found.append((prior, observation, inference, "missing"))
                    if prior == "IBP":
                        found += [(prior, observation, inference, kind) for kind in _others(observation, inference)]
    return found


def _others(observation: str, inference: str) -> list[str]:
    kinds = ["complete"]
    if observation.startswith("counts"):
        kinds += ["sparse"]
    elif inference in ("collapsed", "Gibbs", "mean field", "blocks", "point"):
        kinds += ["wide"]
    if observation.startswith("binary") and inference == "Gibbs":
        kinds += ["many"]
    return kinds


def is_quick(case: Case) -> bool:
    return case[0] in QUICK["prior"] and case[1] in QUICK["observation"] and case[3] == "missing"


def data(observation: str, inference: str, kind: str) -> Any:
    """14 x 4 with two cells missing, or another kind of data."""
    n_rows, n_dims, n_features = {"wide": (50, 16, 10), "many": (1100, 4, 2)}.get(kind, (14, 4, 2))
    rng = np.random.default_rng(2)
    Z = rng.integers(2, size=(n_rows, n_features))
    if observation.startswith("counts"):
        X = rng.poisson(Z @ rng.gamma(1.0, 5.0, (n_features, n_dims))).astype(float)
    else:
        X = Z @ (3 * rng.standard_normal((n_features, n_dims))) + 0.5 * rng.standard_normal((n_rows, n_dims))
    if kind == "sparse":
        return csr_array(X)
    if kind in ("missing", "many"):
        X[2, 1] = X[5, 3] = np.nan
    return np.nan_to_num(X) if inference == "point" and kind == "missing" else X


# ---- what is compared


def fingerprints(case: Case) -> list[str]:
    """Hashes of all that the fit of a case holds and says, in order; the class of an error instead."""
    prior, observation, inference, kind = case
    X = data(observation, inference, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LatentFeatures(
            OBSERVATIONS[observation],
            PRIORS[prior],
            INFERENCES[inference],
            n_chains=2,
            n_jobs=1,
            random_state=5,
            verbose=False,
        )
        try:
            model.fit(X)
        except ThaliError as error:
            return [type(error).__name__]
        found = [fingerprint(value) for value in held(model).values()]
        for say in said(model, X).values():
            try:
                found.append(fingerprint(say()))
            except ThaliError as error:
                found.append(type(error).__name__)
    return found


def held(model: LatentFeatures) -> dict[str, Any]:
    posterior = model.posterior_
    return {
        "draws": posterior.draws,
        "hyper": getattr(posterior, "hyper", None),
        "history": model.history_,
        "components": model.components_,
        "presence": posterior.consensus.presence,
        "k": model.k_posterior_,
        "stability": model.stability_,
    }


def said(model: LatentFeatures, X: Any) -> dict[str, Any]:
    X = X[:60]  # some, if there are many
    whole = X.toarray() if issparse(X) else X
    new = whole[::-1] + (1.0 if isinstance(model.observation, PoissonGamma) else 0.25)
    mask = np.zeros(X.shape, dtype=bool)
    mask[1, 0] = mask[6, 2] = True
    return {
        "transform of fitted rows": lambda: model.transform(X),
        "transform": lambda: model.transform(new),
        "presence of new rows": lambda: model.presence(new),
        "inverse_transform": lambda: model.inverse_transform(model.transform(new)),
        "impute": lambda: model.impute(whole, interval=0.8),
        "impute new rows": lambda: model.impute(new, interval=0.8),
        "heldout_score by cell": lambda: model.heldout_score(whole, mask, by="cell"),
        "heldout_score by row": lambda: model.heldout_score(whole, mask, by="row"),
        "novelty": lambda: model.novelty(new),
        "score_samples": lambda: model.score_samples(new),
        "sample": lambda: model.sample(5, random_state=1),
        "check": lambda: model.check(),
    }


def fingerprint(value: Any) -> str:
    digest = hashlib.sha256()
    for part in _arrays(value):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:10]


def _arrays(value: Any) -> Any:
    """All arrays within, in an order that does not change."""
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield np.array(str(key))
            yield from _arrays(value[key])
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _arrays(one)
    elif issparse(value):
        yield value.toarray()
    elif value is not None:
        array = np.asarray(value)
        yield from (_arrays(list(array)) if array.dtype == object else [array])


def machine() -> str:
    """What bits depend on: the processor and the libraries that compute."""
    info = Path("/proc/cpuinfo")
    flags = [line for line in info.read_text().splitlines() if line.startswith("flags")][:1] if info.exists() else []
    parts = [platform.machine(), *flags, np.__version__, scipy.__version__, numba_version, sys.version.split()[0]]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


if __name__ == "__main__":
    table = {}
    for case in cases():
        begin = time.monotonic()
        table["; ".join(case)] = fingerprints(case)
        print(f"{time.monotonic() - begin:6.2f} s  {'; '.join(case)}", file=sys.stderr, flush=True)
    fits = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in table.items())
    GOLDEN.write_text(f'{{"machine": "{machine()}", "fits": {{\n{fits}\n}}}}\n')
