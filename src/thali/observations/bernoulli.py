"""Zeros and ones: x = 1 where a latent Y = offset + Z A + noise of variance 1 lies above zero (probit).

A cell is an interval of its latent value, and the chains of Gaussian models draw that value (Albert & Chib 1993).
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr, ndtri, xlogy

from thali.core.binary import Array
from thali.core.distributions import Gamma, NormalOffset
from thali.core.protocols.engines.chains import (
    AuxiliaryRows,
    BitEntropy,
    ChainRows,
    CollapsedRows,
    ColumnMoves,
    ConditionalRows,
    GroupedRows,
    ImportanceRows,
    MarginalRows,
    ParallelRows,
    SliceRows,
    StartRows,
)
from thali.core.protocols.engines.predictions import Predictions
from thali.core.registry import stored
from thali.core.spec import hyper, positive
from thali.errors import InvalidDataError
from thali.observations.explicit.encoding import RowEncoder
from thali.observations.gaussian.codebook import GaussianCodebook
from thali.observations.gaussian.collapsed import CollapsedGaussian
from thali.observations.gaussian.column_moves import GaussianColumnMoves
from thali.observations.gaussian.conditional import ConditionalGaussian
from thali.observations.gaussian.domains import offset_domain
from thali.observations.gaussian.intervals import IntervalMarginal
from thali.observations.gaussian.model import Cells, GaussianModel
from thali.observations.gaussian.parallel import ParallelGaussian
from thali.observations.gaussian.prediction import BitPredictions
from thali.observations.gaussian.rows import BitRows
from thali.observations.gaussian.starting import GaussianStart


def _checked(X: Array) -> Array:
    other = X[~(np.isnan(X) | (X == 0.0) | (X == 1.0))]
    if other.size:
        raise InvalidDataError(
            f"X must hold zeros and ones, NaN where a cell is missing. Got {other[0]:g}. "
            "Recode it, or use an observation model of real numbers or counts."
        )
    return X


class ProbitPredictions(RowEncoder, BitPredictions):
    """Predictions of zeros and ones. Given codes and the latent values of other rows, cells are independent."""

    enumerated = 12

    def means(self, codes: Array, codebook: GaussianCodebook) -> Array:
        """P(x = 1)."""
        return ndtr(self._height(codes, codebook, 0))

    def log_cells(self, X: Array, codes: Array, codebook: GaussianCodebook) -> Array:
        return log_ndtr((2.0 * _checked(X) - 1.0) * self._height(codes, codebook, 0))

    def log_rows(self, X: Array, codes: Array, codebook: GaussianCodebook, new_rate: float) -> Array:
        ones, zeros, total = _checked(X) == 1.0, X == 0.0, np.asarray(-np.inf)
        for n in range(4 + int(new_rate + 6.0 * np.sqrt(new_rate)) if new_rate > 0 else 1):
            height = self._height(codes, codebook, n)
            log_share = xlogy(n, new_rate) - new_rate - gammaln(n + 1)  # of n unknown features
            total = np.logaddexp(total, log_share + ones @ log_ndtr(height).T + zeros @ log_ndtr(-height).T)
        return total

    def sample_rows(self, rng: np.random.Generator, codes: Array, codebook: Any, n_unknown: Array | int) -> Array:
        return self.model.as_data(super().sample_rows(rng, codes, codebook, n_unknown))

    def _height(self, codes: Array, codebook: GaussianCodebook, n_unknown: int) -> Array:
        """How far above zero the latent cells are expected, in their sds, with so many features that no row has."""
        spread = np.sqrt(self.cell_var(codes, codebook) + n_unknown * self.model.feature_var)  # eq: own.probit-cells
        return np.asarray(self.model.means(codes, codebook.features) / spread)


@stored("Bernoulli")
@dataclass(frozen=True, eq=False)
class Bernoulli(GaussianModel):
    """X is 0, 1 or NaN (missing), P(x_nd = 1) = Phi(offset_d + sum_k z_nk A_kd) with A_kd ~ N(0, feature_var).

    Parameters
    ----------
    feature_var : float or distribution
        Variance of the features: a number is fixed, a distribution is learned.
    offset : None, array of shape (n_dims,) or NormalOffset
        Phi(offset) is how often a row without features has a one: half of the time, fixed, or learned.
    """

    feature_var: Any = hyper(Gamma(2.0, 1.0), positive)
    offset: Any = hyper(NormalOffset(spread=4.0), offset_domain)

    words: ClassVar[str] = "zeros and ones"
    engines = MappingProxyType(
        {
            ChainRows: BitRows,
            StartRows: GaussianStart,
            Predictions: ProbitPredictions,
            MarginalRows: IntervalMarginal,
            AuxiliaryRows: IntervalMarginal,
            CollapsedRows: CollapsedGaussian,
            ColumnMoves: GaussianColumnMoves,
            BitEntropy: GaussianColumnMoves,
            ConditionalRows: ConditionalGaussian,
            SliceRows: ConditionalGaussian,
            GroupedRows: ConditionalGaussian,
            ImportanceRows: ConditionalGaussian,
            ParallelRows: ParallelGaussian,
        }
    )

    def check_data(self, X: Any) -> Array:
        return _checked(super().check_data(X))

    def cells(self, X: Array) -> Cells:
        is_one, is_zero = X > 0.0, X <= 0.0  # a missing cell is neither
        points = np.where(is_one, 1.0, np.where(is_zero, -1.0, np.nan))
        return Cells(points, np.where(is_one, 0.0, -np.inf), np.where(is_zero, 0.0, np.inf))

    def adapt(self, X: Array) -> Self:
        if not isinstance(self.offset, NormalOffset) or self.offset.centre is not None:
            return self
        share = (np.nansum(X, axis=0) + 1.0) / (np.sum(~np.isnan(X), axis=0) + 2.0)
        return self.replace(offset=self.offset.replace(centre=ndtri(share)))

    def tempered(self, factor: float) -> Self:
        return self.replace(feature_var=float(self.feature_var / factor))  # the noise is the unit

    def as_data(self, values: Array) -> Array:
        return (values > 0.0).astype(float)

    def reconstruct(self, codes: Array, features: Array) -> Array:
        return ndtr(self.means(codes, features))

    def log_prob(self, X: Array, codes: Array, features: Array) -> float:
        self.require_concrete("log_prob")
        return float(np.nansum(log_ndtr((2.0 * X - 1.0) * self.means(codes, features))))

    def log_by_dim(self, visible: Array, X: Array) -> tuple[str, Array]:
        share = (np.nansum(visible, axis=0) + 0.5) / (np.sum(~np.isnan(visible), axis=0) + 1.0)
        return "mean", np.log(np.where(X > 0.0, share, 1.0 - share))
