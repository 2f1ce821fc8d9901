"""What the restarts of an optimiser say about its answer: a point of least cost, or a posterior by its bound.

An optimum that most restarts reach from different starts is likely the best there is; one that most of them miss is
where one of them happened to end. So an optimiser has converged when more than half of the restarts that came to rest
found as many features as the best one, at an objective as good as its own.
"""

from typing import NamedTuple, Self

import numpy as np

from thali.verdicts.chains import FREE_ENERGY_LIMIT, Agreement

_SAME = 1e-6  # relative difference of two objectives that count as one
_SAME_COST = 0.1  # of the penalty: far less than a feature costs
_SAME_BOUND = 1e-5  # relative, of two bounds; and as many nats as chains may differ by


_REMEDY = (
    "What to do: more restarts (n_restarts): the best is reported; if they still differ, the data leave it open, "
    "and a sampler such as CollapsedGibbs() or Gibbs() shows how far."
)


class Restarts(NamedTuple):
    """How each restart ended."""

    objective: np.ndarray
    n_features: np.ndarray
    n_passes: np.ndarray
    settled: np.ndarray
    penalty: float | None
    is_bound: bool = False  # of log p(X), with its sign turned

    @classmethod
    def of(cls, history: dict[str, np.ndarray]) -> Self:
        penalty = float(history["penalty"][0]) if "penalty" in history else None
        last = {name: history[name][:, -1] for name in ("objective", "n_features")}
        return cls(
            **last,
            n_passes=history["n_passes"],
            settled=history["settled"].astype(bool),
            penalty=penalty,
            is_bound="is_bound" in history,
        )

    @property
    def best(self) -> int:
        return int(np.argmin(self.objective))

    @property
    def reached(self) -> np.ndarray:
        """Restarts that reached the lowest objective, with as many features as the best has."""
        lowest = self.objective[self.best]
        if self.is_bound:
            allowed = max(_SAME_BOUND * abs(lowest), FREE_ENERGY_LIMIT)
        else:
            allowed = max(_SAME * abs(lowest), _SAME_COST * (self.penalty or 0.0))
        return (self.objective - lowest <= allowed) & ~self.agreement().other_number

    @property
    def n_best(self) -> int:
        return int(np.sum(self.reached))

    @property
    def agree(self) -> bool:
        """Whether most of the restarts that came to rest reached the best; one alone has nothing to agree with."""
        n_settled = np.sum(self.settled)
        return bool(n_settled <= 1 or np.sum(self.reached & self.settled) > n_settled / 2)

    @property
    def converged(self) -> bool:
        """Whether the best restart ended because nothing changed any more, and most of the others ended there, too."""
        return bool(self.settled[self.best]) and self.agree

    def agreement(self) -> Agreement:
        """The restarts in the place of chains, scored by the objective with its sign turned."""
        return Agreement(self.best, self.n_features, -self.objective, np.zeros(len(self.objective)))

    def verdict(self) -> str:
        """In words: whether the objective stopped falling, how many restarts got there, and what to do."""
        if self.is_bound:
            return self._verdict_on_bound()
        best, n = self.best, len(self.objective)
        cost = "" if self.penalty is None else f" at penalty {self.penalty:.4g}"
        k = self.n_features[best]
        where = f"objective {self.objective[best]:.6g} with {k} feature{'' if k == 1 else 's'}{cost}"
        passes = f"{self.n_passes[best]} pass{'' if self.n_passes[best] == 1 else 'es'}"
        reached = f"{self.n_best} of {n} restart{'' if n == 1 else 's'} reached it{self._others()}"
        point = "one point, no posterior"
        if not self.settled[best]:
            return (
                f"not converged: still falling after {passes} at {where}; {reached}; {point}. "
                "What to do: more passes (max_iter), more time (max_time)."
            )
        if not self.agree:
            return f"not converged: the restarts disagree ({where} after {passes}; {reached}; {point}). {_REMEDY}"
        found = f"converged (a minimum: {where} after {passes}; {reached}; {point})"
        if self.n_best > 1:
            return found
        return f"{found}. It may not be the lowest: more restarts (n_restarts) would tell."

    def _others(self, unit: str = "") -> str:
        """, the others have 3 to 5 features and lie up to 12 above"""
        others = ~self.reached
        if not others.any():
            return ""
        gap = f"{(self.objective - self.objective[self.best]).max():.3g}"
        where = f"{gap} {unit} below" if unit else f"{gap} above"
        return f", the others have {_range(self.n_features[others])} and lie up to {where}"

    def _verdict_on_bound(self) -> str:
        best, n = self.best, len(self.objective)
        where = f"log p(X) >= {-self.objective[best]:.6g} with {_range(self.n_features[[best]], 'feature')}"
        passes = f"{self.n_passes[best]} pass{'' if self.n_passes[best] == 1 else 'es'}"
        about = f"{where} after {passes}"
        if n > 1:
            how_many = f"all {n}" if self.n_best == n else f"{self.n_best} of {n}"
            about += f"; {how_many} restarts reached it{self._others('nats')}"
        if not self.settled[best]:
            return (
                f"not converged: the bound still rises ({about}). "
                "What to do: more passes (max_iter), more time (max_time)."
            )
        if not self.agree:
            return f"not converged: the restarts disagree ({about}). {_REMEDY}"
        found = f"converged (a maximum of the bound: {about}; mean field: spreads are understated)"
        if self.n_best > 1:
            return found
        return f"{found}. It may not be the highest: more restarts (n_restarts) would tell."


def _range(numbers: np.ndarray, word: str = "feature") -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low if low == high else f'{low} to {high}'} {word}{'' if high == 1 else 's'}"
