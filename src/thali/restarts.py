"""What the restarts of an optimiser say about its answer: a point of least cost, or a posterior by its bound."""

from typing import NamedTuple, Self

import numpy as np

from thali.diagnostics import Agreement

_SAME = 1e-6  # relative difference of two objectives that count as one
_SAME_BOUND = 1e-5  # of two bounds, and one nat


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
    def n_best(self) -> int:
        """Restarts that reached the lowest objective."""
        lowest = self.objective[self.best]
        allowed = max(_SAME_BOUND * abs(lowest), 1.0) if self.is_bound else _SAME * abs(lowest)
        return int(np.sum(self.objective - lowest <= allowed))

    @property
    def converged(self) -> bool:
        """Whether the best restart ended because nothing changed any more."""
        return bool(self.settled[self.best])

    def agreement(self) -> Agreement:
        """The restarts in the place of chains, scored by the objective with its sign turned."""
        return Agreement(self.best, self.n_features, -self.objective, np.zeros(len(self.objective)))

    def verdict(self) -> str:
        """In words: whether the objective stopped falling, how many restarts got there, and what to do."""
        if self.is_bound:
            return self._verdict_on_bound()
        best = self.best
        cost = "" if self.penalty is None else f" at penalty {self.penalty:.4g}"
        k = self.n_features[best]
        where = f"objective {self.objective[best]:.6g} with {k} feature{'' if k == 1 else 's'}{cost}"
        passes = f"{self.n_passes[best]} pass{'' if self.n_passes[best] == 1 else 'es'}"
        reached = f"{self.n_best} of {len(self.objective)} restarts reached it"
        point = "one point, no posterior"
        if not self.converged:
            return (
                f"not converged: still falling after {passes} at {where}; {reached}; {point}. "
                "What to do: more passes (max_iter), more time (max_time)."
            )
        found = f"converged (a minimum: {where} after {passes}; {reached}; {point})"
        if self.n_best > 1:
            return found
        return f"{found}. It may not be the lowest: more restarts (n_restarts) would tell."

    def _verdict_on_bound(self) -> str:
        best, n = self.best, len(self.objective)
        where = f"log p(X) >= {-self.objective[best]:.6g} with {_range(self.n_features[[best]], 'feature')}"
        passes = f"{self.n_passes[best]} pass{'' if self.n_passes[best] == 1 else 'es'}"
        about = f"{where} after {passes}"
        if n > 1:
            below = self.objective - self.objective[best]
            others = _range(np.delete(self.n_features, best))
            about += (
                f"; all {n} restarts reached it"
                if self.n_best == n
                else f"; {self.n_best} of {n} restarts reached it, the others have {others} and lie "
                f"up to {below.max():.3g} nats below"
            )
        if not self.converged:
            return (
                f"not converged: the bound still rises ({about}). "
                "What to do: more passes (max_iter), more time (max_time)."
            )
        found = f"converged (a maximum of the bound: {about}; mean field: spreads are understated)"
        if self.n_best > 1:
            return found
        return f"{found}. It may not be the highest: more restarts (n_restarts) would tell."


def _range(numbers: np.ndarray, word: str = "feature") -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low if low == high else f'{low} to {high}'} {word}{'' if high == 1 else 's'}"
