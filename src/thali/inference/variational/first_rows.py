"""Where the factors of rows begin that were not seen before, when the features are known.

Coordinate ascent on one row stops at the first set of features that no single bit improves. From the prior's
probabilities that is often a bad one where dims are few, so rows begin at least squares and cool down.
"""

from typing import Any

import numpy as np

from thali.inference.variational.ascent import Problem, local_step

Array = np.ndarray

_TEMPERATURES = (8.0, 4.0, 2.0)
_SINGULAR = 1e-2  # directions of features that are weaker than this share of the strongest do not count


def first_rows(problem: Problem, q: Any, weights: Any, n_features: int) -> tuple[Any, ...]:
    """Factors of all rows, near their optimum given q and the weights."""
    if not n_features:
        return tuple(problem.engine.init_rows(part, np.zeros((len(part), 0))) for part in problem.parts)
    chance = problem.model.prior.expected_weights(weights)[:n_features]
    inverse = np.linalg.pinv(problem.engine.expected_features(q), rcond=_SINGULAR)
    local = tuple(_least_squares(problem, part, q, chance, inverse) for part in problem.parts)
    for temperature in _TEMPERATURES:
        local, _ = local_step(problem, problem.engine.annealed(q, temperature), weights, local)
    return local


def _least_squares(problem: Problem, part: Any, q: Any, chance: Array, inverse: Array) -> Any:
    """Near the codes that explain the rows best, by what the prior's probabilities leave unexplained."""
    engine = problem.engine
    local = engine.init_rows(part, np.tile(chance, (len(part), 1)))
    codes = engine.expected_codes(local) + engine.unexplained(part, q, local) @ inverse
    are_bits = problem.model.observation.code_kind == "bits"
    return engine.init_rows(part, np.clip(codes, 0.0, 1.0) if are_bits else codes)
