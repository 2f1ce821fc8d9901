"""What every model X = offset + V A + noise shares, V = Z or Z * W, with Gaussian features A integrated out.

One noise level:     A_kd ~ N(0, feature_var),              noise_nd ~ N(0, noise_var)
One level per dim:   A_kd ~ N(0, feature_var noise_var_d),  noise_nd ~ N(0, noise_var_d)

In the second form feature_var is in units of each dim's noise, so that after division by the noise sd one K x K inverse
serves all dims and noise_var_d has an exact conditional with the features and the offset integrated out.
"""

from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from thali.core.binary import Array, check_binary
from thali.core.distributions import NormalOffset, PerDim
from thali.core.observation import CodeKind, Observation
from thali.core.spec import is_distribution
from thali.data.checks import check_real
from thali.errors import InvalidDataError, InvalidParameterError

Generator = np.random.Generator

_BY_DIM = ("noise_var", "offset", "noise_floor", "scale", "origin")  # numbers of which each dim may have its own


class Cells(NamedTuple):
    """What is known of each cell: a value, or that it lies between two bounds. A missing cell lies everywhere."""

    values: Array  # NaN where a cell is missing; where it has a bound, some point between them
    lower: Array | None = None  # -inf where a cell has no such bound; None: no cell has one
    upper: Array | None = None


class GaussianModel(Observation):
    """What engines ask a model for. Subclasses say which of these are parameters, and what codes are if not bits."""

    code_kind: ClassVar[CodeKind] = "bits"
    own_units: ClassVar[bool] = False  # whether each dim counts in its own unit, where it has a noise level of its own

    noise_var: Any = 1.0
    feature_var: Any
    offset: Any = None
    noise_floor: Any = None
    scale: Any = None
    origin: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _BY_DIM:
            value = getattr(self, name)
            if np.ndim(value) == 1 and not isinstance(value, np.ndarray):
                object.__setattr__(self, name, np.array(value, dtype=float))

    def require_concrete(self, action: str) -> None:
        super().require_concrete(action)
        if self.feature_var is None:
            name = type(self).__name__
            raise InvalidParameterError(f"{name}.{action} needs a number for feature_var. Got None (learned).")

    @property
    def per_dim(self) -> bool:
        """Whether each dim has its own noise level."""
        if is_distribution(self.noise_var):
            return isinstance(self.noise_var, PerDim)
        return np.ndim(self.noise_var) == 1

    @cached_property
    def units(self) -> tuple[float, Array | None]:
        """(noise variance, scale) of the standardised data that kernels see: unit noise if each dim has its own."""
        return (1.0, np.sqrt(self.noise_var)) if self.per_dim else (float(self.noise_var), None)

    def floor(self, n_dims: int) -> Array:
        """Smallest noise variance of each dim; none while it is only named, before `adapt` has seen the data."""
        if self.noise_floor is None or isinstance(self.noise_floor, str):
            return np.zeros(n_dims)
        return np.broadcast_to(self.noise_floor * (1.0 if self.scale is None else np.asarray(self.scale)), n_dims)

    def tempered(self, factor: float) -> Self:
        """This concrete model with `factor` times the noise variance and features of the same size."""
        feature = self.feature_var / factor if self.per_dim else self.feature_var
        return self.replace(noise_var=self.noise_var * factor, feature_var=float(feature))

    def check_codes(self, codes: Any) -> Array:
        """Codes as a float matrix, or an error."""
        return check_binary(codes).astype(float)

    # ---- the generative model

    def check_data(self, X: Any) -> Array:
        X = check_real(X)
        for name in _BY_DIM:
            value = getattr(self, name)
            value = value.centre if isinstance(value, NormalOffset) else value
            if not is_distribution(value) and np.ndim(value) == 1 and len(value) != X.shape[1]:
                raise InvalidDataError(
                    f"{type(self).__name__}.{name} has {len(value)} entries, but X has {X.shape[1]} dims. "
                    "Give one per dim."
                )
        return X

    def cells(self, X: Array) -> Cells:
        """What checked data say of the cells that the model works with."""
        return Cells(self.from_origin(X))

    def draw(self, rng: Generator, n_dims: int) -> Self:
        changes: dict[str, Any] = {}
        if is_distribution(self.feature_var):
            changes["feature_var"] = self.feature_var.sample(rng)
        if isinstance(self.offset, NormalOffset):
            changes["offset"] = self.offset.sample(rng, n_dims, self.noise_var)
        return self.replace(**changes)

    def draw_features(self, rng: Generator, n_features: int, n_dims: int) -> Array:
        self.require_concrete("draw_features")
        sd = np.sqrt(self.feature_var * (self.noise_var if self.per_dim else 1.0))
        return sd * rng.standard_normal((n_features, n_dims))

    def draw_codes(self, rng: Generator, Z: Array) -> Array:
        return Z

    def simulate(self, rng: Generator, Z: Array, **given: Any) -> Array:
        return self.as_data(self.simulate_values(rng, Z, **given))

    def as_data(self, values: Array) -> Array:
        """What is seen of values that the model makes: the values themselves, unless cells are known by intervals."""
        return values

    def simulate_values(
        self,
        rng: Generator,
        Z: Array,
        *,
        n_dims: int | None = None,
        features: Array | None = None,
        codes: Array | None = None,
    ) -> Array:
        Z = check_binary(Z)
        if features is None:
            if n_dims is None:
                raise InvalidParameterError(
                    f"{type(self).__name__}.simulate needs n_dims, or the features to use. Got neither."
                )
            concrete = self.draw(rng, n_dims)
            features = concrete.draw_features(rng, Z.shape[1], n_dims)
        else:
            concrete = self.draw(rng, np.shape(features)[1])
        codes = self.draw_codes(rng, Z) if codes is None else codes
        noise = rng.standard_normal((len(Z), np.shape(features)[1]))
        X = codes @ features + np.sqrt(concrete.noise_var) * noise
        X = X if concrete.offset is None else X + concrete.offset
        return X if self.origin is None else X + self.origin

    def from_origin(self, X: Array) -> Array:
        """X as the model works with it."""
        return X if self.origin is None else X - self.origin

    def means(self, codes: Array, features: Array) -> Array:
        """Expected rows, counted from the origin."""
        rows = codes @ features
        return rows if self.offset is None else rows + self.offset

    def reconstruct(self, codes: Array, features: Array) -> Array:
        rows = self.means(codes, features)
        return rows if self.origin is None else rows + self.origin

    def log_prob(self, X: Array, codes: Array, features: Array) -> float:
        self.require_concrete("log_prob")
        X = self.from_origin(X)
        mean = self.means(codes, features)
        var = np.broadcast_to(self.noise_var, np.shape(X))
        seen = ~np.isnan(X)
        residual = np.where(seen, X - mean, 0.0)
        return float(-0.5 * np.sum(np.where(seen, np.log(2 * np.pi * var) + residual**2 / var, 0.0)))

    def log_hyper(self, current: Self) -> float:
        total = 0.0
        for name, prior in self.learned.items():
            value = getattr(current, name)
            total += prior.log_prob(value, current.noise_var) if name == "offset" else prior.log_prob(value)
        return total
