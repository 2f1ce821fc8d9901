"""`thali resume`: go on with a run that was stopped."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from thali.cli.after_fit import claimed, report, run_folder, sample
from thali.cli.console import say
from thali.cli.input import read_data
from thali.cli.near import Near
from thali.cli.options import Jobs, MaxTime, Quiet, SummaryAsJson, TargetEss
from thali.errors import InvalidFileError
from thali.storage.claims import Claim, holds_run, sweep


def resume(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The .thali file of a fit that was stopped.")],
    data: Annotated[Path | None, typer.Option(help="The data, if their file was moved.")] = None,
    max_time: MaxTime = None,
    target_ess: TargetEss = None,
    jobs: Jobs = None,
    json: SummaryAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a fit that was stopped: by Ctrl-C, by --max-time, by a crash.

    The result is the same as that of a fit that was never stopped.
    """
    began = time.monotonic()
    output = file.with_suffix("") if file.suffix == ".run" else file
    claim = Claim(run_folder(output))
    sweep(claim)
    if not holds_run(claim):
        why = f"{output} is finished" if output.exists() else "check the path"
        raise InvalidFileError(f"there is no run to go on with in {claim.folder}: {why}")

    with claimed(claim, output, make=False):
        command = recall(claim.folder)
        source = data or command.get("file")
        if source is None:
            raise InvalidFileError(f"{claim.folder} does not know where its data are. Name them with --data")
        near = Near(*(command.get(name) for name in Near._fields))
        table = read_data(Path(source), float(command.get("holdout", 0.0)), int(command.get("seed", 0)), near)

        import thali

        given = {"max_time": max_time, "target_ess": target_ess}
        settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        say(table.reading, quiet=quiet or not table.reading)
        say(f"{table.file.name}  {table.describe()}", quiet=quiet)
        say(f"going on with {claim.folder}", quiet=quiet)
        model = sample(
            lambda: thali.resume(
                claim, table.visible, heldout=table.heldout_values, n_jobs=jobs, verbose=not quiet, **settings
            ),
            table,
        )
        report(model, table, output, claim, began, json=json, quiet=quiet)


def recall(folder: Path) -> dict[str, Any]:
    """What the command that began the run keeps with it; nothing if it was begun from Python."""
    from thali.storage import archive as files

    path = folder / "command.thali"  # where older versions had it
    if path.exists():
        command = files.read(path)[0]
    else:
        path = folder / "run.thali"
        command = files.read(path)[0].get("command", {})
    kinds = {"file": str, "holdout": int | float, "seed": int} | dict.fromkeys(Near._fields, str)
    if not isinstance(command, dict) or not all(
        isinstance(command[name], kind) for name, kind in kinds.items() if name in command
    ):
        raise files.damaged(path, "what it says of its command is no such thing")
    return command
