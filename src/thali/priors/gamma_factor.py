"""A hyperparameter in variational inference: a fixed number, or q = Gamma(shape, rate) under a Gamma prior."""

import math
from typing import Any, NamedTuple, Self

from scipy.special import digamma

from thali.core.distributions import Gamma
from thali.core.registry import stored
from thali.core.spec import is_distribution
from thali.errors import InvalidParameterError
from thali.numerics.entropies import gamma_entropy


@stored("ScalarFactor")
class ScalarFactor(NamedTuple):
    """q = Gamma(shape, rate); with prior None the fixed number shape / rate."""

    shape: float
    rate: float
    prior: Gamma | None

    @classmethod
    def of(cls, spec: Any, name: str) -> Self:
        """To begin with: the prior itself."""
        value = getattr(spec, name)
        if not is_distribution(value):
            return cls(float(value), 1.0, None)
        if not isinstance(value, Gamma):
            raise InvalidParameterError(
                f"Variational inference with {type(spec).__name__} needs {name} to be a number or a Gamma. "
                f"Got {value!r}; use Gamma(shape, rate)."
            )
        return cls(value.shape, value.rate, value)

    @property
    def mean(self) -> float:
        return self.shape / self.rate

    @property
    def mean_log(self) -> float:
        return math.log(self.mean) if self.prior is None else float(digamma(self.shape)) - math.log(self.rate)

    def updated(self, count: float, exposure: float) -> Self:
        """At its optimum given a likelihood x^count exp(-exposure x)."""
        if self.prior is None:
            return self
        return self._replace(shape=self.prior.shape + count, rate=self.prior.rate + exposure)

    def bound(self) -> float:
        """E log p - E log q."""
        if self.prior is None:
            return 0.0
        a, b = self.prior.shape, self.prior.rate
        log_prior = a * math.log(b) - math.lgamma(a) + (a - 1) * self.mean_log - b * self.mean
        return float(log_prior + gamma_entropy(self.shape, self.rate))
