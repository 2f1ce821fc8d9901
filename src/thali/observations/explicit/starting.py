"""Where chains of a likelihood without engines of its own begin."""

from typing import TYPE_CHECKING

import numpy as np

from thali.core.observation import Engine
from thali.observations.explicit.rows import ExplicitChain, ExplicitData, ExplicitRows

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.likelihood import Likelihood

Array = np.ndarray


class ExplicitStart(Engine):
    """StartRows of any likelihood: learned hyperparameters at the centre of their priors."""

    model: "Likelihood"

    def matrix(self, data: ExplicitData) -> tuple[Array, bool]:
        return np.where(data.seen, data.X, np.nan), True

    def units(self, n_dims: int) -> Array | None:
        return None

    def begin(self, data: ExplicitData, codes: Array, matrix: Array) -> tuple["Likelihood", ExplicitRows]:
        concrete = self.model.replace(**{name: float(law.centre) for name, law in self.model.learned.items()})
        codes = np.abs(codes) if self.model.code_kind == "positive" else codes
        return concrete, ExplicitChain(concrete).place(data, codes, matrix)

    def tempered(self, factor: float) -> "Likelihood":
        """As it is: what noise is, only the likelihood itself would know."""
        return self.model
