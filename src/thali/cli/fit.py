"""`thali fit`: a data file in, a `.thali` file out, and what was found in between."""

import os
import secrets
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thali.cli.compiling import compile_kernels
from thali.cli.console import Code, count, file_size, say, show_json
from thali.cli.model_options import Noise, Observation, Offset, Prior, make_estimator, make_observation, make_prior
from thali.errors import InvalidDataError, InvalidFileError, InvalidParameterError

if TYPE_CHECKING:
    from thali.io import Table

_WORDS = {Observation.LINEAR_GAUSSIAN: "linear-Gaussian"}


def fit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Data: csv, tsv, txt (also .gz), npy, npz, parquet.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to save; by default the name of FILE with .thali, here."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")] = False,
    observation: Annotated[
        Observation, typer.Option(help="How a row comes about from its features.")
    ] = Observation.LINEAR_GAUSSIAN,
    prior: Annotated[Prior, typer.Option(help="Features without bound, or at most --max-features.")] = Prior.IBP,
    max_features: Annotated[int | None, typer.Option(min=1, help="The bound of beta-bernoulli.")] = None,
    mass: Annotated[
        float | None, typer.Option(help="Features that a row is expected to have; learned if not given.")
    ] = None,
    noise: Annotated[Noise, typer.Option(help="One noise level for all dims, or one for each.")] = Noise.COMMON,
    noise_floor: Annotated[
        float, typer.Option(help="Least noise, as a share of a dim's variance; from 0 to below 1.")
    ] = 0.0,
    offset: Annotated[Offset, typer.Option(help="A row without features is zero, or is learned.")] = Offset.NONE,
    chains: Annotated[int, typer.Option(min=1, help="Chains, compared to judge convergence.")] = 4,
    warmup: Annotated[int | None, typer.Option(min=0, help="Sweeps before the first draw; by default 500.")] = None,
    draws: Annotated[int | None, typer.Option(min=1, help="Draws kept from each chain; by default 500.")] = None,
    thin: Annotated[int | None, typer.Option(min=1, help="Sweeps from draw to draw; by default 1.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Makes the run repeatable; drawn and shown if not given.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Threads; by default all cores. The result is the same.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write a summary to standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but warnings and errors.")] = False,
) -> None:
    """Find the features in FILE and save the fit.

    Cells that are empty or NaN are missing. Press Ctrl-C to stop early: what was drawn until then is saved.
    """
    start = time.monotonic()
    if (prior is Prior.BETA_BERNOULLI) != (max_features is not None):
        raise typer.BadParameter("--max-features and --prior beta-bernoulli belong together: give both or neither.")
    output = _checked_output(file, output, overwrite)

    from thali.io import read_table

    table = read_table(file)
    seed = secrets.randbelow(2**31) if seed is None else seed
    try:
        model = make_estimator(
            make_observation(observation, noise, noise_floor, offset),
            make_prior(prior, max_features, mass),
            table.X.shape,
            {"n_warmup": warmup, "n_draws": draws, "thin": thin},
            n_chains=chains,
            n_jobs=jobs,
            random_state=seed,
            verbose=not quiet,
        )
    except InvalidParameterError as error:
        raise typer.BadParameter(str(error)) from error

    from thali.auto import choose
    from thali.cli.summary import disagreement, found, summarise

    inference, reason = choose(model.inference, model.prior, model.observation, *table.X.shape)
    if inference is model.inference:  # only its settings were asked for
        reason = choose("auto", model.prior, model.observation, *table.X.shape).reason
    say(f"{file.name}  {_describe(table)}  -> {_WORDS[observation]}", quiet=quiet)
    say(f"inference: {reason}", quiet=quiet)
    say(f"{count(chains, 'chain')} of {_plan(inference)}, seed {seed}", quiet=quiet)
    compile_kernels(quiet=quiet)
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        try:
            model.fit(_with_names(table))
        except InvalidDataError as error:
            raise InvalidDataError(f"{file}: {error}") from error
    for text in dict.fromkeys(str(remark.message) for remark in remarks):
        say(f"warning: {text}", style="yellow")

    summary = summarise(model)
    interrupted = model.interrupted_
    say(model.check(), style="green" if model.converged_ else "yellow", quiet=quiet)
    if not model.converged_:
        more = f"try --warmup {2 * inference.n_warmup or 500} --draws {2 * inference.n_draws}"
        say(f"{disagreement(summary)}{'' if interrupted else '   ' + more}", style="yellow", quiet=quiet)
    say(found(summary), style="bold", quiet=quiet)
    model.set_params(verbose=None, n_jobs=None)  # they do not bear on the result, so the file does not depend on them
    model.save(output)
    say(f"saved {output} ({file_size(output)})", quiet=quiet)

    if json:
        about_data = {
            "file": str(file),
            "n_rows": table.X.shape[0],
            "n_dims": table.X.shape[1],
            "missing_share": _missing_share(table),
            "observation": observation.value,
            "prior": prior.value,
            "seed": seed,
        }
        about_run = {"interrupted": interrupted, "seconds": round(time.monotonic() - start, 3), "output": str(output)}
        show_json(about_data | summary | about_run)
    if interrupted:
        raise typer.Exit(Code.INTERRUPTED)
    if not model.converged_:
        raise typer.Exit(Code.NOT_CONVERGED)


def _checked_output(file: Path, output: Path | None, overwrite: bool) -> Path:
    """The file to write, or an error before any work."""
    if output is None:
        output = Path(Path(file.name.removesuffix(".gz")).stem + ".thali")
    folder = output.parent
    if not folder.is_dir():
        raise InvalidFileError(f"there is no folder {folder} to save {output.name} in. Create it, or choose another -o")
    if output.is_dir():
        raise InvalidFileError(f"{output} is a folder. Name a file with -o, such as {output / 'fit.thali'}")
    if output.exists() and not overwrite:
        raise InvalidFileError(f"{output} exists. Choose another name with -o, or replace it with --overwrite")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidFileError(f"no permission to write in the folder {folder}. Choose another with -o")
    return output


def _plan(inference: Any) -> str:
    thin = f", each {inference.thin} sweeps apart" if inference.thin > 1 else ""
    return f"{count(inference.n_warmup, 'warm-up sweep')} and {count(inference.n_draws, 'draw')}{thin}"


def _with_names(table: "Table") -> Any:
    """The data, with the names of the dims where the file has them: they are saved with the fit."""
    if table.dim_names is None:
        return table.X
    from pandas import DataFrame

    return DataFrame(table.X, columns=list(table.dim_names))


def _missing_share(table: "Table") -> float:
    import numpy as np

    return float(np.isnan(table.X).mean())


def _describe(table: "Table") -> str:
    """1 200 rows x 36 dims, real-valued, 3.1 % missing"""
    import numpy as np

    seen = table.X[~np.isnan(table.X)]
    if np.isin(seen, (0.0, 1.0)).all():
        kind = "zeros and ones"
    else:
        kind = "whole numbers" if (seen == np.round(seen)).all() else "real-valued"
    share = _missing_share(table)
    missing = "nothing missing" if share == 0 else f"{max(100 * share, 0.1):.1f} % missing"
    n_rows, n_dims = table.X.shape
    return f"{count(n_rows, 'row')} x {count(n_dims, 'dim')}, {kind}, {missing}"
