"""The parameters of an estimator, once they were looked at."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from thali.core.model import Model
from thali.core.observation import Observation
from thali.core.protocols.prior import Prior
from thali.core.spec import Spec, positive
from thali.errors import InvalidParameterError
from thali.observations import LinearGaussian
from thali.priors import IBP
from thali.running.runner import resolve_n_jobs


class Settings(NamedTuple):
    """They mean what `LatentFeatures` says."""

    model: Model
    inference: Any
    n_chains: int
    n_jobs: int | None
    random_state: Any
    verbose: bool | None
    max_time: float | None
    target_ess: float | None
    checkpoint: Any

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Self:
        """An error for what cannot be."""
        given = dict(params)
        return cls(model_of(given.pop("observation"), given.pop("prior")), **given)._checked()

    def _checked(self) -> Self:
        if not isinstance(self.n_chains, int | np.integer) or isinstance(self.n_chains, bool) or self.n_chains < 1:
            raise InvalidParameterError(f"n_chains must be a positive integer. Got {self.n_chains!r}.")
        for name in ("max_time", "target_ess"):
            value = getattr(self, name)
            if value is not None and not positive.contains(value):
                raise InvalidParameterError(f"{name} must be None or a positive number. Got {value!r}.")
        if not isinstance(self.verbose, int | np.bool_ | None):
            raise InvalidParameterError(f"verbose must be True, False or None. Got {self.verbose!r}.")
        if not isinstance(self.checkpoint, str | os.PathLike | None):
            raise InvalidParameterError(f"checkpoint must be None or the path of a folder. Got {self.checkpoint!r}.")
        resolve_n_jobs(self.n_jobs, self.n_chains)
        return self


def model_of(observation: Any, prior: Any) -> Model:
    """The model with these parts, ours where there is None."""
    model = Model(IBP() if prior is None else prior, LinearGaussian() if observation is None else observation)
    for name, part in model.get_params(deep=False).items():
        if not isinstance(part, Spec) or not isinstance(part, Prior if name == "prior" else Observation):
            example = "IBP()" if name == "prior" else "LinearGaussian()"
            raise InvalidParameterError(f"{name} must be a spec such as {example}. Got {part!r}.")
    return model
