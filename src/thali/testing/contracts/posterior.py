"""What every inference must end in: a posterior that can answer."""

import math
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.core.protocols.engines.chains import MarginalRows
from thali.posteriors.base import Posterior
from thali.testing.contracts.telling import contract
from thali.testing.enumerate import enumerate_posterior

Array = np.ndarray

_MOST = 20_000  # matrices that are listed


def check_posterior(posterior: Any, X: Array) -> None:
    """Its numbers are finite, its probabilities sum to one, and it encodes rows."""
    with contract("The posterior must be well-formed: finite, of all rows, with probabilities that sum to one."):
        assert isinstance(posterior, Posterior), f"Got a {type(posterior).__name__}."
        assert posterior.n_rows == len(X), f"It is of {posterior.n_rows} rows, not of {len(X)}."
        assert posterior.is_finite(), "A number is not finite."
        total = sum(posterior.k_posterior.values())
        assert math.isclose(total, 1.0, rel_tol=1e-6), f"The probabilities of K sum to {total}."
        concrete = posterior.concrete(0, 0)
        learned = [*concrete.prior.learned, *concrete.observation.learned]
        assert not learned, f"{', '.join(learned)} has no value in a draw."
        features = posterior.features(0, 0)
        assert features.ndim == 2, f"Features have shape {features.shape}."
        assert features.shape[1] == X.shape[1], f"Features have {features.shape[1]} dims."
        density = posterior.log_density(X[:2])
        assert np.isfinite(density).all(), f"The density of a row is {density}."


def exact_log_evidence(model: Model, n_rows: int, X: Array, max_features: int) -> float | None:
    """log p(X) by enumeration, if the model is concrete, its codes are bits, and there are few matrices."""
    learned = [*model.prior.learned, *model.observation.learned]
    if learned or model.observation.code_kind != "bits" or not model.observation.has(MarginalRows):
        return None
    fixed = model.prior.n_features
    n_matrices = math.comb(2**n_rows - 1 + max_features, max_features) if fixed is None else 2.0 ** (n_rows * fixed)
    return enumerate_posterior(model, X, max_features=max_features).log_evidence if n_matrices <= _MOST else None
