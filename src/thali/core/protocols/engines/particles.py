"""The engine of particle filters."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from thali.core.observation import Observation
from thali.core.protocols.engines import Array, Data, Generator, Local, Particles


class Filtered(NamedTuple):
    """What became of a batch of rows: the particles after the first `n_absorbed` of them, and remarks on each."""

    particles: Particles
    n_absorbed: int
    trace: Array  # (n_absorbed, 3) log mean weight, effective number of particles, mean number of columns
    source: Array | None  # if it ended with a resampling: which particle took each place


class ParticleRows(Protocol):
    """A population of hypotheses about the rows so far, each with hyperparameters of its own."""

    def check_particles(self) -> None:
        """An error if something is learned that a particle cannot carry."""

    def start_particles(self, n_particles: int, n_dims: int) -> Particles:
        """Particles without rows and columns: opaque to the inference but for `n_rows`, `log_weight` (normalised) and
        `roots` (the particle before the first row that each descends from)."""

    def refreshed(self, particles: Particles, currents: Sequence[Observation]) -> Particles:
        """The particles, changed in place, with new hyperparameters: those of one concrete model for each."""

    def filter_rows(
        self,
        rng: Generator,
        particles: Particles,
        currents: Sequence[Observation],
        X: Array,
        log_odds: Array,
        new_rate: Array,
        table_of: Array,
        n_features: int | None,
        group: int,
        resample_below: float,
        max_resamplings: int,
    ) -> Filtered:
        """Take in the rows of X, as far as the last resampling that is allowed; particles change in place.

        log_odds[t, i, m] and new_rate[t, i] are the prior's for row i, t = table_of[particle]; n_features is the
        number of columns of a finite prior. Bits are proposed `group` at a time given the data, from the prior if it is
        0. Gives `particles`, `n_absorbed`, `trace` (of each row: log mean weight, effective number of particles, mean
        number of columns) and `source`: which particle took each place in the last resampling, None if it did not end
        with one.
        """

    def particle(self, particles: Particles, index: int, data: Data, n_features: int | None) -> Local:
        """The row variables (`local`) of one particle, with the unused columns of a finite prior."""

    def put_particle(self, particles: Particles, index: int, local: Local, data: Data) -> Particles:
        """The particles, changed in place, with these row variables for one of them; `refreshed` is called after."""

    def check_sound(self, particles: Particles, X: Array) -> None:
        """A ValueError if the particles, which come from a file, cannot be those of the rows X."""
