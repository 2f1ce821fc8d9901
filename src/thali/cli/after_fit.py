"""What `fit` and `resume` share: a run that may be interrupted, and what is said and saved after it."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from thali.cli.console import Code, count, file_size, leave_out_convergence, say, show_json
from thali.cli.input import Data
from thali.cli.model_options import kebab, option_of
from thali.errors import InvalidDataError, InvalidFileError
from thali.storage.claims import Claim, holds_run

if TYPE_CHECKING:
    from thali.estimator import LatentFeatures


def run_folder(output: Path) -> Path:
    """Where the run that leads to `output` keeps its checkpoint."""
    return output.with_name(f"{output.name}.run")


@contextmanager
def claimed(claim: Claim, output: Path, *, make: bool) -> Iterator[None]:
    """Hold the folder of the run that leads to `output`; what is interrupted meanwhile says how to go on."""
    with ExitStack() as stack:
        try:
            stack.enter_context(claim.held(make=make))
        except InvalidFileError as error:
            text = f"{str(error)[0].lower()}{str(error)[1:]}"
            if make:
                text += f" Or choose another -o{'' if claim.folder.is_dir() else ', or use --no-checkpoint'}"
            raise InvalidFileError(text) from error
        try:
            yield
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(f"{str(error) or 'interrupted'}{_how_to_go_on(claim, output)}") from None


def sample(begin: Callable[[], "LatentFeatures"], data: Data) -> "LatentFeatures":
    """Run, and say at once what there is to warn of."""
    try:
        with _spoken_warnings():
            return begin()
    except InvalidDataError as error:
        raise InvalidDataError(f"{data.file}: {error}{data.wholly_missing()}") from error
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"{str(error) or 'interrupted'}; nothing to save yet") from None


def report(
    model: "LatentFeatures", data: Data, output: Path, claim: Claim, began: float, *, json: bool, quiet: bool
) -> None:
    """Say what was found, save it, and leave with the exit code that belongs to it."""
    from thali.cli.summary import disagreement, found, summarise

    inference = model.inference_.inference
    samples = inference.shape == "chains"
    summary = summarise(model)
    heldout = data.heldout(model)
    say(model.check(), style="green" if model.converged_ else "yellow", quiet=quiet)
    if not model.converged_:
        more = f"   try --warmup {2 * inference.n_warmup or 500} --draws {2 * inference.n_draws}" if samples else ""
        ended_early = model.stopped_by_ in ("interrupt", "max_time")
        say(f"{disagreement(summary)}{'' if ended_early else more}", style="yellow", quiet=quiet)
    say(found(summary), style="bold", quiet=quiet)
    if heldout:
        rival = "mean" if "mean" in heldout else "mean_and_variance"
        scores = f"thali {heldout['model']:.3f}   {rival.replace('_', ' ')} of each dim {heldout[rival]:.3f}"
        say(f"held-out log score per cell   {scores}", quiet=quiet)
    model.set_params(verbose=None, n_jobs=None)  # they do not bear on the result, so the file does not depend on them
    model.save(output)
    claim.finish()
    say(f"saved {output} ({file_size(output)})", quiet=quiet)
    made = f"{model.posterior_.n_draws} of {count(inference.n_draws, 'draw')}" if samples else "a part of its work"
    if model.stopped_by_ in ("interrupt", "max_time"):
        say(f"stopped after {made}{_how_to_go_on(claim, output)}", style="yellow", quiet=quiet)
    elif model.stopped_by_:
        say(f"{made} were enough for an effective sample size of {model.target_ess:g}", quiet=quiet)
    if json:
        about_data = {
            "file": str(data.file),
            "n_rows": data.X.shape[0],
            "n_dims": data.X.shape[1],
            "missing_share": data.missing_share,
            "observation": option_of(model.posterior_.model.observation),
            "prior": kebab(type(model.posterior_.model.prior).__name__),
            "seed": model.random_state,
        }
        about_run = {
            "heldout": heldout,
            "stopped_by": model.stopped_by_,
            "interrupted": model.interrupted_,
            "seconds": round(time.monotonic() - began, 3),
            "output": str(output),
        }
        show_json(about_data | summary | about_run)
    if model.interrupted_:
        raise typer.Exit(Code.INTERRUPTED)
    if not model.converged_:
        raise typer.Exit(Code.NOT_CONVERGED)


def _how_to_go_on(claim: Claim, output: Path) -> str:
    return f"; go on with: thali resume {output}" if claim.begun and holds_run(claim) else ""


@contextmanager
def _spoken_warnings() -> Iterator[None]:
    said = set()

    def speak(message: Any, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            say(f"warning: {message}", style="yellow")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        leave_out_convergence()
        warnings.showwarning = speak
        yield
