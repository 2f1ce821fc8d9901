"""The exact marginal of counts by all ways to allocate them, and data with their allocation: for tests."""

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln, xlogy

from thali.core.observation import Engine
from thali.errors import InvalidDataError
from thali.observations.poisson.data import CountData
from thali.observations.poisson.rows import CountRows, log_codes

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.poisson_gamma import PoissonGamma

Array = np.ndarray
Generator = np.random.Generator

_TERMS = 2**22  # of an exact marginal


class PoissonMarginal(Engine):
    """MarginalRows and AuxiliaryRows of a Poisson-gamma model."""

    model: "PoissonGamma"

    def log_marginal(self, X: Array, codes: Array) -> float:
        """log p(X | codes), features integrated out, by all ways to allocate the counts: for tiny data only."""
        data = CountData.of(self.model.check_data(X))
        X, V = data.dense(), np.asarray(codes, dtype=float)
        most = int(np.nansum(X, axis=0).max(initial=0.0))
        if (most + 1.0) ** V.shape[1] > _TERMS:
            raise InvalidDataError(
                f"log_marginal sums over all allocations: too many for {most} counts a dim and {V.shape[1]} features."
            )
        a, b = self.model.feature_shape, self.model.features_rate(data.n_dims)
        powers = np.indices((most + 1,) * V.shape[1]).reshape(V.shape[1], (most + 1) ** V.shape[1])
        total = -data.log_factorials
        for x in X.T:
            seen = ~np.isnan(x)
            # eq: own.counts-marginal
            moments = gammaln(a + powers) - gammaln(a) - (a + powers) * np.log(b + V[seen].sum(axis=0))[:, None]
            with np.errstate(divide="ignore"):
                weights = np.log(_expanded(V[seen], x[seen], most)).ravel()
            total += float(np.logaddexp.reduce(weights + moments.sum(axis=0) + V.shape[1] * a * math.log(b)))
        return total

    def log_codes(self, codes: Array) -> float:
        return log_codes(self.model, codes)

    def simulate_local(
        self, rng: Generator, Z: Array, n_dims: int, missing: Array | None = None
    ) -> tuple[Array, CountRows]:
        """(X, local) from the model: parts of counts are Poisson, and X is their sum, zero at missing cells."""
        V, A = self.model.draw_codes(rng, Z), self.model.draw_features(rng, Z.shape[1], n_dims)
        parts = rng.poisson(V[:, :, None] * A)
        if missing is not None:
            parts = parts * ~missing[:, None]
        X = parts.sum(axis=1).astype(float)
        log_parts = float(np.sum(xlogy(parts, V[:, :, None]) - gammaln(parts + 1.0)))
        return X, CountRows(np.asarray(Z, dtype=np.uint8), V, parts.sum(axis=0).astype(float), log_parts)


def _expanded(V: Array, x: Array, most: int) -> Array:
    """Coefficients of prod_n (sum_k v_nk A_k)^x_n, an axis for the power of each A_k."""
    terms = np.zeros((most + 1,) * V.shape[1])
    terms[(0,) * V.shape[1]] = 1.0
    for v, count in zip(V, x.astype(int), strict=True):
        for _ in range(count):
            new = np.zeros_like(terms)
            for k, value in enumerate(v):
                new += value * np.roll(terms, 1, axis=k)  # the highest power is never left behind
            terms = new
    return terms
