"""How the command line speaks: talk on standard error, data on standard output, one meaning per exit code."""

import json
import math
import os
import sys
import traceback
import warnings
from enum import IntEnum
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from thali.errors import OutOfMemoryError, ThaliError, words


class Code(IntEnum):
    """Exit codes."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_CONVERGED = 3
    INTERRUPTED = 130


def say(text: str = "", *, style: str | None = None, quiet: bool = False) -> None:
    """Talk: one line on standard error, in colour where the terminal has them and NO_COLOR is not set."""
    if not quiet:
        _print(True, text, style)


def show(text: str, *, style: str | None = None) -> None:
    """Data: one line on standard output."""
    _print(False, text, style)


def show_json(value: Any) -> None:
    """Data for programs: strict JSON, where null stands for a number that is not finite."""
    print(json.dumps(finite(value), indent=2, allow_nan=False), flush=True)


def _print(stderr: bool, text: str, style: str | None) -> None:
    from rich.console import Console

    Console(stderr=stderr).print(text, style=style, markup=False, highlight=False, soft_wrap=True, emoji=False)


def finite(value: Any) -> Any:
    """With null in place of each number that is not finite, which JSON has none of."""
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def count(number: int, noun: str) -> str:
    """1 row, 1 200 rows."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}".replace(",", " ")


def file_size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


class Verbs(TyperGroup):
    """The verbs of the command line. Whatever goes wrong in one of them ends here as a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        debug = ctx.params.get("debug", False)
        try:
            with warnings.catch_warnings():
                leave_out_convergence()
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            say(str(error) or "interrupted", style="yellow")
            raise typer.Exit(Code.INTERRUPTED) from None
        except BrokenPipeError:  # whoever read our output has left
            forget_output()
            raise typer.Exit(Code.ERROR) from None
        except (typer.Exit, typer.Abort):
            raise
        except (ThaliError, MemoryError) as error:
            _trace(debug)
            memory_only = isinstance(error, MemoryError) and not isinstance(error, OutOfMemoryError)
            say(f"error: {'there is not enough memory: ' if memory_only else ''}{words(error)}", style="bold red")
            if isinstance(error, MemoryError):
                say("What helps on the command line: --jobs 1, fewer --chains or --draws, --inference mean-field,")
                say("or a file with fewer rows or dims.")
            raise typer.Exit(Code.ERROR) from error
        except Exception as error:
            if hasattr(error, "show"):  # a usage error: it knows how to show itself
                raise
            _trace(debug)
            say(f"unexpected error: {type(error).__name__}: {words(error)}", style="bold red")
            say("This is a bug in thali. Please report it with the command, the output of `thali doctor`,")
            say("and the full traceback that the same command gives after `thali --debug`.")
            raise typer.Exit(Code.ERROR) from error


def leave_out_convergence() -> None:
    """Whether a fit has converged is said in every verb's own words, so the library's warning would say it twice."""
    warnings.filterwarnings("ignore", message="not (converged|judged)")  # by its words: its class takes long to import


def _trace(debug: bool) -> None:
    if debug:
        traceback.print_exc()


def forget_output() -> None:
    """Let what is still to be written to a closed standard output vanish, rather than fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
