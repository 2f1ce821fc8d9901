"""Small fits that are stopped and go on: models, data, and what is in their files."""

import numpy as np

from thali import IBP, BetaBernoulli, CollapsedGibbs, LatentFeatures, LinearGaussian
from thali.core.distributions import Beta, Gamma, NormalOffset, PerDim

SHORT = CollapsedGibbs(n_warmup=6, n_draws=8, thin=2, start="spectral")  # 22 steps
N_STEPS = 22
MIXED = LinearGaussian(noise_var=PerDim(), offset=NormalOffset(), noise_floor=0.1)
FIXED = LinearGaussian(noise_var=np.linspace(0.2, 0.8, 5), feature_var=4.0, offset=np.full(5, 1 / 3))

CASES = {
    "complete": (None, None, 0.0),
    "missing": (None, None, 0.1),
    "per dim, offset, floor": (None, MIXED, 0.0),
    "per dim, offset, floor, missing": (None, MIXED, 0.1),
    "fixed offset, missing": (None, FIXED, 0.1),
    "finite": (BetaBernoulli(n_features=4), None, 0.0),
    "finite, missing": (BetaBernoulli(n_features=4), None, 0.1),
    "all learned": (IBP(mass=Gamma(2, 1), concentration=Gamma(1, 1), discount=Beta(1, 3)), None, 0.0),
}


def data(share=0.0, n_rows=40):
    rng = np.random.default_rng(7)
    X = rng.integers(2, size=(n_rows, 3)) @ (3 * rng.standard_normal((3, 5))) + 0.5 * rng.standard_normal((n_rows, 5))
    X[rng.random(X.shape) < share] = np.nan
    X[:, 0] = np.where(np.isnan(X).all(axis=1), 0.0, X[:, 0])
    return X


def estimator(case="complete", **settings):
    prior, observation, _ = CASES[case]
    return LatentFeatures(observation, prior, **{"inference": SHORT, "n_chains": 2, "random_state": 3} | settings)


def content(m, tmp_path):
    path = tmp_path / "content.thali"
    m.set_params(n_jobs=None, max_time=None).save(path)
    return path.read_bytes()


class Crash(BaseException):
    """The end of the world."""
