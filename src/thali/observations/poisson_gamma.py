"""X ~ Poisson((Z * W) A): counts made by features with gamma weights (Paisley, Carin & Blei 2011, section 5.1)."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import gammaln, xlogy

from thali.core.binary import Array, check_binary
from thali.core.distributions import Gamma
from thali.core.observation import CodeKind, Observation
from thali.core.protocols.engines.chains import (
    AuxiliaryRows,
    ChainRows,
    ConditionalRows,
    GroupedRows,
    MarginalRows,
    OwnStart,
    SliceRows,
    StartRows,
)
from thali.core.protocols.engines.mean_field import GrowingSums, MeanFieldRows
from thali.core.protocols.engines.predictions import Predictions
from thali.core.registry import stored
from thali.core.spec import Domain, ScalarHypers, hyper, positive, setting
from thali.errors import InvalidParameterError
from thali.observations.poisson.data import CountData, check_counts
from thali.observations.poisson.marginal import PoissonMarginal
from thali.observations.poisson.mean_field import PoissonMeanField
from thali.observations.poisson.prediction import PoissonPredictions
from thali.observations.poisson.rows import PoissonChain
from thali.observations.poisson.starting import PoissonStart
from thali.observations.poisson.sweeps import PoissonSweeps

_shape = Domain("a number from 0.005 to 1e6", lambda v: positive.contains(v) and 0.005 <= v <= 1e6)
_rate = Domain("a positive number", positive.contains, low=0.0, accepts=lambda d: isinstance(d, Gamma))
_maybe = Domain("None or a positive number", lambda v: v is None or positive.contains(v))
_leak = Domain("a number above 0, at most 1", lambda v: positive.contains(v) and v <= 1)


@stored("PoissonGamma")
@dataclass(frozen=True, eq=False)
class PoissonGamma(ScalarHypers, Observation):
    """Counts x_nd ~ Poisson(sum_k z_nk w_nk A_kd), with weights and features that have Gamma laws.

    X is dense (NaN: missing) or scipy.sparse, of which no dense copy of all rows is made. A row or a dim without counts
    is data like any other; a row that is wholly missing keeps its prior.

    Parameters
    ----------
    weight_shape : float
        w_nk ~ Gamma(weight_shape, weight_rate).
    weight_rate : float or Gamma
        The scale of the weights, hence of the data: a number (0.25 in the paper) is fixed, a Gamma is learned.
    feature_shape : float
        A_kd ~ Gamma(feature_shape, feature_rate).
    feature_rate : float or None
        None takes feature_shape times the number of dims, as the paper does, so that a feature's values sum to
        about one and a weight is the number of counts that it brings.
    leak : float
        Mean field with soft bits takes z + (1 - z) leak in place of z. Hard bits, samplers and simulation have no
        leak. leak=1 is a model without bits: Bayesian non-negative matrix factorisation, by mean field only.
    """

    weight_shape: float = setting(0.25, _shape)
    weight_rate: Any = hyper(Gamma(1.0, 1.0), _rate)
    feature_shape: float = setting(0.1, _shape)
    feature_rate: Any = setting(None, _maybe)
    leak: float = setting(1e-3, _leak)

    words: ClassVar[str] = "counts"
    code_kind: ClassVar[CodeKind] = "positive"
    takes_sparse: ClassVar[bool] = True
    engines = MappingProxyType(
        {
            ChainRows: PoissonChain,
            StartRows: PoissonStart,
            OwnStart: PoissonStart,
            Predictions: PoissonPredictions,
            MarginalRows: PoissonMarginal,
            AuxiliaryRows: PoissonMarginal,
            ConditionalRows: PoissonSweeps,
            SliceRows: PoissonSweeps,
            GroupedRows: PoissonSweeps,
            MeanFieldRows: PoissonMeanField,
            GrowingSums: PoissonMeanField,
        }
    )

    @property
    def has_bits(self) -> bool:
        """Whether a row can lack a feature; if not, there is nothing to sample."""
        return self.leak < 1.0

    def features_rate(self, n_dims: int) -> float:
        return float(self.feature_shape * n_dims if self.feature_rate is None else self.feature_rate)

    # ---- the generative model

    def check_data(self, X: Any) -> Any:
        return check_counts(X)

    def adapt(self, X: Any) -> Self:
        return self.replace(feature_rate=self.features_rate(X.shape[1]))

    def draw(self, rng: np.random.Generator, n_dims: int | None = None) -> Self:
        return super().draw(rng)

    def draw_features(self, rng: np.random.Generator, n_features: int, n_dims: int) -> Array:
        values = rng.standard_gamma(self.feature_shape, (n_features, n_dims)) / self.features_rate(n_dims)
        return np.maximum(values, 1e-300)  # a small shape can round to nothing, which no count could come from

    def draw_codes(self, rng: np.random.Generator, Z: Array) -> Array:
        self.require_concrete("draw_codes")
        weights = np.maximum(rng.standard_gamma(self.weight_shape, np.shape(Z)), 1e-300) / self.weight_rate
        return weights if self.leak == 1.0 else Z * weights

    def simulate(
        self,
        rng: np.random.Generator,
        Z: Array,
        *,
        n_dims: int | None = None,
        features: Array | None = None,
        codes: Array | None = None,
    ) -> Array:
        Z = check_binary(Z)
        concrete = self.draw(rng)
        if features is None:
            if n_dims is None:
                raise InvalidParameterError("PoissonGamma.simulate needs n_dims, or the features to use. Got neither.")
            features = concrete.draw_features(rng, Z.shape[1], n_dims)
        codes = concrete.draw_codes(rng, Z) if codes is None else codes
        return rng.poisson(codes @ features).astype(float)

    def reconstruct(self, codes: Array, features: Array) -> Array:
        return np.asarray(codes @ features)

    def log_by_dim(self, visible: Array, X: Array) -> tuple[str, Array]:
        n_visible = np.sum(~np.isnan(visible), axis=0)
        rate = (np.nansum(visible, axis=0) + 0.5) / (n_visible + 0.5)  # above zero where nothing was counted
        return "mean", xlogy(X, rate) - rate - gammaln(X + 1)

    def log_prob(self, X: Any, codes: Array, features: Array) -> float:
        codes = np.asarray(codes, dtype=float)
        data = CountData.of(self.check_data(X))
        row = np.repeat(np.arange(len(data)), np.diff(data.start))
        rate = np.einsum("ik,ki->i", codes[row], features[:, data.dims])  # of the cells with counts
        missing = np.einsum("kd,kd->", data.at_missing(codes), features)
        expected = float(codes.sum(axis=0) @ features.sum(axis=1) - missing)
        return float(np.sum(xlogy(data.counts, rate))) - expected - data.log_factorials
