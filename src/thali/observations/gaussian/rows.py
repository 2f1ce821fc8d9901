"""The row variables that chains of Gaussian models keep: codes V with V'V and V'X, the features integrated out."""

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from thali.core.binary import column_counts
from thali.core.codebook import Codebook
from thali.core.observation import Engine
from thali.core.registry import stored
from thali.kernels.bits.conditional_rows import draw_features
from thali.kernels.intervals import draw_between
from thali.numerics.truncated_normal import truncated_normal_entropy
from thali.observations.gaussian.codebook import GaussianCodebook
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.marginal import Spectrum, spectrum
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.variances import resample_variances

Array = np.ndarray
Generator = np.random.Generator


@stored("GaussianRows")
class GaussianRows(NamedTuple):
    """Row variables of a model whose codes are bits, and the statistics that go with them."""

    z: Array  # (n_rows, n_features) uint8
    gram: Array  # z'z, exact (whole numbers)
    cross: Array  # z'X in the data's units, hidden cells filled
    filled: Array  # the hidden cells (`GaussianData`), in row-major order


class GaussianChain(Engine):
    """ChainRows of a Gaussian model; subclasses say what the codes are and how they are kept.

    `local` is a NamedTuple with the fields z, gram, cross and filled.
    """

    model: GaussianModel

    # ---- what differs

    @abstractmethod
    def codes(self, local: Any) -> Array: ...

    @abstractmethod
    def totals(self, local: Any) -> Array:
        """Sum of the codes of each feature."""

    @abstractmethod
    def rows(self, data: GaussianData, codes: Array, filled: Array) -> Any:
        """Row variables with their statistics, from scratch."""

    # ---- ChainRows

    def prepare(self, X: Array) -> GaussianData:
        return GaussianData(*self.model.cells(X))

    def place(self, data: GaussianData, codes: Array, X: Array) -> Any:
        return self.rows(data, codes, X[data.hidden])

    def completed(self, data: GaussianData, local: Any) -> Array:
        return data.completed(local.filled)

    def check(self, data: GaussianData, local: Any) -> None:
        """The statistics are those of the codes, to rounding."""
        if len(local.filled) != len(data.hidden_dim):
            raise ValueError("its missing cells are those of other data")
        if not np.isfinite(local.filled).all():
            raise ValueError("its missing cells are no numbers")
        if not data.holds(local.filled):
            raise ValueError("its cells lie outside of their intervals")
        anew = self.place(data, self.codes(local), self.completed(data, local))
        if type(anew) is not type(local):
            raise ValueError("its row variables are those of another model")
        for mine, its in zip(anew, local, strict=True):
            same = mine.shape == its.shape and mine.dtype == its.dtype and bool(np.isfinite(its).all())
            if not same or not np.allclose(mine, its, rtol=1e-6, atol=1e-6 * np.abs(mine).max(initial=0.0)):
                raise ValueError("its statistics are not those of its bits")

    def log_evidence(self, data: GaussianData, local: Any) -> float:
        noise, scale = self.model.units
        change = 0.0 if scale is None else data.n_rows * float(np.sum(np.log(scale)))
        return self.spectrum(data, local).log_likelihood(noise, self.model.feature_var) - change

    def resample(self, rng: Generator, spec: Any, data: GaussianData, local: Any) -> Any:
        return resample_variances(rng, spec, self.model, data, local, self)

    def codebook(self, data: GaussianData, local: Any) -> Codebook:
        """Posterior of the features, A_d ~ N(features_d, noise_var_d gram_inv)."""
        noise, scale = self.model.units
        counts = column_counts(local.z)
        used = counts > 0
        ridge = noise / self.model.feature_var
        gram = local.gram[np.ix_(used, used)]
        # eq: DV09.feature-posterior
        gram_inv = np.linalg.inv(gram + ridge * np.eye(len(gram)))
        features = gram_inv @ self.standard_cross(local)[used]
        features = features if scale is None else features * scale
        return GaussianCodebook(features, counts[used], 0.5 * (gram_inv + gram_inv.T))

    # ---- what sweeps need

    def statistics(self, data: GaussianData, codes: Array, filled: Array) -> tuple[Array, Array]:
        """V'V and V'X, from scratch."""
        dense = np.asarray(codes, dtype=float)
        if data.bounds is not None:  # rarely few
            return dense.T @ dense, dense.T @ data.completed(filled)
        cross = dense.T @ data.X
        if data.any_hidden:
            cross += (data.sparse(filled).T @ dense).T
        return dense.T @ dense, cross

    def standard_cross(self, local: Any) -> Array:
        """V' of the standardised data."""
        scale, offset = self.model.units[1], self.model.offset
        cross = local.cross if offset is None else local.cross - np.outer(self.totals(local), offset)
        return cross if scale is None else cross / scale

    def spectrum(self, data: GaussianData, local: Any) -> Spectrum:
        """Of the standardised data."""
        scale, offset = self.model.units[1], self.model.offset
        sums = data.sums(local.filled)
        square = sums.square
        if offset is not None:
            square = square - 2 * offset * sums.total + data.n_rows * offset**2
        if scale is not None:
            square = square / scale**2
        return spectrum(local.gram, self.standard_cross(local), float(square.sum()), data.n_rows, data.n_dims)

    def redraw_cells(self, rng: Generator, data: GaussianData, local: Any) -> Any:
        """Row variables with all hidden cells drawn anew, if some of them have bounds: features given the codes and X,
        then each cell given the features, which are forgotten. It ends every sweep."""
        if data.bounds is None:  # cells that may lie anywhere were drawn with the bits
            return local
        return self.draw_hidden(rng, data, local)

    def draw_hidden(self, rng: Generator, data: GaussianData, local: Any) -> Any:
        """Row variables with all hidden cells drawn anew, features given the codes and X drawn for it."""
        law = self._cell_law(data, local, self.drawn_features(rng, local))
        everywhere = np.full(len(local.filled), np.inf)
        bounds = (-everywhere, everywhere) if data.bounds is None else data.bounds
        # eq: own.interval-cells
        return self.rows(data, self.codes(local), draw_between(*law, *bounds, rng))

    def cell_entropy(self, data: GaussianData, local: Any) -> float:
        """Sum of the entropies of the hidden cells given features at their mean, if some of them have bounds."""
        if data.bounds is None:
            return 0.0
        precision = local.gram + self.model.units[0] / self.model.feature_var * np.eye(len(local.gram))
        law = self._cell_law(data, local, np.linalg.solve(precision, self.standard_cross(local)))
        return float(truncated_normal_entropy(*law, *data.bounds).sum())

    def _cell_law(self, data: GaussianData, local: Any, features: Array) -> tuple[Array, Array]:
        """(mean, sd) of each hidden cell given features in the units of the standardised data."""
        mean = np.asarray(self.codes(local), dtype=float) @ features
        if self.model.units[1] is not None:
            mean *= self.model.units[1]
        if self.model.offset is not None:
            mean += self.model.offset
        return data.at_hidden(mean), np.sqrt(np.broadcast_to(self.model.noise_var, data.n_dims))[data.hidden_dim]

    def drawn_features(self, rng: Generator, local: Any) -> Array:
        """Features given the codes and X, in the units of the standardised data."""
        K, cross = local.z.shape[1], self.standard_cross(local)
        return draw_features(local.gram, cross, K, self.model.units[0], float(self.model.feature_var), rng)


class BitRows(GaussianChain):
    """ChainRows of a Gaussian model whose codes are its bits."""

    def codes(self, local: GaussianRows) -> Array:
        return local.z

    def totals(self, local: GaussianRows) -> Array:
        return np.diag(local.gram)

    def rows(self, data: GaussianData, codes: Array, filled: Array) -> GaussianRows:
        return GaussianRows(np.ascontiguousarray(codes, dtype=np.uint8), *self.statistics(data, codes, filled), filled)

    def from_standard(self, Z: Array, K: int, gram: Array, cross: Array, filled: Array) -> GaussianRows:
        """Row variables from a kernel's arrays, which have room for more than K columns and standardised data."""
        scale = self.model.units[1]
        gram = gram[:K, :K].copy()
        cross = np.array(cross[:K]) if scale is None else cross[:K] * scale
        if self.model.offset is not None:
            cross = cross + np.outer(np.diag(gram), self.model.offset)
        return GaussianRows(np.ascontiguousarray(Z[:, :K]), gram, cross, filled)
