"""`thali simulate`: data with a known answer, from any prior and observation model."""

import json as json_format
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from thali.cli.console import count, file_size, say, show_json
from thali.cli.model_options import Observation
from thali.cli.prior_options import AnyPrior, Decay, make_any_prior
from thali.errors import InvalidFileError, InvalidParameterError

if TYPE_CHECKING:
    import numpy as np

_MOST_CELLS = 200_000_000  # of a matrix in double precision: 1.6 GB
_SUFFIXES = (".npz", ".csv")


def simulate(
    rows: Annotated[int, typer.Option(min=1, help="How many rows.")],
    dims: Annotated[int, typer.Option(min=1, help="How many dims.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="NAME.npz with everything in it, NAME.csv and files beside it, or - for X alone."
        ),
    ] = Path("simulated.npz"),
    digits: Annotated[
        int | None, typer.Option(min=1, max=17, help="Of the numbers with -o -: fewer are quicker; by default all.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")] = False,
    prior: Annotated[AnyPrior, typer.Option(help="Where the features of rows come from.")] = AnyPrior.IBP,
    mass: Annotated[float | None, typer.Option(help="Expected features of a row; by default drawn.")] = None,
    concentration: Annotated[float | None, typer.Option(help="Larger values share features less.")] = None,
    discount: Annotated[
        float | None, typer.Option(help="ibp: a power law of feature counts, from 0 to below 1.")
    ] = None,
    max_features: Annotated[
        int | None, typer.Option(min=1, help="beta-bernoulli, stick-breaking: how many features at most.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="beta-process: how many rounds at most.")] = None,
    group_concentration: Annotated[
        float | None, typer.Option(help="hierarchical: smaller values make distant rows differ more.")
    ] = None,
    decay: Annotated[
        Decay | None, typer.Option(help="distance-dependent, hierarchical: how features fade, row after row.")
    ] = None,
    decay_width: Annotated[float | None, typer.Option(help="Over how many rows; by default 10.")] = None,
    observation: Annotated[Observation, typer.Option(help="Model of the data.")] = Observation.LINEAR_GAUSSIAN,
    noise_var: Annotated[float | None, typer.Option(help="Noise variance; by default drawn.")] = None,
    feature_var: Annotated[
        float | None, typer.Option(help="Variance of the features' values; by default drawn.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Makes the data repeatable; drawn and shown if not given.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write what was made to standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but warnings and errors.")] = False,
) -> None:
    """Make data whose features are known, to try methods on.

    NAME.npz holds X, Z, features and every parameter by name. NAME.csv holds X, and beside it are NAME-Z.csv,
    NAME-features.csv and NAME-parameters.json. With -o - the rows of X go to standard output, for
    `thali stream`.
    """
    to_pipe = str(output) == "-"
    if to_pipe and json:
        raise typer.BadParameter("--json and -o - both write to standard output; leave one out.")
    if digits is not None and not to_pipe:
        raise typer.BadParameter("--digits is for -o -; leave it out, since files have all digits.")
    files = {} if to_pipe else _checked_files(output, overwrite)
    seed = secrets.randbelow(2**31) if seed is None else seed
    given = {
        "mass": mass,
        "concentration": concentration,
        "discount": discount,
        "max_features": max_features,
        "rounds": rounds,
        "group_concentration": group_concentration,
        "decay": decay,
        "decay_width": decay_width,
    }
    try:
        _check_size(rows, dims)
        likelihood = _observation(observation, noise_var, feature_var)
        model = make_any_prior(prior, likelihood.n_owners((rows, dims)), given)
        truth = _draw(model, likelihood, rows, dims, seed)
    except InvalidParameterError as error:
        raise typer.BadParameter(str(error)) from error
    except MemoryError as error:
        raise typer.BadParameter("this does not fit into memory; ask for less.") from error
    about = {"prior": str(prior), "observation": str(observation), "seed": seed}
    about |= {"decay": str(decay)} if decay is not None else {}
    about |= {"decay_width": decay_width} if decay_width is not None else {}
    if not to_pipe:
        _write(files, truth, about)
    n_features, n_used = truth.Z.shape[1], int(truth.Z.any(axis=0).sum())
    used = f" ({n_used} in use)" if n_used < n_features else ""
    size = f"{count(rows, 'row')} x {count(dims, 'dim')}, {count(n_features, 'feature')}{used}"
    say(f"{size}  {prior} x {observation}, seed {seed}", quiet=quiet)
    if to_pipe:
        from thali.io import print_rows

        print_rows(truth.X, tuple(f"dim_{d}" for d in range(dims)), sys.stdout, digits)
    for file in files.values():
        say(f"wrote {file} ({file_size(file)})", quiet=quiet)
    if json:
        sizes = {"n_rows": rows, "n_dims": dims, "n_features": n_features, "n_used": n_used}
        names = [str(file) for file in files.values()]
        show_json({"files": names, **about, **sizes, "parameters": _plain(truth.parameters)})


class Truth(NamedTuple):
    """Data, and what they are made of."""

    X: "np.ndarray"
    Z: "np.ndarray"
    features: "np.ndarray"
    parameters: dict[str, Any]  # hyperparameters of prior and observation model, numbers or one per dim


def _draw(prior: Any, observation: Any, n_rows: int, n_dims: int, seed: int) -> Truth:
    from thali.rng import make_generator

    rng = make_generator(seed)
    prior, observation = prior.draw(rng), observation.draw(rng, n_dims)
    n_owners = observation.n_owners((n_rows, n_dims))
    _check_size(n_owners, _expected_features(prior, n_owners))
    Z = prior.simulate(rng, n_owners)
    if observation.owners == "dims":
        loadings = observation.draw_codes(rng, Z)
        features, X = loadings.T, observation.simulate(rng, Z, n_dims=n_rows, codes=loadings)
    else:
        features = observation.draw_features(rng, Z.shape[1], n_dims)
        X = observation.simulate(rng, Z, features=features)
    return Truth(X, Z, features, _numbers(prior) | _numbers(observation))


def _expected_features(prior: Any, n_rows: int) -> float:
    """How many columns Z will have, about: that of the IBP with the same mass, if the prior does not know better."""
    from thali import IBP

    if getattr(prior, "n_features", None) is not None:
        return float(prior.n_features)
    if hasattr(prior, "owner_rates"):
        return float(prior.owner_rates().sum())
    concentration, discount = getattr(prior, "concentration", 1.0), getattr(prior, "discount", 0.0)
    return IBP(prior.mass, concentration, discount).expected_features(n_rows)


def _numbers(spec: Any) -> dict[str, Any]:
    """The learnable parameters of a concrete spec."""
    import dataclasses

    fields = [field.name for field in dataclasses.fields(spec) if "learnable" in field.metadata]
    return {name: getattr(spec, name) for name in fields if getattr(spec, name) is not None}


def _observation(kind: Observation, noise_var: float | None, feature_var: float | None) -> Any:
    parts = {"noise_var": noise_var, "feature_var": feature_var}
    given = {name: value for name, value in parts.items() if value is not None}
    if given and kind is Observation.POISSON_GAMMA:
        raise InvalidParameterError("--noise-var and --feature-var are not for counts; leave them out.")
    return kind.make(**given)


def _check_size(n_rows: int, n_columns: float) -> None:
    if n_rows * n_columns > _MOST_CELLS:
        raise InvalidParameterError(
            f"{n_rows} rows by {n_columns:.0f} columns are more than {_MOST_CELLS:,} cells. Ask for less."
        )


# --- files ----------------------------------------------------------------------------------------


def _checked_files(output: Path, overwrite: bool) -> dict[str, Path]:
    """The files to write, by what they hold, or an error before any work."""
    suffix = output.suffix.lower()
    if suffix not in _SUFFIXES:
        raise InvalidFileError(f"{output} must end in {' or '.join(_SUFFIXES)}. Choose another name with -o")
    files = {"all": output}
    if suffix == ".csv":
        kinds = {"Z": "-Z.csv", "features": "-features.csv", "parameters": "-parameters.json"}
        files = {"X": output} | {kind: output.with_name(output.stem + end) for kind, end in kinds.items()}
    if not os.path.isdir(output.parent):
        raise InvalidFileError(f"there is no folder {output.parent} to write {output.name} in. Create it")
    for file in files.values():
        if os.path.isdir(file):
            raise InvalidFileError(f"{file} is a folder. Choose another name with -o")
        if os.path.exists(file) and not overwrite:
            raise InvalidFileError(f"{file} exists. Choose another name with -o, or replace it with --overwrite")
    if not os.access(output.parent, os.W_OK | os.X_OK):
        raise InvalidFileError(f"no permission to write in the folder {output.parent}. Choose another with -o")
    return files


def _write(files: dict[str, Path], truth: Truth, about: dict[str, Any]) -> None:
    import numpy as np

    from thali.io import Table, write_table
    from thali.io.write import whole_file

    if "all" in files:
        with whole_file(files["all"]) as file:
            np.savez(file, X=truth.X, Z=truth.Z, features=truth.features, **truth.parameters, **about)
        return
    dims = tuple(f"dim_{d}" for d in range(truth.X.shape[1]))
    names = tuple(f"feature_{k}" for k in range(truth.Z.shape[1]))
    write_table(Table(truth.X, None, dims, "", ""), files["X"])
    write_table(Table(truth.Z, None, names, "", ""), files["Z"])
    write_table(Table(truth.features, None, dims, "", ""), files["features"])
    text = json_format.dumps({**about, **_plain(truth.parameters)}, indent=2)
    with whole_file(files["parameters"]) as file:
        file.write(text.encode() + b"\n")


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Numbers and lists."""
    import numpy as np

    return {name: np.asarray(value).tolist() for name, value in parameters.items()}
