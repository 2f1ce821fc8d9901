"""The base of new likelihoods: say how probable a cell is, and everything else works, slowly but right.

    @thali.register("mypackage.NoisyOr")
    @dataclass(frozen=True, eq=False)
    class NoisyOr(Likelihood): ...

Such a model is sampled by `Gibbs` and `SliceSampler`, predicts, and can be saved, loaded and resumed. What should be
fast gets an engine of its own: `engines = Likelihood.engines | {ConditionalRows: MySweeps}`.
"""

from abc import abstractmethod
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from thali.core.binary import check_binary
from thali.core.observation import CodeKind, Observation
from thali.core.protocols.engines.chains import (
    AuxiliaryRows,
    ChainRows,
    ConditionalRows,
    GroupedRows,
    MarginalRows,
    SliceRows,
    StartRows,
)
from thali.core.protocols.engines.predictions import Predictions
from thali.core.spec import ScalarHypers
from thali.data.checks import check_real
from thali.errors import InvalidParameterError
from thali.observations.explicit.marginal import ExplicitMarginal
from thali.observations.explicit.prediction import ExplicitPredictions
from thali.observations.explicit.rows import ExplicitChain
from thali.observations.explicit.starting import ExplicitStart
from thali.observations.explicit.sweeps import ExplicitSweeps

Array = np.ndarray
Generator = np.random.Generator


@dataclass(frozen=True, eq=False)
class Likelihood(ScalarHypers, Observation):
    """Cells that are independent given codes and features.

    Subclasses have the five abstract methods below; if X is not any real numbers, their own `check_data`; if features
    have weights, `code_kind`, `draw_codes` and `log_codes`. Hyperparameters are fields made by `hyper`: numbers, or
    distributions if they are learned.
    """

    code_kind: ClassVar[CodeKind] = "bits"
    engines = MappingProxyType(
        {
            ChainRows: ExplicitChain,
            StartRows: ExplicitStart,
            Predictions: ExplicitPredictions,
            MarginalRows: ExplicitMarginal,
            AuxiliaryRows: ExplicitMarginal,
            ConditionalRows: ExplicitSweeps,
            SliceRows: ExplicitSweeps,
            GroupedRows: ExplicitSweeps,
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        mine = type(self)
        needed = [name for name in dir(mine) if getattr(getattr(mine, name), "__isabstractmethod__", False)]
        if self.code_kind != "bits":
            needed += [name for name in ("draw_codes", "log_codes") if getattr(mine, name) is getattr(Likelihood, name)]
        if needed:
            raise InvalidParameterError(f"{mine.__name__} must say what it is. It lacks {', '.join(needed)}.")

    # ---- what a likelihood says

    @abstractmethod
    def draw_features(self, rng: Generator, n_features: int, n_dims: int) -> Array:
        """Features from their prior, (n_features, n_dims)."""

    @abstractmethod
    def log_features(self, features: Array) -> Array:
        """Log density of each value of the features under that prior, -inf outside of its support."""

    @abstractmethod
    def log_cells(self, X: Array, codes: Array, features: Array) -> Array:
        """Log density of each cell of X (n_rows, n_dims) given codes (n_rows, n_features) and features."""

    @abstractmethod
    def sample_cells(self, rng: Generator, codes: Array, features: Array) -> Array:
        """A draw of X given codes and features."""

    @abstractmethod
    def reconstruct(self, codes: Array, features: Array) -> Array:
        """Expected cells given codes and features."""

    def check_data(self, X: Any) -> Array:
        return check_real(X)

    def draw_codes(self, rng: Generator, Z: Array) -> Array:
        return Z

    def log_codes(self, codes: Array) -> float:
        """log p(weights | their bits): none, if codes are bits."""
        return 0.0

    # ---- what follows from it

    def adapt(self, X: Array) -> Self:
        return self

    def draw(self, rng: Generator, n_dims: int = 1) -> Self:
        return super().draw(rng)

    def simulate(
        self,
        rng: Generator,
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
                raise InvalidParameterError(
                    f"{type(self).__name__}.simulate needs n_dims, or the features to use. Got neither."
                )
            features = concrete.draw_features(rng, Z.shape[1], n_dims)
        codes = concrete.draw_codes(rng, Z) if codes is None else codes
        return concrete.sample_cells(rng, np.asarray(codes, dtype=float), features)

    def log_prob(self, X: Array, codes: Array, features: Array) -> float:
        seen = ~np.isnan(X)
        with np.errstate(invalid="ignore"):
            cells = self.log_cells(X, np.asarray(codes, dtype=float), features)
        return float(np.sum(cells, where=seen))
