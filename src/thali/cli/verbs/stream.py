"""`thali stream`: rows that arrive one after the other, and the features that are found in them meanwhile."""

import os
import re
import secrets
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thali.cli.console import Code, count, say
from thali.cli.model_options import (
    STREAM_INFERENCE,
    Observation,
    Prior,
    StreamInference,
    make_observation,
    make_prior,
)
from thali.cli.options import (
    Chains,
    Jobs,
    Mass,
    MaxFeatures,
    NoiseFloor,
    NoiseLevels,
    ObservationModel,
    OffsetOfRows,
    PriorOfFeatures,
    Quiet,
    Seed,
    WhoseLoadings,
)
from thali.cli.warm_up import compile_kernels
from thali.errors import InvalidFileError, InvalidParameterError

if TYPE_CHECKING:
    from thali.cli.streaming.run import Every
    from thali.estimator import LatentFeatures

_PARTS = {  # options -> the part of the model that they describe
    "observation": ("observation", "noise", "noise_floor", "offset", "sparse"),
    "prior": ("prior", "max_features", "mass"),
    "inference": ("inference",),
}
_SETTINGS = ("seed", "chains")
_BATCH = 1000  # rows


class Format(StrEnum):
    AUTO = "auto"
    CSV = "csv"
    TSV = "tsv"
    NDJSON = "ndjson"


class BadRows(StrEnum):
    STOP = "stop"
    SKIP = "skip"


def stream(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Rows as csv, tsv or ndjson; by default standard input.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for what is appended to FILE.")] = False,
    format: Annotated[Format, typer.Option(help="auto: by the suffix of FILE, or its first line.")] = Format.AUTO,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether the first line has names; by default told.")
    ] = None,
    bad_rows: Annotated[
        BadRows, typer.Option(help="What to do at a line that is no row: both tell its number.")
    ] = BadRows.STOP,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="The .thali file to keep the fit in. If it is there, the fit in it goes on."),
    ] = None,
    every: Annotated[str, typer.Option(help="Between two checkpoints: rows (10000), or seconds (60s).")] = "60s",
    skip_seen: Annotated[
        bool, typer.Option("--skip-seen", help="The rows that the fit in --checkpoint has seen come again.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin anew, whatever is in --checkpoint.")] = False,
    rows: Annotated[
        Path | None,
        typer.Option(help="Write presence and novelty of each row: NAME.ndjson, NAME.csv, or - among the events."),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Rows that are taken in together (1000; streaming-mean-field: 100). recursive: none."),
    ] = None,
    observation: ObservationModel = Observation.LINEAR_GAUSSIAN,
    prior: PriorOfFeatures = Prior.IBP,
    max_features: MaxFeatures = None,
    mass: Mass = None,
    noise: NoiseLevels = None,
    noise_floor: NoiseFloor = None,
    offset: OffsetOfRows = None,
    sparse: WhoseLoadings = None,
    inference: Annotated[StreamInference, typer.Option(help="What takes the rows in.")] = STREAM_INFERENCE,
    chains: Chains = 4,
    seed: Seed = None,
    jobs: Jobs = None,
    quiet: Quiet = False,
) -> None:
    """Find features in rows as they arrive. Events go to standard output, a line of JSON each.

    Ctrl-C and SIGTERM end it: what was read is taken in, and saved in --checkpoint. After a crash the same command with
    --skip-seen goes on where the last checkpoint is, once the same rows come again.
    """
    if (prior is Prior.BETA_BERNOULLI) != (max_features is not None):
        raise typer.BadParameter("--max-features and --prior beta-bernoulli belong together: give both or neither.")
    plan_every = _every(every)
    goes_on = _checked_checkpoint(checkpoint, overwrite)
    if skip_seen and checkpoint is None:
        raise typer.BadParameter("--skip-seen needs --checkpoint, which knows what was seen. Name one.")

    from thali.cli.streaming.arriving import Arriving, source_of
    from thali.cli.streaming.events import Events, RowLines
    from thali.cli.streaming.panel import Panel
    from thali.cli.streaming.run import Plan, StreamRun
    from thali.io.arriving.rows import ArrivingRows

    source, name = source_of(file, follow=follow)
    given = {option for option in context.params if _was_given(context, option)}
    try:
        parts = {
            "observation": make_observation(observation, noise, noise_floor, offset, sparse),
            "prior": make_prior(prior, max_features, mass),
            "inference": inference.make(batch),
        }
        if goes_on and checkpoint is not None:
            model = _loaded(checkpoint, parts, given, {"seed": seed, "chains": chains})
        else:
            seed = secrets.randbelow(2**31) if seed is None else seed
            model = _new(parts, chains, seed)
    except InvalidParameterError as error:
        raise typer.BadParameter(str(error)) from error
    model.set_params(n_jobs=jobs, verbose=False)

    n_seen = getattr(model, "n_samples_seen_", 0)
    reader = ArrivingRows(
        name,
        _form(format, name),
        header=header,
        dims=[str(dim) for dim in getattr(model, "feature_names_in_", [])] or None,
        n_dims=getattr(model, "n_features_in_", None),
    )
    events = Events()
    row_lines = None if rows is None else RowLines(None if str(rows) == "-" else rows, events)
    _say_plan(model, checkpoint, n_seen, skip_seen=skip_seen, quiet=quiet)
    compile_kernels(model.observation, model.inference, quiet=quiet)
    plan = Plan(batch or _BATCH, bad_rows is BadRows.SKIP, n_seen if skip_seen else 0, checkpoint, plan_every)
    with Arriving(source, reader, follow=follow) as arriving, Panel(quiet=quiet) as panel:
        run = StreamRun(model, reader, plan, panel, events, row_lines)
        try:
            run(arriving)
        finally:
            if row_lines is not None:
                row_lines.close()
    _say_end(run, checkpoint, quiet=quiet)
    if run.stopped_by is not None:
        raise typer.Exit(Code.INTERRUPTED if run.stopped_by == "interrupt" else Code.ERROR)


def _was_given(context: typer.Context, option: str) -> bool:
    """Whether it stands on the command line, rather than having its default."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _every(text: str) -> "Every":
    from thali.cli.streaming.run import Every

    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s?)", text)
    if found is None or not float(found[1]) > 0 or (not found[2] and "." in found[1]):
        raise typer.BadParameter(f"--every must be rows, such as 10000, or seconds, such as 60s. Got {text}.")
    return Every(seconds=float(found[1])) if found[2] else Every(rows=int(found[1]))


def _checked_checkpoint(checkpoint: Path | None, overwrite: bool) -> bool:
    """Whether there is one to go on with; an error before any work if none could be kept."""
    if checkpoint is None:
        return False
    folder = checkpoint.parent
    if not folder.is_dir():
        raise InvalidFileError(f"there is no folder {folder} to keep {checkpoint.name} in. Create it")
    if checkpoint.is_dir():
        raise InvalidFileError(f"{checkpoint} is a folder. Name a file, such as {checkpoint / 'stream.thali'}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidFileError(f"no permission to write in the folder {folder}. Choose another --checkpoint")
    return checkpoint.exists() and not overwrite


def _form(format: Format, name: Path) -> Any:
    """How lines look, as far as it can be known before the first one."""
    from thali.io.arriving.rows import Form

    if format is not Format.AUTO:
        return Form(format.value)
    by_suffix = {".csv": Form.CSV, ".tsv": Form.TSV, ".ndjson": Form.NDJSON, ".jsonl": Form.NDJSON}
    return by_suffix.get(name.suffix.lower())


def _new(parts: dict[str, Any], chains: int, seed: int) -> "LatentFeatures":
    from thali import LatentFeatures
    from thali.running.choose import choose

    choose(parts["inference"], parts["prior"], parts["observation"], 1, 1)  # or an error, before any row is read
    return LatentFeatures(**parts, n_chains=chains, random_state=seed)


def _loaded(
    checkpoint: Path, parts: dict[str, Any], given: set[str], settings: dict[str, int | None]
) -> "LatentFeatures":
    """The fit that goes on. Options that say otherwise are refused: they would be silently ignored."""
    from thali import load

    model = load(checkpoint)
    if not hasattr(model, "partial_fit") or not hasattr(model, "n_samples_seen_"):
        raise InvalidFileError(
            f"{checkpoint} holds a fit that cannot go on with more rows. Choose another --checkpoint, or begin anew "
            "with --overwrite"
        )
    for part, options in _PARTS.items():
        its = getattr(model, part)
        if given.intersection(options) and repr(its) != repr(parts[part]):
            raise InvalidParameterError(
                f"the fit in {checkpoint} has {its!r}, which cannot change to {parts[part]!r}. Leave "
                f"{_flags(given.intersection(options))} out, or begin anew with --overwrite."
            )
    params = {"seed": model.random_state, "chains": model.n_chains}
    for option in _SETTINGS:
        if option in given and settings[option] != params[option]:
            raise InvalidParameterError(
                f"the fit in {checkpoint} has {option} {params[option]}. Leave --{option} out, or begin anew with "
                "--overwrite."
            )
    return model.set_params(max_time=None, target_ess=None)


def _flags(options: set[str]) -> str:
    return " and ".join(sorted(f"--{option.replace('_', '-')}" for option in options))


def _say_plan(model: "LatentFeatures", checkpoint: Path | None, n_seen: int, *, skip_seen: bool, quiet: bool) -> None:
    what = f"{type(model.inference).__name__}, {model.observation.words}, seed {model.random_state}"
    say(what, quiet=quiet)
    if n_seen:
        how = "which are left out when they come again" if skip_seen else "and what comes is new (else use --skip-seen)"
        say(f"going on with {checkpoint}: {count(n_seen, 'row')} seen, {how}", quiet=quiet)
    elif checkpoint is None:
        say("without --checkpoint nothing is kept", quiet=quiet)


def _say_end(run: Any, checkpoint: Path | None, *, quiet: bool) -> None:
    n_new = run.n_rows - run.n_before
    found = getattr(run.model, "n_components_", None)
    features = "" if found is None else f", {count(found, 'feature')}"
    bad = f", {count(run.n_bad, 'bad row')} left out" if run.n_bad else ""
    say(f"{count(n_new, 'row')} taken in, {count(run.n_rows, 'row')} in all{features}{bad}", style="bold", quiet=quiet)
    if run.reader.spellings:
        say(f"taken as missing: {run.reader.spelt()}", quiet=quiet)
    if run.n_skipped < run.plan.n_skip:
        say(
            f"warning: the rows ended after {count(run.n_skipped, 'row')} of the {run.plan.n_skip} that were seen",
            style="yellow",
        )
    if checkpoint is not None and found is not None:
        say(f"saved {checkpoint}", quiet=quiet)
