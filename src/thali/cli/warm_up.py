"""Compile the kernels before the work begins, and say so, where no compiled ones are kept from an earlier run."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from thali.cli.console import say

if TYPE_CHECKING:
    from thali.kernels._cache_folders import Folders


def cache_folders() -> "Folders | None":
    """Where compiled kernels are kept; None if compilation is switched off."""
    from thali.kernels._cache_folders import folders
    from thali.kernels.bits.collapsed_rows import collapsed_sweep

    return folders() if hasattr(collapsed_sweep, "stats") else None


def compile_kernels(observation: Any = None, inference: Any = None, *, quiet: bool = False) -> None:
    """Do nothing if it was done before; else go a step on a few cells, which compiles all that a fit needs.

    Ctrl-C and SIGTERM end it: here, in the main thread, and not after a fit that takes them as a wish to stop early.
    """
    from thali import IBP, LinearGaussian
    from thali.running.choose import sampler

    observation = LinearGaussian() if observation is None else observation
    if inference is None:
        found = sampler(IBP(), observation, 6, 3)
        if found is None:
            return
        inference = found.inference
    name = f"{type(observation).__name__}-{type(inference).__name__}"
    with compiled_once(name, quiet=quiet) as is_first:
        if is_first:
            start = time.monotonic()
            _interruptibly(observation, inference)
            say(f"compiled in {time.monotonic() - start:.0f} s", quiet=quiet)


@contextmanager
def compiled_once(name: str, *, quiet: bool = False) -> Iterator[bool]:
    """Work that compiles what it needs when it is done for the first time: then say so. Gives whether it is."""
    kept, mark = cache_folders(), f"ready-{name}"
    if kept is None or kept.holds(mark):
        yield False
        return
    where = "once" if kept.write else "they cannot be kept: set NUMBA_CACHE_DIR to a folder of your own"
    say(f"compiling kernels ({where}) ...", quiet=quiet)
    yield True
    kept.put(mark, b"")


def _interruptibly(observation: Any, inference: Any) -> None:
    from thali.running.stopping import on_stop_signal

    signals = []

    def stop() -> NoReturn:
        signals.append(1)
        raise KeyboardInterrupt

    with on_stop_signal(stop):
        _tiny_fit(observation, inference)
    if signals:  # in a callback of the compiler, from which no exception gets out
        raise KeyboardInterrupt


def _tiny_fit(observation: Any, inference: Any) -> None:
    """The parts of a fit in this thread: a start, a step or two, what is kept of them, and the scores of rows."""
    import numpy as np

    from thali import IBP, DistanceDependentIBP, HierarchicalBetaProcess, Times
    from thali.core.model import Model, lacking
    from thali.inference.calibration.noise_floor import calibrate
    from thali.rng import make_generator
    from thali.running.near_rows import seen_from
    from thali.running.shapes import shape_for
    from thali.running.stopping import Clock
    from thali.storage.fit import About, Choice

    Z = np.arange(12).reshape(6, 2) % 5 % 2
    X = observation.simulate(make_generator(0), Z, n_dims=3)
    X[0, 0] = np.nan
    X = observation.check_data(X)
    times = np.arange(6.0)
    near = (DistanceDependentIBP.from_times(times), HierarchicalBetaProcess.from_distances(Times(times)))
    priors = [prior for prior in (IBP(), *near) if not lacking(prior, observation, inference)]
    model = calibrate(Model(priors[0] if priors else IBP(), observation), X)
    shape = shape_for(About({}, model, Choice(inference, ""), "", X.shape[1], []), X, make_generator(0), n_chains=1)
    shape.prepare()
    while shape.tasks[0].n_steps < 2:
        shape.advance(shape.tasks[0], Clock(None))
        shape.tasks[0].n_steps += 1
    posterior = shape.outcome("max_time").posterior
    seen_from(posterior, 6, times=times if model.prior in near else None).log_density(X)
