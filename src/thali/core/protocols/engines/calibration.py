"""The engine of what is estimated from the data before inference begins."""

from typing import Protocol

from thali.core.observation import Observation
from thali.core.protocols.engines import Array


class NoiseFloor(Protocol):
    """A floor of learned noise that refers to what a factor analysis leaves of the data."""

    @property
    def is_open(self) -> bool:
        """Whether the floor asks for that, and noise is learned."""

    def usual_cells(self, adapted: Observation, X: Array) -> Array:
        """X as the model works with it, NaN where a cell is missing or so odd that it should not count."""

    def closed(self, adapted: Observation, noise_var: Array, floor: Array) -> Observation:
        """The adapted model with the floor, and priors of the noise relative to the noise that is left (n_dims,)."""
