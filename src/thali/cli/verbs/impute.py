"""`thali impute`: a file with its missing cells filled."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thali.cli.console import count, say
from thali.cli.saved_fit import Rows, check_output, load_fit, put, read_rows
from thali.cli.warm_up import compiled_once
from thali.errors import InvalidDataError

if TYPE_CHECKING:
    import numpy as np

    from thali.io import Table


def impute(
    fit: Annotated[Path, typer.Argument(metavar="FIT", help="A .thali file.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Rows with the dims of the fit.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="csv, tsv, npy, npz or parquet; by default csv to standard output."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")] = False,
    interval: Annotated[
        float | None, typer.Option(help="Add the ends of a predictive interval, such as 0.9, of each filled cell.")
    ] = None,
) -> None:
    """Write DATA with its missing cells filled by their posterior means; other cells stay as they are.

    With --interval, dims that had missing cells get two columns more, NAME_lower and NAME_upper, which are empty where
    nothing was missing.
    """
    if interval is not None and not 0 < interval < 1:
        raise typer.BadParameter(f"--interval must lie between 0 and 1. Got {interval}.")
    check_output(output, overwrite)
    model = load_fit(fit)
    rows = read_rows(data, model)
    import numpy as np

    missing = np.isnan(rows.table.X)
    dims = np.flatnonzero(missing.any(axis=0))
    with compiled_once(f"impute-{type(model.posterior_.model.observation).__name__}"):
        found = model.impute(rows.X, interval=interval)
    if interval is None:
        table = rows.table._replace(X=_as_in_file(rows, found))
    else:
        filled, *ends = (_as_in_file(rows, values) for values in found)
        table = _with_ends(rows.table, filled, [np.where(missing, end, np.nan) for end in ends], dims)
    put(table, output)
    say(f"filled {count(int(missing.sum()), 'cell')} in {count(len(dims), 'dim')}")


def _as_in_file(rows: Rows, values: "np.ndarray") -> "np.ndarray":
    """Columns in the order of the file."""
    import numpy as np

    return values[:, np.argsort(rows.order)]


def _with_ends(table: "Table", filled: "np.ndarray", ends: list["np.ndarray"], dims: "np.ndarray") -> "Table":
    import numpy as np

    names = list(table.dim_names or [f"dim_{d}" for d in range(filled.shape[1])])
    more = [f"{names[d]}_{end}" for d in dims for end in ("lower", "upper")]
    taken = sorted(set(more) & set(names))
    if taken:
        raise InvalidDataError(f"{table.source} has a column {taken[0]!r} already, which --interval adds. Rename it")
    columns = [end[:, d] for d in dims for end in ends]
    return table._replace(X=np.column_stack([filled, *columns]), dim_names=(*names, *more))
