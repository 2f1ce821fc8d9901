"""The `thali` command. Verbs import what they need when they run, so that `thali --help` is quick."""

import signal
import sys
from typing import Annotated

import typer

from thali.cli.console import Verbs, forget_output
from thali.cli.verbs.bound import bound
from thali.cli.verbs.demo import demo
from thali.cli.verbs.doctor import doctor
from thali.cli.verbs.fit import fit
from thali.cli.verbs.howmany import howmany
from thali.cli.verbs.impute import impute
from thali.cli.verbs.inspect_fit import inspect
from thali.cli.verbs.resume import resume
from thali.cli.verbs.simulate import simulate
from thali.cli.verbs.stream import stream
from thali.cli.verbs.transform import transform

app = typer.Typer(
    cls=Verbs,
    name="thali",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help appears in half the time of the decorated one
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"thali {version('thali')}")
        raise typer.Exit


@app.callback(epilog="Exit codes: 0 ok, 1 error, 2 usage, 3 not converged, 130 interrupted.")
def thali(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="THALI_DEBUG", help="Show the full traceback of an error.")
    ] = False,
) -> None:
    """Find the hidden features that data are made of, which rows have which, and how many there are."""


for verb in (demo, howmany, fit, resume, stream, inspect, transform, impute, simulate, bound, doctor):
    app.command()(verb)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def run() -> None:
    """The console entry point. SIGTERM is treated as Ctrl-C from the first moment on."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            forget_output()


if __name__ == "__main__":
    run()
