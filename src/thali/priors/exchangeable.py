"""Priors of classes of matrices that see only how many rows have each feature: their columns have no order."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from thali.core.binary import Array, check_binary, column_counts, history_counts
from thali.core.spec import ScalarHypers


class ByCounts(ScalarHypers):
    """The class probability is exp(`_log_prob_counts`) / prod_h K_h!, with K_h columns that share the history h."""

    def log_prob(self, Z: Array) -> float:
        """Log probability of the left-ordered class of Z; empty columns count for nothing."""
        self.require_concrete("log_prob")
        Z = check_binary(Z)
        counts = column_counts(Z)
        return self._log_prob_counts(counts[counts > 0], len(Z)) - sum(math.lgamma(k + 1) for k in history_counts(Z))

    @abstractmethod
    def _log_prob_counts(self, counts: Array, n_rows: int) -> float:
        """The part of log_prob that depends on the hyperparameters."""

    def _target(self, name: str, prior: Any, counts: Array, n_rows: int) -> Callable[[float], float]:
        """Log density of one hyperparameter given Z and the others, up to a constant."""

        def log_density(value: float) -> float:
            if not 0 < value < math.inf:
                return -math.inf
            return prior.log_prob(value) + self.updated(**{name: value})._log_prob_counts(counts, n_rows)

        return log_density
