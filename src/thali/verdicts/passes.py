"""What the passes of an inference by blocks of rows say about its answer."""

from typing import NamedTuple, Self

import numpy as np

from thali.verdicts.chains import Agreement


class Passes(NamedTuple):
    """The bound and the number of features after each pass over the data, or after each batch of a stream."""

    bound: np.ndarray
    n_features: np.ndarray
    n_rows: np.ndarray  # that the bound is of
    settled: bool  # whether another pass would have changed little
    in_stream: bool  # whether each batch was seen once
    estimated: bool  # whether the bound is an estimate

    @classmethod
    def of(cls, history: dict[str, np.ndarray], *, estimated: bool) -> Self:
        bound, n_features, n_rows = (history[name][0] for name in ("bound", "n_features", "n_rows"))
        settled, in_stream = (bool(history[name][0]) for name in ("settled", "in_stream"))
        return cls(bound, n_features, n_rows, settled, in_stream, estimated)

    def agreement(self) -> Agreement:
        """Of one chain with itself."""
        return Agreement(0, self.n_features[-1:], self.bound[-1:], np.zeros(1))

    def verdict(self) -> str:
        """In words: whether the bound stopped rising, and what to do."""
        k, n = self.n_features[-1], len(self.bound)
        kind = "estimated bound" if self.estimated else "bound"
        where = f"{kind} {self.bound[-1]:.8g} of {self.n_rows[-1]} rows, {k} feature{'' if k == 1 else 's'}"
        if self.in_stream:
            seen = f"{n} batch{'' if n == 1 else 'es'}, each seen once"
            return f"not judged: {seen}; {where}. What to do: fit an array or a memory map, whose rows are revisited."
        passes = f"{n} pass{'' if n == 1 else 'es'}"
        if self.settled:
            return f"converged ({where} after {passes})"
        if self.estimated:
            moved = f" that moved by {abs(self.bound[-1] - self.bound[-2]):.3g} in the last" if n > 1 else ""
            return f'not judged: {where} after {passes}{moved}. What to do: method="memoised", whose bound is exact.'
        return (
            f"not converged: still rising after {passes} at {where}. "
            "What to do: more passes (n_epochs), more time (max_time)."
        )
