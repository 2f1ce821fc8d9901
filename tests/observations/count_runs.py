"""Counts, and a step-by-step fit for the tests of their mean field."""

import numpy as np

from thali import PoissonGamma
from thali.core.protocols.engines.mean_field import Family, MeanFieldRows

FAMILIES = {
    "joint": Family(),
    "independent": Family(codes="independent"),
    "hard": Family(bits="hard"),
}
ON = 0.3  # P(z = 1)
LOG_ODDS = np.log(ON / (1 - ON))


class Run:
    """Coordinate ascent with a fixed probability of each bit."""

    def __init__(self, X, n_features, family, rng, **settings):
        model = PoissonGamma(**{"weight_rate": 0.4, "feature_shape": 0.5} | settings)
        self.X = X = model.check_data(X)
        self.model = model.adapt(X)
        self.data = self.model.engine(MeanFieldRows).row_data(X)
        self.q = self.model.engine(MeanFieldRows).init_features(self.data, n_features, family)
        self.local = self.model.engine(MeanFieldRows).init_rows(self.data, rng.random((len(self.data), n_features)))
        self.odds = np.full(n_features, LOG_ODDS)
        if family.bits == "hard":
            self.local = self.local._replace(z_prob=np.ones_like(self.local.z_prob))
        self.sums = self.rows(0)

    def rows(self, n_passes=1):
        self.local, self.sums = self.model.engine(MeanFieldRows).update_rows(
            self.data, self.q, self.local, self.odds, n_passes
        )
        return self.sums

    def features(self, learn=True):
        self.q = self.model.engine(MeanFieldRows).update_features(self.q, self.sums, learn=learn)

    def bound(self, q=None, local=None):
        """The whole bound, of other factors if given; the counts are shared anew only if the rows are others."""
        q = self.q if q is None else q
        sums = (
            self.sums
            if local is None
            else self.model.engine(MeanFieldRows).update_rows(self.data, q, local, self.odds, 0)[1]
        )
        n_bits = len(self.data) * len(sums.counts)
        bits = sums.counts.sum() * np.log(ON) + (n_bits - sums.counts.sum()) * np.log(1 - ON)
        return self.model.engine(MeanFieldRows).features_bound(q, sums) + bits

    def settle(self, n=200):
        for _ in range(n):
            self.rows()
            self.features()
        self.rows()
        return self


def some_counts(rng, n_rows=6, n_dims=4, missing=0.0):
    X = rng.poisson(rng.gamma(0.5, 4.0, (n_rows, n_dims))).astype(float)
    X[rng.random(X.shape) < missing] = np.nan
    return X
