"""X = offset + (Z * W) A + noise: features with a real weight in each row that has them.

The scale of a feature and of its weights cannot be told apart; the weights' variance is therefore fixed. Their signs
cannot either: of each feature, the value that is largest in size, in units of its dim's noise, is shown as positive.
"""

from abc import abstractmethod
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from thali.core.binary import Array
from thali.core.distributions import NormalOffset, PerDim
from thali.core.observation import CodeKind
from thali.core.protocols.engines.calibration import NoiseFloor
from thali.core.protocols.engines.chains import (
    BitEntropy,
    ChainRows,
    ConditionalRows,
    GroupedRows,
    LinkedRows,
    MarginalRows,
    SliceRows,
    StartRows,
)
from thali.core.protocols.engines.mean_field import GrowingSums, MeanFieldRows, ScaledFeatures
from thali.core.protocols.engines.predictions import CellMoments, Predictions
from thali.core.spec import hyper, positive, setting
from thali.errors import InvalidDataError
from thali.observations.gaussian.domains import ard_domain, noise_domain, offset_domain, weighted_floor_domain
from thali.observations.gaussian.mean_field.weights import MeanFieldWeights
from thali.observations.gaussian.noisy_model import NoisyGaussian
from thali.observations.gaussian.starting import GaussianStart
from thali.observations.gaussian.uniqueness_floor import UniquenessFloor
from thali.observations.gaussian.weight_law import WeightLaw, draw_scales
from thali.observations.gaussian.weighted_links import WeightedLinks
from thali.observations.gaussian.weighted_prediction import WeightedPredictions
from thali.observations.gaussian.weighted_rows import WeightedChain, WeightedMarginal
from thali.observations.gaussian.weighted_sweeps import WeightedSweeps


@dataclass(frozen=True, eq=False)
class WeightedGaussian(NoisyGaussian):
    """Subclasses say what the law of a weight is."""

    noise_var: Any = hyper(PerDim(), noise_domain)
    offset: Any = hyper(NormalOffset(), offset_domain)
    noise_floor: Any = setting("uniqueness", weighted_floor_domain)
    weight_var: float = setting(1.0, positive)
    ard: Any = setting(None, ard_domain)

    code_kind: ClassVar[CodeKind] = "real"
    own_units: ClassVar[bool] = True
    engines = MappingProxyType(
        {
            ChainRows: WeightedChain,
            StartRows: GaussianStart,
            Predictions: WeightedPredictions,
            CellMoments: WeightedPredictions,
            MarginalRows: WeightedMarginal,
            BitEntropy: WeightedSweeps,
            ConditionalRows: WeightedSweeps,
            SliceRows: WeightedSweeps,
            LinkedRows: WeightedLinks,
            GroupedRows: WeightedSweeps,
            MeanFieldRows: MeanFieldWeights,
            GrowingSums: MeanFieldWeights,
            ScaledFeatures: MeanFieldWeights,
            NoiseFloor: UniquenessFloor,
        }
    )

    @property
    @abstractmethod
    def law(self) -> WeightLaw:
        """Of a weight that is on."""

    @abstractmethod
    def draw_weights(self, rng: np.random.Generator, size: Any) -> Array:
        """Weights from their prior."""

    def adapt(self, X: Array) -> Self:
        """With one noise level per dim, each dim counts in its own unit, which odd cells do not set.

        A floor that asks for the uniqueness is left to `thali.inference.calibration`, unless there is nothing to bound.
        """
        adapted = super().adapt(X)
        named = isinstance(self.noise_floor, str) and "noise_var" not in self.learned
        return adapted.replace(noise_floor=0.0) if named else adapted

    def check_codes(self, codes: Any) -> Array:
        codes = np.asarray(codes)
        if codes.ndim != 2 or codes.dtype.kind not in "buif" or not np.isfinite(codes).all():
            raise InvalidDataError(
                "codes must be a matrix (n_rows, n_features): weights, and 0 where a row lacks a feature. "
                f"Got shape {codes.shape} and dtype {codes.dtype}."
            )
        return codes.astype(float)

    def draw_codes(self, rng: np.random.Generator, Z: Array) -> Array:
        weights = Z * self.draw_weights(rng, np.shape(Z))
        return weights * draw_scales(rng, self, weights[..., :0, :])[..., None, :]
