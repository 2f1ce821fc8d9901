"""What can be said of rows that came once and were forgotten."""

from typing import NamedTuple, Self

import numpy as np

from thali.verdicts.chains import Agreement


class SeenOnce(NamedTuple):
    """The number of features after some of the rows, the last of them included."""

    n_rows: np.ndarray
    n_features: np.ndarray

    @classmethod
    def of(cls, history: dict[str, np.ndarray]) -> Self:
        return cls(history["n_rows"][0], history["n_features"][0])

    def agreement(self) -> Agreement:
        """Of one filter with itself."""
        return Agreement(0, np.array([round(float(self.n_features[-1]))]), np.zeros(1), np.zeros(1))

    def verdict(self) -> str:
        """In words: how many rows, how many features, and whether that number has changed lately."""
        n, k = int(self.n_rows[-1]), round(float(self.n_features[-1]))
        half = self.n_features[self.n_rows >= 0.5 * n]
        moved = round(float(half.max())) - round(float(half.min()))
        steady = "as many throughout their last half" if moved == 0 else f"{moved} more or fewer in their last half"
        rows, features = f"{n} row{'' if n == 1 else 's'}", f"{k} feature{'' if k == 1 else 's'}"
        return (
            f"not judged: {rows}, each seen once; {features}, {steady}. "
            "What to do: where rows can be kept, fit some of them by CollapsedGibbs() and compare."
        )
