"""`thali howmany`: the number of features in a file, how sure it is, and why."""

import secrets
from typing import Annotated

import typer

from thali.cli.after_fit import sample
from thali.cli.console import Code, say, show, show_json
from thali.cli.input import read_data
from thali.cli.model_options import Observation, Prior, make_estimator, make_observation, make_prior
from thali.cli.options import (
    Chains,
    DataFile,
    Jobs,
    MaxTime,
    NoiseFloor,
    NoiseLevels,
    NumberOfDraws,
    ObservationModel,
    OffsetOfRows,
    Quiet,
    Seed,
    Warmup,
    WhoseLoadings,
)
from thali.cli.warm_up import compile_kernels
from thali.errors import InvalidParameterError


def howmany(
    file: DataFile,
    observation: ObservationModel = Observation.LINEAR_GAUSSIAN,
    noise: NoiseLevels = None,
    noise_floor: NoiseFloor = None,
    offset: OffsetOfRows = None,
    sparse: WhoseLoadings = None,
    chains: Chains = 4,
    warmup: Warmup = None,
    draws: NumberOfDraws = None,
    seed: Seed = None,
    max_time: MaxTime = None,
    jobs: Jobs = None,
    json: Annotated[bool, typer.Option("--json", help="Write the answer as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Say how many features FILE has, how sure that is, and why. Nothing is saved.

    On real data the number is a function of --noise-floor: the share of a dim's variance that may count as noise.
    """
    seed = secrets.randbelow(2**31) if seed is None else seed
    data = read_data(file, 0.0, seed)
    try:
        model = make_estimator(
            make_observation(observation, noise, noise_floor, offset, sparse),
            make_prior(Prior.IBP, None, None),
            data.X.shape,
            {"n_warmup": warmup, "n_draws": draws},
            n_chains=chains,
            n_jobs=jobs,
            random_state=seed,
            verbose=not quiet,
            max_time=max_time,
        )
    except InvalidParameterError as error:
        raise typer.BadParameter(str(error)) from error
    say(data.reading, quiet=quiet or not data.reading)
    say(f"{file.name}  {data.describe()}, seed {seed}", quiet=quiet)
    compile_kernels(model.observation, quiet=quiet)
    model = sample(lambda: model.fit(data.visible), data)

    from thali.cli.summary import summarise
    from thali.counting import reason

    summary = summarise(model)
    low, high = summary["n_features_interval_90"]
    if json:
        show_json(
            {
                "file": str(file),
                "k": summary["n_features"],
                "interval": [low, high],
                "n_persistent": summary["n_persistent"],
                "probabilities": summary["k_posterior"],
                "reason": reason(model),
                "noise_floor": summary["noise_floor"],
                "converged": summary["converged"],
                "interrupted": model.interrupted_,
                "seed": seed,
            }
        )
    else:
        show(f"features: {summary['n_features']}", style="bold")
        show(f"in use at a time: {low} to {high} (90 %)")
        for k, probability in summary["k_posterior"].items():
            show(f"{k:>6}  {probability:6.3f}  {'#' * round(40 * probability)}".rstrip())
        show(reason(model), style="green" if model.converged_ else "yellow")
    if model.interrupted_:
        raise typer.Exit(Code.INTERRUPTED)
    if not model.converged_:
        raise typer.Exit(Code.NOT_CONVERGED)
