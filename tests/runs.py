"""Runs below the estimator: an inference on a model that is adapted to X, by the runner and its shape."""

from typing import Any

import numpy as np

from thali.core.model import Model
from thali.rng import make_generator
from thali.running import runner
from thali.running.shapes import Shape, shape_for
from thali.running.stopping import Clock
from thali.storage.fit import About, Choice, Outcome


def shape_of(
    X: Any, inference: Any, model: Model, *, seed: Any = 1, n_chains: int = 2, target_ess: float | None = None
) -> Shape:
    """X may be blocks of rows, for an inference that takes those."""
    about = About({}, model, Choice(inference, "as asked"), "", X.shape[1], [])
    return shape_for(about, X, make_generator(seed), n_chains, target_ess)


def ran(shape: Shape, *, max_time: float | None = None, patient: bool = False, **options: Any) -> Outcome:
    """What it finds."""
    clock = Clock(max_time, patient=patient)
    return shape.outcome(runner.run(shape, clock, **options))


def same_draws(a: Outcome, b: Outcome) -> bool:
    return all(np.array_equal(a.posterior.draws[k], b.posterior.draws[k]) for k in a.posterior.draws)
