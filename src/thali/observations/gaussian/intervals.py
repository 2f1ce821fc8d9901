"""What tests and tiny data ask of models whose cells are known by intervals: the marginal, and whole draws."""

import math
from functools import lru_cache

import numpy as np
from scipy.stats import multivariate_normal

from thali.core.observation import Engine
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.rows import BitRows, GaussianRows
from thali.rng import make_generator

Array = np.ndarray

_TOLERANCE = 1e-5  # of the probability of a box
_POINTS = 100_000  # at which it is looked at, at most


class IntervalMarginal(Engine):
    """MarginalRows and AuxiliaryRows of a model whose codes are bits, for data of a few rows."""

    model: GaussianModel

    def log_marginal(self, X: Array, codes: Array) -> float:
        """Of each dim, the density of its known cells times the probability of the intervals of the others."""
        model = self.model
        model.require_concrete("log_marginal")
        values, lower, upper = model.cells(model.check_data(X))
        V = model.check_codes(codes)
        noise, scale = model.units
        cov = noise * np.eye(len(V)) + model.feature_var * V @ V.T
        low = np.full(values.shape, -np.inf) if lower is None else lower
        high = np.full(values.shape, np.inf) if upper is None else upper
        total = 0.0
        for d in range(values.shape[1]):
            offset = 0.0 if model.offset is None else model.offset[d]
            unit = 1.0 if scale is None else scale[d]
            x, a, b = ((part[:, d] - offset) / unit for part in (values, low, high))
            has_bound = np.isfinite(a) | np.isfinite(b)
            is_known = ~np.isnan(x) & ~has_bound
            total += _log_column(x, a, b, cov, is_known, has_bound) - math.log(unit) * float(is_known.sum())
        return total

    def log_codes(self, codes: Array) -> float:
        return 0.0

    def simulate_local(
        self, rng: np.random.Generator, Z: Array, n_dims: int, missing: Array | None = None
    ) -> tuple[Array, GaussianRows]:
        rows = BitRows(self.model)
        values = self.model.simulate_values(rng, Z, n_dims=n_dims, codes=Z)
        X = self.model.as_data(values)
        data = rows.prepare(X if missing is None else np.where(missing, np.nan, X))
        return X, rows.place(data, Z, self.model.from_origin(values))


def _log_column(values: Array, low: Array, high: Array, cov: Array, is_known: Array, has_bound: Array) -> float:
    """Of a normal vector with mean zero: log density of the known entries, and log P(the others lie in their box)."""
    known, box = np.flatnonzero(is_known), np.flatnonzero(has_bound)
    total, mean, inner = 0.0, np.zeros(len(box)), cov[np.ix_(box, box)]
    if len(known):
        total = float(multivariate_normal(np.zeros(len(known)), cov[np.ix_(known, known)]).logpdf(values[known]))
        gain = np.linalg.solve(cov[np.ix_(known, known)], cov[np.ix_(known, box)]).T
        mean, inner = gain @ values[known], inner - gain @ cov[np.ix_(known, box)]
    if not len(box):
        return total
    # eq: own.interval-marginal
    return total + _log_box((low[box] - mean).tobytes(), (high[box] - mean).tobytes(), inner.tobytes())


@lru_cache(maxsize=4096)  # many matrices have the same covariance
def _log_box(low: bytes, high: bytes, cov: bytes) -> float:
    lower, upper = np.frombuffer(low), np.frombuffer(high)
    law = multivariate_normal(
        np.zeros(len(lower)),
        np.frombuffer(cov).reshape(len(lower), -1),
        maxpts=_POINTS * len(lower),
        abseps=_TOLERANCE * 1e-2,
        releps=_TOLERANCE,
    )
    return math.log(max(float(law.cdf(upper, lower_limit=lower, rng=make_generator(0))), 1e-300))
