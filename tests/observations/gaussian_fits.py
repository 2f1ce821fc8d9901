"""Models, priors and a step-by-step fit for the tests of mean field with Gaussian data."""

import numpy as np
from scipy.special import expit

from thali import BetaBernoulli, LinearGaussian, StickBreakingIBP
from thali.core.distributions import Gamma, LogNormal, NormalOffset, PerDim
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows
from thali.priors.beta_process.prior import BetaProcess

PAPER = Family(features="independent")


def wave(n_rows, n_dims):
    n, d = np.arange(1, n_rows + 1)[:, None], np.arange(1, n_dims + 1)
    return np.sin(n * d) + 0.7 * np.cos(0.3 * n + d)


def nu0(n_rows, K):
    return expit(np.sin(1.7 * np.arange(n_rows)[:, None] + 2.3 * np.arange(K) + 0.5))


X4 = wave(4, 3)
FIXED = LinearGaussian(noise_var=0.36, feature_var=1.21)
MODELS = {
    "as in the paper": FIXED,
    "noise per dim": LinearGaussian(noise_var=[0.3, 0.5, 0.2], feature_var=1.6),
    "offset": LinearGaussian(noise_var=0.36, feature_var=1.21, offset=[0.3, -0.2, 0.5]),
    "learned offset": LinearGaussian(noise_var=0.36, feature_var=1.21, offset=NormalOffset(spread=4.0)),
    "all learned": LinearGaussian(offset=NormalOffset(spread=4.0)),
    "all learned, floor": LinearGaussian(noise_floor=0.4, offset=NormalOffset(spread=4.0)),
    "all learned per dim": LinearGaussian(noise_var=PerDim(), offset=NormalOffset(spread=4.0), noise_floor=0.1),
    "other laws": LinearGaussian(noise_var=LogNormal(-1.0, 2.0), feature_var=Gamma(2.0, 1.0)),
}
PRIORS = {
    "finite": BetaBernoulli(mass=Gamma(1.0, 1.0), n_features=3),
    "sticks": StickBreakingIBP(mass=1.5, truncation=3),
    "beta process": BetaProcess(mass=1.5, concentration=2.0, truncation=3, rounds=4),
}

PAIRS = [("finite", False), ("finite", True), ("sticks", True), ("beta process", False)]


def with_holes(X, rng, share=0.2):
    holes = rng.random(X.shape) < share
    holes[np.arange(len(X)), rng.integers(X.shape[1], size=len(X))] = False
    holes[0, 0] = True
    return np.where(holes, np.nan, X)


class Fit:
    """Coordinate ascent, step by step."""

    def __init__(self, model, prior, X, K, family=None, seed=0, codes=None):
        rng = np.random.default_rng(seed)
        self.model, self.prior, self.n_rows = model.adapt(model.check_data(X)), prior, len(X)
        self.data = self.model.engine(MeanFieldRows).row_data(X)
        self.q = self.model.engine(MeanFieldRows).init_features(self.data, K, family or Family())
        self.local = self.model.engine(MeanFieldRows).init_rows(
            self.data, rng.random((len(X), K)) if codes is None else codes
        )
        self.weights = prior.init_weights(len(X))
        self.local, self.sums = self.model.engine(MeanFieldRows).update_rows(
            self.data, self.q, self.local, np.zeros(K), 0
        )

    def bound(self):
        return self.prior.weights_bound(self.weights, self.sums.counts, self.n_rows) + self.model.engine(
            MeanFieldRows
        ).features_bound(self.q, self.sums)

    def update_weights(self):
        self.weights = self.prior.update_weights(self.weights, self.sums.counts, self.n_rows)

    def update_features(self, learn=True):
        self.q = self.model.engine(MeanFieldRows).update_features(self.q, self.sums, learn=learn)

    def update_rows(self, n_passes=1):
        odds = self.prior.expected_log_odds(self.weights)
        self.local, self.sums = self.model.engine(MeanFieldRows).update_rows(
            self.data, self.q, self.local, odds, n_passes
        )

    def run(self, n_iter):
        """The bound after each of the updates."""
        bounds = []
        for _ in range(n_iter):
            for step in (self.update_weights, self.update_features, self.update_rows):
                step()
                bounds.append(self.bound())
        return np.array(bounds)


def rises(bounds):
    return bool((np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all())


def settled(name, holes, rng, prior="finite", family=None, n_iter=3):
    X = with_holes(wave(9, 3), rng) if holes else wave(9, 3)
    fit = Fit(MODELS[name], PRIORS[prior], X, 3, family)
    fit.run(n_iter)
    return fit
