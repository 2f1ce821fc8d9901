"""Opens files, uses what they hold, and says what came of it. It runs in a process of its own, which they may end."""

import io
import os
import resource
import signal
import time
import traceback
import warnings
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np

import thali
from hostile.whole import counts, data_of, rows
from thali import PoissonGamma
from thali.cli.verbs import inspect_fit
from thali.errors import ThaliError
from thali.io import read_table
from thali.running import fitting
from thali.running.runner import run

ROOM = 3 * 2**30  # of addresses beyond what it has at first: a bomb ends in a MemoryError
PATIENCE = 0.5  # seconds after which a run that goes on is interrupted


def memory(field: str) -> float:
    """MB of VmRSS or VmHWM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1000
    return 0.0


def open_file(path: Path) -> Any:
    if path.is_dir():
        with suppress(ThaliError):
            inspect_fit._run(path, path)
        try:
            return thali.resume(path, data_of(path.name), n_jobs=1, verbose=False, max_time=0.2)
        except KeyboardInterrupt:
            return None  # it had begun
    return thali.load(path) if path.suffix == ".thali" else read_table(path)


def run_for_a_while(*args: Any, **options: Any) -> Any:
    """In the place of `run`: what was read may ask for any number of steps."""
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        return run(*args, **options)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def use(found: Any, path: Path) -> None:
    """Everything that a fit can do; of a table nothing more than was done."""
    if not isinstance(found, thali.LatentFeatures):
        return
    X = counts() if isinstance(found.posterior_.model.observation, PoissonGamma) else rows()
    if found.n_features_in_ != X.shape[1]:
        X = np.ones((3, found.n_features_in_))
    if hasattr(found, "feature_names_in_"):
        import pandas as pd

        X = pd.DataFrame(X, columns=found.feature_names_in_)
    values = np.asarray(X)
    mask = np.zeros(values.shape, dtype=bool)
    mask[1, 0] = True
    calls = [
        found.check,
        lambda: repr(found),
        lambda: found.inverse_transform(found.transform(X)),
        lambda: found.presence(X),
        lambda: found.score(X),
        lambda: found.novelty(X),
        lambda: found.impute(X, interval=0.9),
        lambda: found.heldout_score(X, mask),
        lambda: found.sample(2, random_state=0),
        lambda: found.posterior_.draws,
        lambda: inspect_fit._show_fit(path, inspect_fit._fit(found)),
    ]
    if not path.is_dir():  # a run that is saved is removed
        calls.append(lambda: found.save(path.with_suffix(".again")))
    if hasattr(found, "partial_fit"):
        calls.append(lambda: found.set_params(max_time=0.2, n_jobs=1, verbose=False).partial_fit(X))
    for call in calls:
        with suppress(ThaliError, KeyboardInterrupt), redirect_stdout(io.StringIO()):  # a stream may have begun
            call()


def answer(path: Path) -> dict[str, Any]:
    """{"error": the class and the words, or None, "seconds": CPU time of the opening, "megabytes": by which memory
    rose}."""
    error = None
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, began = memory("VmRSS"), time.process_time()
    opened = None
    try:
        found = open_file(path)
        opened = time.process_time() - began
        use(found, path)
    except ThaliError as caught:
        error = f"{type(caught).__name__}: {caught}"
    except BaseException as caught:
        where = "".join(traceback.format_tb(caught.__traceback__)[-3:])
        error = f"raw {type(caught).__name__}: {caught}\n{where}"
    total = time.process_time() - began
    grown = memory("VmHWM") - before
    return {"error": error, "seconds": opened or total, "megabytes": grown}


def serve(line: Any) -> None:
    """Answer until there is nothing more to open, or one of the files ends it."""
    warnings.simplefilter("ignore")
    fitting.run = run_for_a_while  # type: ignore[assignment]
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
    while True:
        line.send(answer(Path(line.recv())))
