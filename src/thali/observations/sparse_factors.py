"""Nonparametric sparse factor analysis: X = offset + F G' + noise, most loadings G zero (Knowles & Ghahramani 2011).

The bits of Z say which loadings are not zero. Their owners are the dims (genes, of which a factor moves a few), and
rows have Gaussian factor scores; or the rows themselves, each with a noise level of its own.
"""

from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from thali.core.binary import Array, check_binary
from thali.core.distributions import NormalOffset, PerDim, PerFeature
from thali.core.observation import CodeKind, Engine, Observation, Owners
from thali.core.protocols.engines.chains import (
    AuxiliaryRows,
    ChainRows,
    ConditionalRows,
    FactorStart,
    FreshRows,
    ProposedRows,
    ShownRows,
    StartRows,
)
from thali.core.protocols.engines.mean_field import FeatureDraws, MeanFieldRows, ScaledFeatures
from thali.core.protocols.engines.predictions import Predictions
from thali.core.registry import stored
from thali.core.spec import Domain, hyper, is_distribution, one_of, positive, setting
from thali.data.checks import check_real
from thali.data.units import unit_squares
from thali.errors import InvalidDataError, InvalidParameterError
from thali.observations.gaussian.domains import offset_domain, origin_domain, scale_domain
from thali.observations.gaussian.origin import locate
from thali.observations.gaussian.scale import usual_cells
from thali.observations.sparse.constants import FAINT, never_vary, with_noise
from thali.observations.sparse.laws import Laws
from thali.observations.sparse.mean_field import SparseMeanField
from thali.observations.sparse.prediction import ScorePredictions
from thali.observations.sparse.row_prediction import LoadingPredictions
from thali.observations.sparse.rows import SparseChain
from thali.observations.sparse.simulation import SparseAuxiliary, simulated
from thali.observations.sparse.starting import SparseStart
from thali.observations.sparse.sweeps import SparseSweeps

Generator = np.random.Generator

_noise_domain = Domain(
    "a positive number (fixed) or PerDim() (learned)", lambda v: isinstance(v, PerDim) or positive.contains(v)
)
_loading_domain = Domain(
    "a positive number (fixed) or PerFeature() (learned)", lambda v: isinstance(v, PerFeature) or positive.contains(v)
)
_ROUNDING = 1e-6  # a floor of learned noise that is there for rounding only
_floor = Domain("a share of each dim's variance, in [0, 1)", lambda v: v == 0 or (positive.contains(v) and v < 1))


@stored("SparseFactorAnalysis")
@dataclass(frozen=True, eq=False)
class SparseFactorAnalysis(Observation):
    """Factors that each move a few dims, or a few rows: most loadings are zero.

    Parameters
    ----------
    sparse : "dims" or "rows"
        Whose loadings are sparse. "dims": a dim (a gene) lacks most factors, and a row (a sample) has a Gaussian score
        of every factor. "rows": a row lacks most factors and has a noise level of its own, and dims have Gaussian
        values of every factor.
    noise_var : PerDim or float
        Variances of the noise of each owner of loadings, in units of the dims' own variances: learned, or a number.
    loading_var : PerFeature or float
        Variances of the loadings of each factor that are not zero, in the same units: learned, or a number.
    offset : NormalOffset, None or array of shape (n_dims,)
        The mean of each dim: learned, zero, or fixed. Its spread is in units of the dims' own variances.
    noise_floor : float
        Learned noise stays above this share of the variance. Dims that others tell exactly, such as a copy or a sum,
        have no noise of their own: with a floor far below a hundredth they draw the number of factors up.
    scale : float, array of shape (n_dims,) or None
        The variance of each dim, its unit; None takes it from the data, without odd cells.
    origin : array of shape (n_dims,) or None
        Numbers from which data and offset are counted, as in `LinearGaussian`.
    """

    sparse: str = setting("dims", one_of("dims", "rows"))
    noise_var: Any = setting(PerDim(), _noise_domain)
    loading_var: Any = setting(PerFeature(), _loading_domain)
    offset: Any = hyper(NormalOffset(), offset_domain)
    noise_floor: float = setting(0.01, _floor)
    scale: Any = setting(None, scale_domain)
    origin: Any = field(default=None, kw_only=True, metadata={"domain": origin_domain})

    words: ClassVar[str] = "sparse factor analysis"
    code_kind: ClassVar[CodeKind] = "real"
    engines = MappingProxyType(
        {
            ChainRows: SparseChain,
            StartRows: SparseStart,
            FactorStart: SparseStart,
            AuxiliaryRows: SparseAuxiliary,
            FreshRows: SparseChain,
            ShownRows: SparseChain,
            ConditionalRows: SparseSweeps,
            ProposedRows: SparseSweeps,
            Predictions: ScorePredictions,
            MeanFieldRows: SparseMeanField,
            ScaledFeatures: SparseMeanField,
            FeatureDraws: SparseMeanField,
        }
    )

    def _engine_kind(self, capability: type) -> type[Engine]:
        if capability is Predictions and self.sparse == "rows":
            return LoadingPredictions
        return super()._engine_kind(capability)

    # ---- declared facts

    @property
    def owners(self) -> Owners:
        return "rows" if self.sparse == "rows" else "dims"

    @cached_property
    def learned(self) -> dict[str, Any]:
        """Noise and precisions belong to rows and factors; they are no hyperparameters of the model."""
        return {"offset": self.offset} if is_distribution(self.offset) else {}

    @cached_property
    def laws(self) -> Laws:
        """Of noise and precisions."""
        return Laws(self.loading_var, self.noise_var, self.noise_floor)

    @property
    def floor_share(self) -> float | None:
        """None for a floor that is there for rounding only."""
        return self.noise_floor if self.laws.learns_noise and self.noise_floor > _ROUNDING else None

    # ---- units

    @property
    def unit_squares(self) -> Array:
        """The square of the unit of each dim."""
        return np.asarray(1.0 if self.scale is None else self.scale, dtype=float)

    def in_units(self, X: Array) -> Array:
        """X counted from the origin, in the units of the dims."""
        return self.from_origin(X) / np.sqrt(self.unit_squares)

    def from_origin(self, X: Array) -> Array:
        return X if self.origin is None else X - self.origin

    def owned(self, X: Array) -> Array:
        """X in the units of the dims, with a row for each owner of loadings; dims that never vary are faint noise."""
        Y = self.in_units(X)
        if self.owners == "dims" and isinstance(self.offset, NormalOffset):
            Y = with_noise(Y, never_vary(X))
        return self.by_owner(Y)

    def as_owned(self, offset: Any) -> Array | float:
        """A number for each dim, in the data's units, as it goes with the data of the owners."""
        if offset is None:
            return 0.0
        values = np.asarray(offset / np.sqrt(self.unit_squares))
        return values[:, None] if self.sparse == "dims" and values.ndim else values

    def owned_offset(self) -> Array | float:
        return self.as_owned(self.offset)

    # ---- the generative model

    def check_data(self, X: Any) -> Array:
        X = check_real(X)
        for name in ("offset", "scale", "origin"):
            value = getattr(self, name)
            value = value.centre if isinstance(value, NormalOffset) else value
            if np.ndim(value) == 1 and len(value) != X.shape[1]:
                raise InvalidDataError(
                    f"{type(self).__name__}.{name} has {len(value)} entries, but X has {X.shape[1]} dims. "
                    "Give one per dim."
                )
        return X

    def adapt(self, X: Array) -> Self:
        """Units and the centre of the offset from the data, which odd cells do not set."""
        located = locate(self, X)[0]
        if located.scale is None:
            squares = unit_squares(usual_cells(located, X))
            own = np.where(never_vary(X), FAINT * squares, squares)
            located = located.replace(scale=own if self.sparse == "dims" else float(squares.mean()))
        _, spread = locate(located, X)
        scale = np.array(np.broadcast_to(located.scale, X.shape[1]), dtype=float)
        changes: dict[str, Any] = {"scale": scale}
        if self.laws.learns_noise:
            changes["noise_var"] = self.noise_var.scaled(1.0)  # relative to the units, which are one
        if isinstance(located.offset, NormalOffset):
            centre = spread.mean if located.offset.centre is None else located.offset.centre
            changes["offset"] = located.offset.replace(
                centre=np.array(np.broadcast_to(centre, X.shape[1]), dtype=float)
            )
        return located.replace(**changes)

    def draw(self, rng: Generator, n_dims: int) -> Self:
        if not isinstance(self.offset, NormalOffset):
            return self
        return self.updated(offset=self.offset.sample(rng, n_dims, self.offset_unit(n_dims)))

    def offset_unit(self, n_dims: int) -> Array:
        return np.broadcast_to(self.unit_squares, n_dims)

    def draw_features(self, rng: Generator, n_features: int, n_dims: int) -> Array:
        """Values of factors: of dims, in the units of the data, or of rows where dims own the loadings."""
        values = rng.standard_normal((n_features, n_dims))
        return values if self.owners == "dims" else values * np.sqrt(self.unit_squares)

    def draw_codes(self, rng: Generator, Z: Array) -> Array:
        """Loadings of owners with these bits, in the units of the dims."""
        Z = check_binary(Z)
        levels = self.laws.new_levels(rng)
        return Z * rng.standard_normal(Z.shape) / np.sqrt(self.laws.new_precisions(rng, Z.shape[1], levels[0]))

    def simulate(
        self,
        rng: Generator,
        Z: Array,
        *,
        n_dims: int | None = None,
        features: Array | None = None,
        codes: Array | None = None,
    ) -> Array:
        """X: dims (or rows) by the rows of Z, of the rows (or dims) as many as `n_dims` says.

        Features are as from `draw_features`, codes the loadings in the units of the dims.
        """
        if features is None and n_dims is None:
            raise InvalidParameterError(
                "SparseFactorAnalysis.simulate needs n_dims, or the features to use. Got neither."
            )
        n_values = np.shape(features)[1] if features is not None else n_dims
        assert n_values is not None
        concrete = self.draw(rng, len(Z) if self.owners == "dims" else n_values)
        if features is not None and self.owners == "rows":
            features = features / np.sqrt(self.unit_squares)
        return simulated(concrete, rng, Z, n_values, features, codes)[0]

    def reconstruct(self, codes: Array, features: Array) -> Array:
        rows = codes @ features
        rows = rows if self.offset is None else rows + self.offset
        return rows if self.origin is None else rows + self.origin

    def log_prob(self, X: Array, codes: Array, features: Array) -> float:
        """Of X given the scores of rows (codes) and the loadings of dims (features), for a fixed noise variance."""
        self.require_concrete("log_prob")
        if self.laws.learns_noise:
            raise InvalidParameterError(
                "SparseFactorAnalysis.log_prob needs a number for noise_var. Got PerDim (learned)."
            )
        var = np.broadcast_to(self.noise_var * self.unit_squares, np.shape(X))
        left = X - self.reconstruct(codes, features)
        seen = ~np.isnan(X)
        return float(-0.5 * np.sum(np.where(seen, np.log(2 * np.pi * var) + np.where(seen, left, 0.0) ** 2 / var, 0.0)))

    def log_hyper(self, current: Self) -> float:
        if "offset" not in self.learned:
            return 0.0
        return self.offset.log_prob(current.offset, self.offset_unit(len(current.offset)))
