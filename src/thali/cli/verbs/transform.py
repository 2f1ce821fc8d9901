"""`thali transform`: which features the rows of a file have."""

from pathlib import Path
from typing import Annotated

import typer

from thali.cli.console import say
from thali.cli.saved_fit import check_output, load_fit, put, read_rows
from thali.cli.warm_up import compiled_once


def transform(
    fit: Annotated[Path, typer.Argument(metavar="FIT", help="A .thali file.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Rows with the dims of the fit.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="csv, tsv, npy, npz or parquet; by default csv to standard output."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")] = False,
    presence: Annotated[
        bool, typer.Option("--presence", help="The probability of each feature, where a code says more than that.")
    ] = False,
    novelty: Annotated[
        bool, typer.Option("--novelty", help="Add the probability that a row has a feature no fitted row has.")
    ] = False,
) -> None:
    """Write the codes of the rows in DATA: a line for each row, a column for each feature of FIT.

    Rows that were fitted have the mean over their own draws; each other row is encoded by the cells that it has.
    """
    check_output(output, overwrite)
    model = load_fit(fit)
    if presence and model.posterior_.model.observation.owners == "dims":
        raise typer.BadParameter(
            "--presence is of rows, but in this fit dims have features or lack them, and rows have a score of each. "
            f"Leave it out for the scores; `thali inspect {fit} --json` says which dims have which feature."
        )
    rows = read_rows(data, model)
    import numpy as np

    if model.n_components_ == 0:
        say(f"{fit} has no features", style="yellow")
    names = [f"feature_{k}" for k in range(model.n_components_)]
    with compiled_once(f"transform-{type(model.posterior_.model.observation).__name__}"):
        codes = model.presence(rows.X) if presence else model.transform(rows.X)
        if novelty:
            codes = np.column_stack([codes, model.novelty(rows.X)])
            names.append("novelty")
    put(rows.table._replace(X=codes, dim_names=tuple(names)), output)
