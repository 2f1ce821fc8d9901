"""What the verbs that use a fit share: the fit, data for it, and a table that goes to a file or to standard output."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from thali.cli.after_fit import run_folder
from thali.cli.console import count, file_size, say
from thali.cli.input import how_read
from thali.errors import InvalidDataError, InvalidFileError
from thali.storage.claims import holds_run, sweep

if TYPE_CHECKING:
    import numpy as np

    from thali.estimator import LatentFeatures
    from thali.io import Table


def load_fit(file: Path) -> "LatentFeatures":
    """The fit in a file; if there is none yet but a run on its way to one, how to go on with that."""
    from thali import load

    sweep(run_folder(file))
    if not os.path.exists(file) and holds_run(run_folder(file)):
        raise InvalidFileError(
            f"there is no fit {file} yet, but a run that is not finished. Go on with it: thali resume {file}"
        )
    return load(file)


class Rows(NamedTuple):
    """A table of rows for a fit."""

    table: "Table"
    X: Any  # its cells as the fit wants them
    order: "np.ndarray"  # the column of the table for each dim of the fit


def read_rows(file: Path, model: "LatentFeatures") -> Rows:
    """The rows in a file, their dims matched to those of the fit: by name if both have names, else by place."""
    import numpy as np
    from pandas import DataFrame

    from thali.io import read_table

    table = read_table(file)
    wanted = [str(name) for name in getattr(model, "feature_names_in_", [])]
    order = np.arange(table.X.shape[1])
    if wanted and table.dim_names is not None and list(table.dim_names) != wanted:
        _check_names(file, table.dim_names, wanted)
        order = np.array([table.dim_names.index(name) for name in wanted])
    elif len(order) != model.n_features_in_:
        raise InvalidDataError(
            f"{file} has {count(len(order), 'dim')}, but the fit has {model.n_features_in_}. Give it the same dims"
        )
    if reading := how_read(table):
        say(reading)
    X = table.X[:, order]
    return Rows(table, DataFrame(X, columns=wanted) if wanted else X, order)


def _check_names(file: Path, found: tuple[str, ...], wanted: list[str]) -> None:
    """The same names, in any order."""
    wrong = [
        f"{words} {_listed(names)}"
        for words, names in (
            ("lacks", [name for name in wanted if name not in found]),
            ("has besides", [name for name in found if name not in wanted]),
            ("has more than one", [name for name in dict.fromkeys(found) if found.count(name) > wanted.count(name)]),
        )
        if names
    ]
    if wrong or len(set(wanted)) < len(wanted):
        what = "; it ".join(wrong) or "has them in another order, and some have the same name"
        raise InvalidDataError(f"{file} does not have the dims of the fit: it {what}. Give it the same columns")


def _listed(names: list[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(repr(name) for name in names[:limit]) + more


def check_output(output: Path | None, overwrite: bool) -> None:
    """An error before any work, if a table could not be written there."""
    if output is None:
        return
    from thali.io.write import check_suffix

    if not os.path.isdir(output.parent):
        raise InvalidFileError(f"there is no folder {output.parent} to write {output.name} in. Create it")
    if os.path.isdir(output):
        raise InvalidFileError(f"{output} is a folder. Name a file with -o")
    check_suffix(output)
    if os.path.exists(output) and not overwrite:
        raise InvalidFileError(f"{output} exists. Choose another name with -o, or replace it with --overwrite")
    if not os.access(output.parent, os.W_OK | os.X_OK):
        raise InvalidFileError(f"no permission to write in the folder {output.parent}. Choose another with -o")


def put(table: "Table", output: Path | None) -> None:
    """Write a table to a file, or as csv to standard output."""
    from thali.io import print_table, write_table

    if output is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")
        print_table(table, sys.stdout)
        return
    write_table(table, output)
    n_rows, n_columns = table.X.shape
    size = f"{count(n_rows, 'row')} x {count(n_columns, 'column')}, {file_size(output)}"
    say(f"wrote {output} ({size})")
