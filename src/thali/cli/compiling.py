"""Compile the kernels before the work begins, and say so, where no compiled ones are kept from an earlier run."""

import sys
import time
from pathlib import Path
from typing import Any

from thali.cli.console import say


def cache_folder() -> Path | None:
    """Where compiled kernels are kept; None if compilation is switched off."""
    from thali.kernels.collapsed_rows import collapsed_sweep

    stats = getattr(collapsed_sweep, "stats", None)
    return None if stats is None else Path(stats.cache_path)


def is_cached(folder: Path | None, kernel: str = "") -> bool:
    tag = f"py{sys.version_info.major}{sys.version_info.minor}"
    return folder is None or any(folder.glob(f"{kernel}*.{tag}.nbi"))


def compile_kernels(observation: Any = None, *, quiet: bool = False) -> None:
    """Do nothing if there are compiled kernels; else fit a few cells, which compiles all that a fit needs."""
    has_weights = hasattr(observation, "weight_var")
    if is_cached(cache_folder(), "scaled_rows" if has_weights else "collapsed_rows"):
        return
    import numpy as np

    from thali import CollapsedGibbs, Gibbs, LatentFeatures

    say("compiling kernels (once) ...", quiet=quiet)
    start = time.monotonic()
    X = np.arange(18.0).reshape(6, 3) % 5
    X[0, 0] = np.nan
    kind = Gibbs if has_weights else CollapsedGibbs
    settings: dict[str, Any] = {"n_chains": 1, "random_state": 0, "verbose": False}
    tiny = LatentFeatures(observation if has_weights else None, inference=kind(n_warmup=0, n_draws=1), **settings)
    tiny.fit(X).score_samples(X)
    say(f"compiled in {time.monotonic() - start:.0f} s", quiet=quiet)
