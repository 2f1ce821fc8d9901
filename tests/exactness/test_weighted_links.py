"""DistanceDependentGibbs with weights: whole steps leave the joint distribution as it is, and mistakes are seen."""

import numpy as np
import pytest

from thali import (
    ICA,
    DistanceDependentGibbs,
    DistanceDependentIBP,
    ExponentialDecay,
    FactorAnalysis,
    Gamma,
    InverseGamma,
)
from thali.core.model import Model
from thali.observations.gaussian import weighted_links
from thali.rng import make_generator
from thali.testing.geweke import geweke

STEPS = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
PARTS = {"noise_var": InverseGamma(6.0, 3.0), "feature_var": 1.2, "offset": None, "noise_floor": 0.0}
OBSERVATIONS = {
    "factors": FactorAnalysis(**PARTS),
    "sources": ICA(**PARTS),
    "relevance": FactorAnalysis(**PARTS, ard=4.0),
}


def whole_step(which: str, n: int, sequential: bool = False, hidden: bool = False, ownership: str = "by row"):
    prior = DistanceDependentIBP(Gamma(3.0, 4.0), STEPS, ExponentialDecay(Gamma(4.0, 4.0)), sequential=sequential)
    missing = np.zeros((4, 2), dtype=bool)
    missing[1, 0] = missing[3, 1] = hidden
    return geweke(
        Model(prior, OBSERVATIONS[which]), DistanceDependentGibbs(ownership=ownership), make_generator(1), n_rows=4,
        n_dims=2, n_replicates=n, missing=missing if hidden else None,
    )  # fmt: skip


def test_a_whole_step_keeps_the_joint_distribution():
    result = whole_step("factors", 150, hidden=True)
    assert result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("ownership", ["by row", "joint"])
@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("which", OBSERVATIONS)
def test_a_whole_step_keeps_the_joint_distribution_long(which, sequential, ownership):
    result = whole_step(which, 4_000, sequential, hidden=True, ownership=ownership)
    assert result.passed, result.worst


def other_variance(monkeypatch):
    """Births by features of another variance than their own."""
    right = weighted_links._log_gain
    monkeypatch.setattr(weighted_links, "_log_gain", lambda U, E, noise, ridge: right(U, E, noise, 2.0 * ridge))


def old_values(monkeypatch):
    """Born features with the mean of their values."""
    cholesky = np.linalg.cholesky
    monkeypatch.setattr(weighted_links.np.linalg, "cholesky", lambda P: 0.3 * cholesky(P))


def weights_left_out(monkeypatch):
    """Bits as if weights were zero."""
    right = weighted_links.log_slabs

    def log_slabs(pulls, curve, rate, precision, log_norm, evidence):
        right(0.0 * pulls, curve, rate, precision, log_norm, evidence)

    monkeypatch.setattr(weighted_links, "log_slabs", log_slabs)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [other_variance, old_values, weights_left_out], ids=lambda it: it.__name__)
def test_a_mistake_is_seen(mistake, monkeypatch):
    mistake(monkeypatch)
    result = whole_step("factors", 4_000)
    assert not result.passed, result.worst
