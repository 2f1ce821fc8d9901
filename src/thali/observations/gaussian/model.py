"""What every model X = offset + V A + noise shares, V = Z or Z * W, with Gaussian features A integrated out.

One noise level:     A_kd ~ N(0, feature_var),              noise_nd ~ N(0, noise_var)
One level per dim:   A_kd ~ N(0, feature_var noise_var_d),  noise_nd ~ N(0, noise_var_d)

In the second form feature_var is in units of each dim's noise, so that after division by the noise sd one K x K inverse
serves all dims and noise_var_d has an exact conditional with the features and the offset integrated out.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from thali.core.binary import Array, check_binary, column_counts
from thali.core.distributions import InverseGamma, LogNormal, NormalOffset, PerDim
from thali.core.spec import Spec, hyper, is_distribution, setting
from thali.errors import InvalidDataError, InvalidParameterError
from thali.kernels.bits.conditional_rows import draw_features
from thali.observations.gaussian.data import GaussianData, Spectrum, check_real, spectrum
from thali.observations.gaussian.domains import (
    feature_domain,
    floor_domain,
    noise_domain,
    offset_domain,
    origin_domain,
    scale_domain,
)
from thali.observations.gaussian.origin import locate
from thali.observations.gaussian.prediction import GaussianPrediction
from thali.observations.gaussian.variances import resample_variances

_MOST = 2_000  # features: more of them take minutes a sweep
_LEAST_NOISE = 1e-20  # of the variance of a dim, if it is fixed


@dataclass(frozen=True, eq=False)
class GaussianModel(GaussianPrediction, Spec):
    """Subclasses say what the codes V are, and how they are drawn and kept."""

    noise_var: Any = hyper(InverseGamma(1.0, 0.1, relative=True), noise_domain)
    feature_var: Any = hyper(None, feature_domain)
    offset: Any = hyper(None, offset_domain)
    noise_floor: Any = setting(0.0, floor_domain)
    scale: Any = setting(None, scale_domain)
    origin: Any = field(default=None, kw_only=True, metadata={"domain": origin_domain})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("noise_var", "offset", "noise_floor", "scale", "origin"):
            value = getattr(self, name)
            if np.ndim(value) == 1 and not isinstance(value, np.ndarray):
                object.__setattr__(self, name, np.array(value, dtype=float))
        floored = not isinstance(self.noise_floor, str) and np.any(np.asarray(self.noise_floor) > 0)
        if floored and not is_distribution(self.noise_var) and self.scale is None:
            raise InvalidParameterError(
                f"{type(self).__name__}.noise_floor bounds a learned noise_var, but noise_var is fixed at "
                f"{self.noise_var!r}. Leave noise_floor out, or let noise_var be learned."
            )

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

    # ---- what a subclass says of its codes

    @abstractmethod
    def check_codes(self, codes: Any) -> Array:
        """Codes as a float matrix, or an error."""

    @abstractmethod
    def draw_codes(self, rng: np.random.Generator, Z: Array) -> Array:
        """Codes of rows with these bits, from their prior."""

    @abstractmethod
    def codes_of(self, local: Any) -> Array:
        """The codes that the row variables hold."""

    @abstractmethod
    def totals(self, local: Any) -> Array:
        """Sum of the codes of each feature."""

    @abstractmethod
    def rows(self, data: GaussianData, codes: Array, filled: Array) -> Any:
        """Row variables with their statistics, from scratch."""

    # ---- the generative model

    def check_data(self, X: Any) -> Array:
        X = check_real(X)
        for name in ("noise_var", "offset", "noise_floor", "scale", "origin"):
            value = getattr(self, name)
            value = value.centre if isinstance(value, NormalOffset) else value
            if not is_distribution(value) and np.ndim(value) == 1 and len(value) != X.shape[1]:
                raise InvalidDataError(
                    f"{type(self).__name__}.{name} has {len(value)} entries, but X has {X.shape[1]} dims. "
                    "Give one per dim."
                )
        return X

    def adapt(self, X: Array) -> Self:
        located, spread = locate(self, X)
        self._check_noise(spread.var)
        adapted = located._with_scale(spread.var if self.scale is None else np.broadcast_to(self.scale, X.shape[1]))
        if isinstance(located.offset, NormalOffset):
            centre = spread.mean if located.offset.centre is None else located.offset.centre
            centre = np.array(np.broadcast_to(centre, X.shape[1]), dtype=float)
            adapted = adapted.replace(offset=located.offset.replace(centre=centre))
        return adapted

    def _check_noise(self, var: Array) -> None:
        """A fixed noise so small that nothing is left of the digits of squares over it is a mistake of units."""
        if not is_distribution(self.noise_var) and np.any(self.noise_var < _LEAST_NOISE * var):
            raise InvalidParameterError(
                "The hyperparameters must suit the scale of X, so that numbers stay in range. "
                f"Got noise_var = {float(np.min(self.noise_var)):.3g} where a dim has the variance {var.max():.3g}. "
                "Let noise_var be learned, or scale X."
            )

    def _with_scale(self, var: Array) -> Self:
        """Relative priors and the floor made absolute.

        A dim with less than 1 % of the mean variance counts as one with 1 %: rare features would else explain every
        cell of a nearly constant dim.
        """
        unit = float(np.mean(var))
        unit = unit if unit > 1e-280 else 1.0  # as good as constant; smaller numbers lose their digits
        feature = self.feature_var
        if feature is None:
            feature = LogNormal(0.0, 9.0) if self.per_dim else InverseGamma(2.0, 1.0, relative=True)
        noise = self.noise_var
        return self.replace(
            scale=np.maximum(var, 0.01 * unit),
            noise_var=noise.scaled(unit) if is_distribution(noise) else noise,
            feature_var=feature.scaled(unit) if is_distribution(feature) else feature,
        )

    def floor(self, n_dims: int) -> Array:
        """Smallest noise variance of each dim; none while it is only named, before `adapt` has seen the data."""
        if isinstance(self.noise_floor, str):
            return np.zeros(n_dims)
        return np.broadcast_to(self.noise_floor * (1.0 if self.scale is None else np.asarray(self.scale)), n_dims)

    def draw(self, rng: np.random.Generator, n_dims: int) -> Self:
        spec = self._with_scale(np.broadcast_to(1.0 if self.scale is None else self.scale, n_dims))
        changes: dict[str, Any] = {}
        floor = spec.floor(n_dims)
        if isinstance(spec.noise_var, PerDim):
            noise = spec.noise_var.sample(rng, n_dims)
            while (noise < floor).any():  # the joint prior is restricted, not each dim's
                noise = spec.noise_var.sample(rng, n_dims)
            changes["noise_var"] = noise
        elif is_distribution(spec.noise_var):
            noise = spec.noise_var.sample(rng)
            while noise < floor.mean():
                noise = spec.noise_var.sample(rng)
            changes["noise_var"] = noise
        if is_distribution(spec.feature_var):
            changes["feature_var"] = spec.feature_var.sample(rng)
        if isinstance(spec.offset, NormalOffset):
            changes["offset"] = spec.offset.sample(rng, n_dims, changes.get("noise_var", spec.noise_var))
        return spec.replace(**changes)

    def draw_features(self, rng: np.random.Generator, n_features: int, n_dims: int) -> Array:
        self.require_concrete("draw_features")
        sd = np.sqrt(self.feature_var * (self.noise_var if self.per_dim else 1.0))
        return sd * rng.standard_normal((n_features, n_dims))

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

    def log_prob(self, X: Array, local: Any, features: Array) -> float:
        self.require_concrete("log_prob")
        X = self.from_origin(X)
        mean = self.means(self.codes_of(local) if hasattr(local, "z") else local, features)
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

    def log_marginal(self, X: Array, codes: Array) -> float:
        """log p(X | codes) of the observed cells, features integrated out."""
        self.require_concrete("log_marginal")
        X, V = self.from_origin(self.check_data(X)), self.check_codes(codes)
        noise, scale = self.units
        Y = X if self.offset is None else X - self.offset
        Y = Y if scale is None else Y / scale
        total = 0.0 if scale is None else -float(np.sum(~np.isnan(X) * np.log(scale)))
        patterns, group = np.unique(~np.isnan(X), axis=1, return_inverse=True)
        for g, seen in enumerate(patterns.T):  # dims observed in the same rows share their matrices
            y, v = Y[np.ix_(seen, group.ravel() == g)], V[seen]
            part = spectrum(v.T @ v, v.T @ y, float(np.sum(y * y)), *y.shape)
            total += part.log_likelihood(noise, self.feature_var)
        return total

    # ---- FeatureRows

    def prepare(self, X: Array) -> GaussianData:
        return GaussianData(self.from_origin(X))

    def as_matrix(self, data: GaussianData) -> tuple[Array, bool]:
        X = data.X
        if data.any_missing:
            X = X.copy()
            X[data.missing] = np.nan
        if self.offset is None or isinstance(self.offset, NormalOffset):
            return X, self.offset is not None
        return X - self.offset, False

    def start(self, data: GaussianData, codes: Array, matrix: Array) -> tuple[Self, Any]:
        """Learned variances from the least-squares fit of X on the codes."""
        X = matrix
        changes: dict[str, Any] = {}
        filled = matrix[data.missing]
        if isinstance(self.offset, NormalOffset):
            changes["offset"] = np.array(self.offset.centre, dtype=float)
            X = X - self.offset.centre
        elif self.offset is not None:
            filled = filled + self.offset[data.missing_dim]
        dense = codes.astype(float)
        n_features = dense.shape[1]
        weights = np.linalg.solve(dense.T @ dense + 0.1 * np.eye(n_features), dense.T @ X)
        residual = np.mean((X - dense @ weights) ** 2, axis=0)
        if is_distribution(self.noise_var):
            noise = np.maximum(np.maximum(residual, 0.01 * np.asarray(self.scale)), self.floor(data.n_dims))
            changes["noise_var"] = noise if self.per_dim else float(noise.mean())
        if is_distribution(self.feature_var):
            unit = changes.get("noise_var", self.noise_var) if self.per_dim else 1.0
            changes["feature_var"] = _probable_variance(self.feature_var, weights**2 / unit)
        return self.replace(**changes), self.rows(data, codes, filled)

    def place(self, data: GaussianData, codes: Array, X: Array) -> Any:
        return self.rows(data, codes, X[data.missing])

    def completed(self, data: GaussianData, local: Any) -> Array:
        X = data.X.copy()
        X[data.missing] = local.filled
        return X

    def check_rows(self, data: GaussianData, local: Any) -> None:
        """The statistics are those of the codes, to rounding."""
        if len(local.filled) != len(data.missing_dim):
            raise ValueError("its missing cells are those of other data")
        anew = self.place(data, self.codes_of(local), self.completed(data, local))
        if type(anew) is not type(local):
            raise ValueError("its row variables are those of another model")
        for mine, its in zip(anew, local, strict=True):
            same = mine.shape == its.shape and mine.dtype == its.dtype and bool(np.isfinite(its).all())
            if not same or not np.allclose(mine, its, rtol=1e-6, atol=1e-6 * np.abs(mine).max(initial=0.0)):
                raise ValueError("its statistics are not those of its bits")

    def statistics(self, data: GaussianData, codes: Array, filled: Array) -> tuple[Array, Array]:
        """V'V and V'X, from scratch."""
        dense = np.asarray(codes, dtype=float)
        cross = dense.T @ data.X
        if data.any_missing:
            cross += (data.sparse(filled).T @ dense).T
        return dense.T @ dense, cross

    def standard_cross(self, local: Any) -> Array:
        """V' of the standardised data."""
        scale = self.units[1]
        cross = local.cross if self.offset is None else local.cross - np.outer(self.totals(local), self.offset)
        return cross if scale is None else cross / scale

    def room_for(self, K: int, data: GaussianData, new_rate: float) -> int:
        """Columns to make room for when there are K, or an error if there is no end to them.

        More features than cells, and than four times what a sensible prior expects, say that something is wrong.
        """
        expected = min(new_rate * data.n_rows * (1 + np.log(data.n_rows)), 50.0)
        most = int(min(_MOST, 200 + data.n_rows * data.n_dims + 4 * expected))
        if most < K:
            raise InvalidParameterError(
                f"The hyperparameters must suit the scale of X. Got more than {most} features. "
                "Let feature_var and noise_var be learned, set noise_floor, or lower the mass."
            )
        return min(2 * K, most)

    def spectrum(self, data: GaussianData, local: Any) -> Spectrum:
        """Of the standardised data."""
        scale = self.units[1]
        sums = data.sums(local.filled)
        square = sums.square
        if self.offset is not None:
            square = square - 2 * self.offset * sums.total + data.n_rows * self.offset**2
        if scale is not None:
            square = square / scale**2
        return spectrum(local.gram, self.standard_cross(local), float(square.sum()), data.n_rows, data.n_dims)

    def drawn_features(self, rng: np.random.Generator, local: Any) -> Array:
        """Features given the codes and X, in the units of the standardised data."""
        K, cross = local.z.shape[1], self.standard_cross(local)
        return draw_features(local.gram, cross, K, self.units[0], float(self.feature_var), rng)

    def tempered(self, factor: float) -> Self:
        """The same model with `factor` times the noise variance and features of the same size."""
        feature = self.feature_var / factor if self.per_dim else self.feature_var
        return self.replace(noise_var=self.noise_var * factor, feature_var=float(feature))

    def log_evidence(self, data: GaussianData, local: Any) -> float:
        noise, scale = self.units
        change = 0.0 if scale is None else data.n_rows * float(np.sum(np.log(scale)))
        return self.spectrum(data, local).log_likelihood(noise, self.feature_var) - change

    def resample(self, rng: np.random.Generator, current: Self, data: GaussianData, local: Any) -> Self:
        return resample_variances(rng, self, current, data, local)

    def codebook(self, data: GaussianData, local: Any) -> dict[str, Array]:
        """Posterior of the features, A_d ~ N(features_d, noise_var_d gram_inv), and the current hyperparameters."""
        noise, scale = self.units
        counts = column_counts(local.z)
        used = counts > 0
        ridge = noise / self.feature_var
        gram = local.gram[np.ix_(used, used)]
        # eq: DV09.feature-posterior
        gram_inv = np.linalg.inv(gram + ridge * np.eye(len(gram)))
        features = gram_inv @ self.standard_cross(local)[used]
        return {
            "features": features if scale is None else features * scale,
            "gram_inv": 0.5 * (gram_inv + gram_inv.T),
            "counts": counts[used],
        }


def _probable_variance(law: Any, squares: Array) -> float:
    """Variance of numbers with these squares: the most probable of 33 between the prior's centre and their mean.

    A start outside the prior's bulk would not do: from a point of all but no density, one slice reaches any size.
    """
    if squares.size == 0:
        return float(law.centre)
    mean = max(float(squares.mean()), 1e-3 * law.centre)
    grid = np.geomspace(law.centre, mean, 33)
    density = [law.log_prob(v) - 0.5 * squares.size * (math.log(v) + mean / v) for v in grid]
    return float(grid[int(np.argmax(density))])
