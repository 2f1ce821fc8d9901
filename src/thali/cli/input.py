"""The data of a command: read from a file, described in a line, some cells hidden to be predicted."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from thali.cli.console import count
from thali.cli.near import Near

if TYPE_CHECKING:
    import numpy as np

    from thali.estimator import LatentFeatures
    from thali.io import Table

_NOTHING_NEAR = Near()


class Data(NamedTuple):
    """A table, and which of its cells are hidden from the fit."""

    file: Path
    X: "np.ndarray"
    hidden: "np.ndarray"  # boolean
    dim_names: tuple[str, ...] | None
    reading: str = ""  # how the file was read, in lines
    lines: "np.ndarray | None" = None  # of a text file: the line of each row
    near: Mapping[str, Any] = MappingProxyType({})  # times, coordinates or distances, as `fit` takes them

    @property
    def visible(self) -> Any:
        """What is fitted, with the names of the dims where the file has them: they are saved with the fit."""
        import numpy as np

        return self._named(np.where(self.hidden, np.nan, self.X))

    @property
    def heldout_values(self) -> Any:
        """What a fit may look at while it runs, to say how well it predicts."""
        return self._named(self.X) if self.hidden.any() else None

    def _named(self, X: "np.ndarray") -> Any:
        if self.dim_names is None:
            return X
        from pandas import DataFrame

        return DataFrame(X, columns=list(self.dim_names))

    @property
    def missing_share(self) -> float:
        import numpy as np

        return float(np.isnan(self.X).mean())

    def wholly_missing(self) -> str:
        """Where a fit finds nothing at all, to be put behind its complaint."""
        import numpy as np

        missing = np.isnan(self.X)
        rows, dims = np.flatnonzero(missing.all(axis=1)), np.flatnonzero(missing.all(axis=0))
        where = []
        if len(rows):
            where.append(f"row {rows[0] + 1}" if self.lines is None else f"line {self.lines[rows[0]]}")
        if len(dims):
            where.append(f"dim {dims[0] + 1}{f' (column {self.dim_names[dims[0]]!r})' if self.dim_names else ''}")
        return f" Wholly missing: {', '.join(where)}." if where else ""

    def describe(self) -> str:
        """1 200 rows x 36 dims, real-valued, 3.1 % missing"""
        import numpy as np

        seen = self.X[~np.isnan(self.X)]
        if not seen.any():
            kind = "all zeros"
        elif np.isin(seen, (0.0, 1.0)).all():
            kind = "zeros and ones" if (seen == 0.0).any() else "all ones"
        else:
            kind = "whole numbers" if (seen == np.round(seen)).all() else "real-valued"
        share = self.missing_share
        missing = "nothing missing" if share == 0 else f"{max(100 * share, 0.1):.1f} % missing"
        hidden = f", {count(int(self.hidden.sum()), 'cell')} held out" if self.hidden.any() else ""
        n_rows, n_dims = self.X.shape
        return f"{count(n_rows, 'row')} x {count(n_dims, 'dim')}, {kind}, {missing}{hidden}"

    def heldout(self, model: "LatentFeatures") -> dict[str, float] | None:
        """Log score per hidden cell: of the fit, and of the mean (and variance) of what is visible in each dim."""
        if not self.hidden.any():
            return None
        import numpy as np

        name, scores = model.posterior_.model.observation.log_by_dim(np.where(self.hidden, np.nan, self.X), self.X)
        return {
            "n_cells": int(self.hidden.sum()),
            "model": float(model.heldout_score(self._named(self.X), self.hidden)),
            name: float(scores[self.hidden].mean()),
        }


def read_data(file: Path, holdout: float, seed: int, near: Near = _NOTHING_NEAR) -> Data:
    """The table in `file`, with a share of its observed cells hidden, without the columns that are no dims."""
    from thali.data.hidden_cells import hidden_cells
    from thali.io import read_table
    from thali.rng import make_generator

    table = read_table(file)
    reading = how_read(table)
    table, given = near.taken_from(table)
    rng = make_generator(seed)  # chains use streams spawned from it
    return Data(file, table.X, hidden_cells(rng, table.X, holdout), table.dim_names, reading, table.lines, given)


def how_read(table: "Table") -> str:
    """What was taken as header, as names and as missing; in lines of their own, what may have been meant otherwise."""
    n_rows, n_dims = table.X.shape
    size = f"{count(n_rows, 'row')} x {count(n_dims, 'dim')}"
    facts = [f"read {size}; {'; '.join(table.reading)}"] if table.reading else []
    return "\n".join([*facts, *(f"note: {doubt}" for doubt in table.doubts)])
