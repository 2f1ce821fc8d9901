"""Models with weights, priors and a step-by-step fit for the tests of their mean field."""

import numpy as np

from thali import ICA, BetaBernoulli, BetaProcess, FactorAnalysis, StickBreakingIBP
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows

KINDS = {"normal": FactorAnalysis, "laplace": ICA}
FAMILIES = {
    "joint": Family(),
    "independent": Family(codes="independent"),
    "features too": Family(features="independent", codes="independent"),
    "hard": Family(bits="hard"),
    "hard, independent": Family(bits="hard", codes="independent"),
}
PRIORS = {
    "finite": BetaBernoulli(mass=1.2, n_features=2),
    "sticks": StickBreakingIBP(mass=1.2, truncation=2),
    "beta process": BetaProcess(mass=1.2, concentration=2.0, truncation=2, rounds=3),
}


class Fit:
    """Coordinate ascent, one block at a time; `bounds` has the bound after each."""

    def __init__(self, prior, model, X, family, codes):
        self.prior, self.model, self.family = prior, model, family
        self.data, self.n_rows = model.engine(MeanFieldRows).row_data(X), len(X)
        self.q = model.engine(MeanFieldRows).init_features(self.data, codes.shape[1], family)
        self.weights = prior.init_weights(len(X))
        self.local = model.engine(MeanFieldRows).init_rows(self.data, codes)
        self.bounds = []
        self.rows(0)
        self.features()
        self.bounds = [self.bound()]

    def bound(self):
        counts = self.statistics.counts
        return self.prior.weights_bound(self.weights, counts, self.n_rows) + self.model.engine(
            MeanFieldRows
        ).features_bound(self.q, self.statistics)

    def rows(self, n_passes=1):
        odds = self.prior.expected_log_odds(self.weights)
        self.local, self.statistics = self.model.engine(MeanFieldRows).update_rows(
            self.data, self.q, self.local, odds, n_passes
        )

    def features(self):
        self.q = self.model.engine(MeanFieldRows).update_features(self.q, self.statistics)

    def step(self):
        self.rows()
        self.bounds.append(self.bound())
        self.features()
        self.bounds.append(self.bound())
        self.weights = self.prior.update_weights(self.weights, self.statistics.counts, self.n_rows)
        self.bounds.append(self.bound())

    def run(self, n_steps):
        for _ in range(n_steps):
            self.step()
        return self


def some_data(kind, n_rows=30, n_dims=5, K=2, missing=0.0, seed=1, noise=0.5):
    rng = np.random.default_rng(seed)
    Z = rng.random((n_rows, K)) < 0.5
    codes = Z * KINDS[kind]().draw_weights(rng, Z.shape)
    X = codes @ (1.5 * rng.standard_normal((K, n_dims))) + noise * rng.standard_normal((n_rows, n_dims)) + 1.0
    holes = rng.random(X.shape) < missing
    holes[:, 0] = False
    holes[0] = False
    return np.where(holes, np.nan, X), codes
