"""`thali fit`: a data file in, a `.thali` file out, and what was found in between."""

import os
import secrets
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from thali.cli.after_fit import claimed, report, run_folder, sample
from thali.cli.console import count, say
from thali.cli.input import read_data
from thali.cli.model_options import (
    FitPrior,
    Inference,
    Observation,
    make_estimator,
    make_observation,
    make_prior,
)
from thali.cli.near import CoordinateColumns, DistancesFile, Near, TimesColumn, near_prior
from thali.cli.options import (
    Chains,
    DataFile,
    Jobs,
    Mass,
    MaxFeatures,
    MaxTime,
    NoiseFloor,
    NoiseLevels,
    NumberOfDraws,
    ObservationModel,
    OffsetOfRows,
    Quiet,
    Seed,
    SummaryAsJson,
    TargetEss,
    Warmup,
    WhoseLoadings,
)
from thali.cli.warm_up import compile_kernels
from thali.errors import InvalidFileError, InvalidParameterError
from thali.storage.claims import Claim, holds_run


def fit(
    file: DataFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to save; by default the name of FILE with .thali, here."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")] = False,
    observation: ObservationModel = Observation.LINEAR_GAUSSIAN,
    prior: Annotated[
        FitPrior,
        typer.Option(
            help="Features without bound, or at most --max-features; with --times and its like, how rows share them."
        ),
    ] = FitPrior.IBP,
    max_features: MaxFeatures = None,
    mass: Mass = None,
    times: TimesColumn = None,
    coordinates: CoordinateColumns = None,
    distances: DistancesFile = None,
    noise: NoiseLevels = None,
    noise_floor: NoiseFloor = None,
    offset: OffsetOfRows = None,
    sparse: WhoseLoadings = None,
    inference: Annotated[
        Inference, typer.Option(help="Draws from the posterior, or an approximation for large data; auto: by size.")
    ] = Inference.AUTO,
    chains: Chains = 4,
    warmup: Warmup = None,
    draws: NumberOfDraws = None,
    thin: Annotated[int | None, typer.Option(min=1, help="Sweeps from draw to draw; by default 1.")] = None,
    seed: Seed = None,
    max_time: MaxTime = None,
    target_ess: TargetEss = None,
    holdout: Annotated[float, typer.Option(help="Hide this share of the cells, and score their prediction.")] = 0.0,
    checkpoint: Annotated[
        bool,
        typer.Option(
            "--checkpoint/--no-checkpoint",
            help="Keep the run in OUTPUT.run until it is finished, so that `thali resume` can go on with it.",
        ),
    ] = True,
    jobs: Jobs = None,
    json: SummaryAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find the features in FILE and save the fit.

    Cells that are empty, NaN, NA, n/a and the like are missing; what is taken as missing, as header and as row names is
    said. With --times, --coordinates or --distances, rows that are near each other share features; such columns are no
    dims. Press Ctrl-C to stop early: what was drawn until then is saved, and `thali resume` goes on from there, as it
    does after a crash.
    """
    began = time.monotonic()
    if (prior is FitPrior.BETA_BERNOULLI) != (max_features is not None):
        raise typer.BadParameter("--max-features and --prior beta-bernoulli belong together: give both or neither.")
    if not 0 <= holdout < 1:
        raise typer.BadParameter(f"--holdout must be a share, from 0 to below 1. Got {holdout}.")
    near = Near.of(times, coordinates, distances)
    near.check_prior(prior)
    output = _possible_output(file, output)
    claim = Claim(run_folder(output), replaces=overwrite)
    with claimed(claim, output, make=checkpoint) if checkpoint or claim.folder.is_dir() else nullcontext():
        _check_output(output, overwrite)
        seed = secrets.randbelow(2**31) if seed is None else seed
        data = read_data(file, holdout, seed, near)
        try:
            model = make_estimator(
                make_observation(observation, noise, noise_floor, offset, sparse),
                near_prior(prior, data.near, mass) if near.is_given else make_prior(prior, max_features, mass),
                data.X.shape,
                {"n_warmup": warmup, "n_draws": draws, "thin": thin},
                inference,
                n_chains=chains,
                n_jobs=jobs,
                random_state=seed,
                verbose=not quiet,
                max_time=max_time,
                target_ess=target_ess,
                checkpoint=claim,
            )
        except InvalidParameterError as error:
            raise typer.BadParameter(str(error)) from error

        from thali.running.choose import choose

        chosen, reason = choose(model.inference, model.prior, model.observation, *data.X.shape)
        if chosen is model.inference and inference is Inference.AUTO:  # only its settings were asked for
            reason = _sampler_reason(model, data.X.shape)
        samples = chosen.shape == "chains"
        if not samples and target_ess is not None:  # there are no draws to wait for
            raise typer.BadParameter("--target-ess is for samplers; leave it out, or add --inference sampler.")
        if not checkpoint:
            model.set_params(checkpoint=None)
        say(data.reading, quiet=quiet or not data.reading)
        say(f"{file.name}  {data.describe()}  -> {model.observation.words}", quiet=quiet)
        say(f"inference: {reason}", quiet=quiet)
        say(f"{_plan(chosen, chains)}, seed {seed}", quiet=quiet)
        compile_kernels(model.observation, chosen, quiet=quiet)
        heldout = data.heldout_values if samples else None
        claim.command = {"file": str(file.resolve()), "holdout": holdout, "seed": seed}
        claim.command |= {name: value for name, value in near._asdict().items() if value is not None}
        model = sample(lambda: model.fit(data.visible, heldout=heldout, **data.near), data)
        report(model, data, output, claim, began, json=json, quiet=quiet)


def _possible_output(file: Path, output: Path | None) -> Path:
    """The file to write, or an error before any work."""
    if output is None:
        output = Path(Path(file.name.removesuffix(".gz")).stem + ".thali")
    folder = output.parent
    if not folder.is_dir():
        raise InvalidFileError(f"there is no folder {folder} to save {output.name} in. Create it, or choose another -o")
    if output.is_dir():
        raise InvalidFileError(f"{output} is a folder. Name a file with -o, such as {output / 'fit.thali'}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidFileError(f"no permission to write in the folder {folder}. Choose another with -o")
    return output


def _check_output(output: Path, overwrite: bool) -> None:
    """Refuse to replace what is there, unless asked. Only who holds the folder of its run can know."""
    if overwrite:
        return
    if output.exists():
        raise InvalidFileError(f"{output} exists. Choose another name with -o, or replace it with --overwrite")
    run = run_folder(output)
    if holds_run(run):
        raise InvalidFileError(
            f"{run} holds a run that is not finished. Go on with it: thali resume {output}\n"
            "or begin anew with --overwrite, or choose another name with -o"
        )


def _sampler_reason(model: Any, shape: tuple[int, ...]) -> str:
    from thali.running.choose import sampler

    found = sampler(model.prior, model.observation, *shape)
    assert found is not None  # or its settings could not have been asked for
    return found.reason


def _plan(inference: Any, n_chains: int) -> str:
    """What is going to be done: 4 chains of 500 warm-up sweeps and 500 draws."""
    if inference.shape == "restarts":
        return f"{count(inference.n_restarts, 'restart')} of at most {inference.max_iter} passes"
    if inference.shape == "blocks":
        return f"at most {inference.n_epochs} passes over blocks of {inference.batch_size} rows"
    if inference.shape == "rows" and not inference.keeps_rows:
        return "one pass over the rows"
    if inference.shape == "rows":
        return f"{count(n_chains, 'filter')} of {inference.n_particles} particles"
    thin = f", each {inference.thin} sweeps apart" if inference.thin > 1 else ""
    sweeps = f"{count(inference.n_warmup, 'warm-up sweep')} and {count(inference.n_draws, 'draw')}{thin}"
    return f"{count(n_chains, 'chain')} of {sweeps}"
