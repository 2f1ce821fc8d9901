"""How far rows are from each other, on the command line: columns of the data, or a file of distances."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from thali.cli.model_options import FitPrior

if TYPE_CHECKING:
    from thali.io import Table

TimesColumn = Annotated[
    str | None,
    typer.Option("--times", metavar="COLUMN", help="A column, by name or number, that has the time of each row."),
]
CoordinateColumns = Annotated[
    str | None,
    typer.Option("--coordinates", metavar="COLUMNS", help="Columns, with commas between, that say where each row is."),
]
DistancesFile = Annotated[
    Path | None, typer.Option("--distances", metavar="FILE", help="A square table: distances between the rows.")
]


class Near(NamedTuple):
    """At most one of three ways to say it."""

    times: str | None = None
    coordinates: str | None = None
    distances: str | None = None

    @classmethod
    def of(cls, times: str | None, coordinates: str | None, distances: Path | None) -> "Near":
        near = cls(times, coordinates, None if distances is None else str(distances.resolve()))
        if sum(value is not None for value in near) > 1:
            raise typer.BadParameter("Give one of --times, --coordinates and --distances.")
        return near

    @property
    def is_given(self) -> bool:
        return any(value is not None for value in self)

    def check_prior(self, prior: FitPrior) -> None:
        """An error unless the prior is one of rows that are near each other, if this says how near they are."""
        if self.is_given and prior is FitPrior.BETA_BERNOULLI:
            raise typer.BadParameter("Rows that are near each other have a prior of their own; leave --prior out.")
        if prior.is_of_near_rows and not self.is_given:
            raise typer.BadParameter(f"--prior {prior} needs one of --times, --coordinates and --distances.")

    def taken_from(self, table: "Table") -> tuple["Table", dict[str, Any]]:
        """(the table without the columns that are no dims, what `fit` is given)."""
        import numpy as np

        if self.distances is not None:
            from thali.io import read_table

            return table, {"distances": read_table(Path(self.distances)).X}
        if not self.is_given:
            return table, {}
        option, text = ("--times", [self.times]) if self.times is not None else ("--coordinates", self._names())
        columns = [_column(table, name, option) for name in text]
        values = table.X[:, columns]
        if np.isnan(values).any():
            row = int(np.flatnonzero(np.isnan(values).any(axis=1))[0])
            raise typer.BadParameter(f"{option}: a cell is missing in row {row + 1}. Fill it in, or drop the row.")
        names = table.dim_names
        if names is not None:
            names = tuple(name for i, name in enumerate(names) if i not in columns)
        rest = table._replace(X=np.ascontiguousarray(np.delete(table.X, columns, axis=1)), dim_names=names)
        return rest, {"times": values[:, 0]} if self.times is not None else {"coordinates": values}

    def _names(self) -> list[str | None]:
        return [name.strip() for name in (self.coordinates or "").split(",")]


def _column(table: "Table", name: str | None, option: str) -> int:
    """The place of a column by its name, or by its number from 1 on."""
    names = table.dim_names or ()
    if name in names:
        return names.index(str(name))
    if name and name.isdigit() and 1 <= int(name) <= table.X.shape[1]:
        return int(name) - 1
    known = f"; there are {', '.join(names[:12])}{' ...' if len(names) > 12 else ''}" if names else ""
    raise typer.BadParameter(f"{option}: {name!r} is no column of the data, by name or by number from 1 on{known}.")


def near_prior(kind: FitPrior, given: Mapping[str, Any], mass: float | None) -> Any:
    """Proximity falls exponentially, over about a tenth of the range of times or places; a hierarchical prior has this
    very rate, others learn it."""
    from thali import DistanceDependentIBP, ExponentialDecay, Gamma, HierarchicalBetaProcess

    reach = max(_spread(given) / 10.0, 1e-6)
    if kind is FitPrior.HIERARCHICAL:
        parts: dict[str, Any] = {} if mass is None else {"mass": mass}
        learned: dict[str, Any] = {"concentration": Gamma(1.0, 1.0), "group_concentration": Gamma(1.0, 1.0)}
        return HierarchicalBetaProcess(decay=ExponentialDecay(rate=1.0 / reach), **learned, **parts)
    decay = ExponentialDecay(rate=Gamma(1.0, reach))
    return DistanceDependentIBP(decay=decay) if mass is None else DistanceDependentIBP(mass, decay=decay)


def _spread(given: Mapping[str, Any]) -> float:
    import numpy as np

    values: np.ndarray = next(iter(given.values()))
    if "distances" in given:
        finite = values[np.isfinite(values)]
        return float(finite.max(initial=0.0))
    return float(np.ptp(values, axis=0).max())
