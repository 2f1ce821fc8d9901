"""A population of particles for a linear-Gaussian model with one noise level, or fixed ones per dim."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from thali.core.distributions import NormalOffset, PerDim
from thali.core.observation import Engine
from thali.core.protocols.engines.particles import Filtered
from thali.core.registry import stored
from thali.errors import InvalidParameterError
from thali.kernels.bits.particles import filter_rows, rebuild_particles
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.room import room_for, rung, with_room
from thali.observations.gaussian.rows import BitRows, GaussianRows

Array = np.ndarray

_ROOM = 8  # columns to begin with


@stored("Particles")
class Particles(NamedTuple):
    """All particles; the first axis of each array. There is room for more rows, cells and columns than are in use.

    The units are those of the standardised data. Weights are normalised.
    """

    n_rows: int
    n_cells: int  # missing ones
    z: Array  # (n_particles, room for rows, room for columns) uint8
    filled: Array  # (n_particles, room for missing cells)
    n_columns: Array
    gram: Array
    cross: Array
    gram_inv: Array  # P of kernels/bits/particles.py
    feature_gram: Array  # G of it
    log_weight: Array
    roots: Array  # the particle before the first row that each descends from


class GaussianParticles(Engine):
    """ParticleRows of a model whose codes are bits."""

    model: GaussianModel

    def __init__(self, model: GaussianModel) -> None:
        super().__init__(model)
        self.rows = BitRows(model)

    def check_particles(self) -> None:
        """Every particle sees the same standardised data, so what standardises them cannot be learned."""
        for name, kind, remedy in (
            ("noise_var", PerDim, "give an array with one per dim, or learn one level: InverseGamma(...)"),
            ("offset", NormalOffset, "give a vector, such as the mean of each dim"),
        ):
            if isinstance(getattr(self.model, name), kind):
                raise InvalidParameterError(
                    f"Particles can carry numbers of their own, but {name}={kind.__name__}() is a learned vector. "
                    f"Fix it ({remedy}), or use CollapsedGibbs(), which learns it."
                )

    def start_particles(self, n_particles: int, n_dims: int) -> Particles:
        square = (n_particles, _ROOM, _ROOM)
        return Particles(
            0, 0, np.zeros((n_particles, 0, _ROOM), np.uint8), np.zeros((n_particles, 0)),
            np.zeros(n_particles, np.int64), np.zeros(square), np.zeros((n_particles, _ROOM, n_dims)),
            np.zeros(square), np.zeros(square), np.full(n_particles, -np.log(n_particles)), np.arange(n_particles),
        )  # fmt: skip

    def refreshed(self, particles: Particles, currents: Sequence[Any]) -> Particles:
        """The particles (changed in place) with the hyperparameters of the concrete models `currents`."""
        noise, feature = _variances(currents)
        rebuild_particles(
            particles.n_columns, particles.gram, particles.cross, noise / feature,
            particles.gram_inv, particles.feature_gram,
        )  # fmt: skip
        return particles

    def filter_rows(
        self,
        rng: np.random.Generator,
        particles: Particles,
        currents: Sequence[Any],
        X: Array,
        log_odds: Array,
        new_rate: Array,
        table_of: Array,
        n_features: int | None,
        group: int,
        resample_below: float,
        max_resamplings: int,
    ) -> Filtered:
        """The particles (changed in place) after the rows of X, or after so many of them as end in the last resampling.

        currents: the concrete model of each particle. log_odds[t, i, m] and new_rate[t, i] are the prior's tables for
        row i of X, t = table_of[particle]; n_features is the number of columns of a finite prior.
        """
        _, scale = currents[0].units
        Y = self.model.from_origin(X)
        Y = Y if self.model.offset is None else Y - self.model.offset
        Y = Y if scale is None else Y / scale
        missing = np.isnan(X)
        missing_start = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64)
        missing_dim = np.nonzero(missing)[1].astype(np.int64)
        Y = np.where(missing, 0.0, Y)
        noise, feature = _variances(currents)
        particles = _with_rows(particles, len(X), len(missing_dim))
        n_new, source = np.zeros(len(noise), np.int64), np.zeros(len(noise), np.int64)
        trace = np.zeros((len(X), 3))
        row, drawn, resampled = 0, False, 0
        while True:
            p = particles
            row, drawn, n_resampled = filter_rows(
                Y, missing_start, missing_dim, p.z, p.n_columns, p.gram, p.cross, p.gram_inv,
                p.feature_gram, p.filled, p.log_weight, p.roots, n_new, source,
                noise, feature, table_of, log_odds, new_rate, -1 if n_features is None else n_features,
                p.n_rows, p.n_cells, row, drawn, group, resample_below, max_resamplings - resampled, trace, rng,
            )  # fmt: skip
            resampled += n_resampled
            if not drawn:
                break
            most = int((p.n_columns + n_new).max())
            room = room_for(most, p.n_rows + row + 1, X.shape[1], float(new_rate.max()))
            particles = _with_columns(particles, room)
        particles = particles._replace(
            n_rows=particles.n_rows + row, n_cells=particles.n_cells + int(missing_start[row])
        )
        if scale is not None:  # back to the density of the data in their own units
            trace[:, 0] -= ~missing @ np.log(scale)
        ended = resampled > 0 and resampled == max_resamplings
        return Filtered(particles, row, trace[:row], source if ended else None)

    def particle(self, particles: Particles, index: int, data: GaussianData, n_features: int | None) -> GaussianRows:
        """The row variables of one particle, a copy; `data` holds all rows so far. Concrete models only.

        A finite prior's unused columns come last.
        """
        scale = self.model.units[1]
        filled = particles.filled[index, : particles.n_cells].copy()
        if scale is not None:
            filled *= scale[data.hidden_dim]
        if self.model.offset is not None:
            filled += self.model.offset[data.hidden_dim]
        K = int(particles.n_columns[index])
        Z, gram, cross = with_room(
            particles.z[index, : particles.n_rows, :K], particles.gram[index, :K, :K], particles.cross[index, :K],
            n_features or K,
        )  # fmt: skip
        return self.rows.from_standard(Z, n_features or K, gram, cross, filled)

    def put_particle(self, particles: Particles, index: int, local: GaussianRows, data: GaussianData) -> Particles:
        """The particles, changed in place, with these row variables for one of them; then call `refreshed`.

        Columns that no row has are left out.
        """
        used = np.flatnonzero(np.diag(local.gram))
        if len(used) > particles.z.shape[2]:
            particles = _with_columns(particles, 2 * len(used))
        scale = self.model.units[1]
        filled = local.filled
        if self.model.offset is not None:
            filled = filled - self.model.offset[data.hidden_dim]
        if scale is not None:
            filled = filled / scale[data.hidden_dim]
        particles.n_columns[index] = len(used)
        particles.z[index] = 0
        particles.z[index, : particles.n_rows, : len(used)] = local.z[:, used]
        particles.gram[index, : len(used), : len(used)] = local.gram[np.ix_(used, used)]
        particles.cross[index, : len(used)] = self.rows.standard_cross(local)[used]
        particles.filled[index, : particles.n_cells] = filled
        return particles

    def check_sound(self, particles: Particles, X: Array) -> None:
        """Shapes fit each other, and the statistics are those of the bits, to rounding; P and G are only finite."""
        n, (n_rows, n_dims) = len(particles.log_weight), X.shape
        K, room = particles.n_columns, particles.z.shape[2]
        cells = int(np.isnan(X).sum())
        square = (n, room, room)
        sound = (
            (particles.n_rows, particles.n_cells) == (n_rows, cells)
            and particles.z.shape[0] == n and particles.z.shape[1] >= n_rows and particles.z.dtype == np.uint8
            and particles.filled.shape[0] == n and particles.filled.shape[1] >= cells
            and K.shape == particles.roots.shape == (n,) and K.dtype == particles.roots.dtype == np.int64
            and K.min() >= 0 and K.max() <= room
            and particles.gram.shape == particles.gram_inv.shape == particles.feature_gram.shape == square
            and particles.cross.shape == (n, room, n_dims)
            and all(np.isfinite(array).all() for array in particles[3:])
        )  # fmt: skip
        if not sound:
            raise ValueError("its arrays do not fit each other")
        for i in range(n):
            z = particles.z[i, :n_rows].astype(float)
            used = slice(int(K[i]))
            if z[:, K[i] :].any() or not np.array_equal(z[:, used].T @ z[:, used], particles.gram[i, used, used]):
                raise ValueError("its statistics are not those of its bits")


def _variances(currents: Sequence[Any]) -> tuple[Array, Array]:
    """(noise, feature) variances of the standardised data, by particle."""
    return np.array([c.units[0] for c in currents]), np.array([float(c.feature_var) for c in currents])


def _with_rows(particles: Particles, n_rows: int, n_cells: int) -> Particles:
    """With room for so many rows and missing cells more."""
    z, filled = particles.z, particles.filled
    wanted = particles.n_rows + n_rows
    if wanted > z.shape[1]:
        larger = np.zeros((len(z), rung(wanted), z.shape[2]), np.uint8)
        larger[:, : particles.n_rows] = z[:, : particles.n_rows]
        z = larger
    wanted = particles.n_cells + n_cells
    if wanted > filled.shape[1]:
        longer = np.zeros((len(z), rung(wanted)))
        longer[:, : particles.n_cells] = filled[:, : particles.n_cells]
        filled = longer
    return particles._replace(z=z, filled=filled)


def _with_columns(particles: Particles, room: int) -> Particles:
    """With room for so many columns."""
    more = room - particles.z.shape[2]
    by_column = [(0, 0), (0, more), (0, more)]
    return particles._replace(
        z=np.pad(particles.z, [(0, 0), (0, 0), (0, more)]),
        gram=np.pad(particles.gram, by_column),
        cross=np.pad(particles.cross, [(0, 0), (0, more), (0, 0)]),
        gram_inv=np.pad(particles.gram_inv, by_column),
        feature_gram=np.pad(particles.feature_gram, by_column),
    )
