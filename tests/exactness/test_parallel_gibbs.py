"""Rows in two halves on several threads: the sweep keeps the exact posterior and the joint distribution."""

from functools import partial

import numpy as np
import pytest
from mutants import mutant, plain_mutant
from python_sweeps import replicates
from tiny import MISSING, data, worst

import thali.inference.samplers.gibbs
from thali import IBP, BetaBernoulli, Gamma, Gibbs, InverseGamma, LinearGaussian
from thali.core.model import Model
from thali.core.protocols.engines.chains import ParallelRows
from thali.kernels.bits import parallel_sweep
from thali.observations.gaussian import parallel as _parallel
from thali.testing import z_limit
from thali.testing.enumerate import compare_with_exact, sweep_against_exact
from thali.testing.geweke import geweke, geweke_sweeps

PRIORS = {
    "one parameter": IBP(mass=1.2),
    "three parameters": IBP(mass=1.0, concentration=0.7, discount=0.4),
    "finite": BetaBernoulli(mass=1.2, n_features=3),
}
OBSERVATION = LinearGaussian(noise_var=0.25, feature_var=1.0)
SLOW = [pytest.param(prior, missing, 30_000, marks=pytest.mark.slow) for prior in PRIORS for missing in (False, True)]


def parallel(prior):
    """Replicates of a `parallel_sweep` with this prior's weights."""

    def sweep(rng, observation, data, local):
        n_rows = len(local.z)
        weights = partial(prior.draw_weights, rng, n_rows=n_rows)
        return observation.engine(ParallelRows).parallel_sweep(
            rng, data, local, weights, prior.new_rate(n_rows), n_threads=1
        )

    return replicates(sweep)


@pytest.mark.parametrize(("prior", "missing", "n_replicates"), [("one parameter", True, 4_000), *SLOW])
def test_sweep_keeps_the_exact_posterior(prior, missing, n_replicates, rng):
    prior = PRIORS[prior]
    options = {"n_replicates": n_replicates, "capacity": 64, "sweep": parallel(prior)}
    scores = sweep_against_exact(Model(prior, OBSERVATION), data(missing=missing), rng, **options)
    assert worst(scores) <= z_limit(len(scores)), scores


@pytest.mark.parametrize(("prior", "missing", "n_replicates"), [*((p, True, 4_000) for p in PRIORS), *SLOW])
def test_sweep_keeps_the_joint_distribution(prior, missing, n_replicates, rng):
    prior = PRIORS[prior]
    options = {"n_replicates": n_replicates, "capacity": 64, "sweep": parallel(prior)}
    result = geweke_sweeps(prior, OBSERVATION, rng, missing=MISSING if missing else None, **options)
    assert result.passed, result.worst


class OneOwnerTooMany(IBP):
    def draw_weights(self, rng, counts, n_rows):
        return rng.beta(np.asarray(counts) + 1.0, n_rows - np.asarray(counts) + 1.0)


ROLES = {  # a column of two owners in this half may lose both; one of a single owner stays
    "fixed columns": ("alone = (outside == 0) & is_infinite", "alone = (outside == 0) & (inside < 2) & is_infinite"),
    "own columns": (
        "np.flatnonzero(alone & (inside > 1)), np.flatnonzero(alone & (inside == 1))",
        "np.flatnonzero(alone), np.flatnonzero(alone & (inside < 0))",
    ),
    "owners": ("owners[1, k] = counts[k] - owners[0, k]", "owners[1, k] = counts[k]"),
}


@pytest.mark.parametrize(
    ("name", "n_replicates"),
    [
        ("weights", 5_000),
        pytest.param("fixed columns", 5_000, marks=pytest.mark.slow),
        ("own columns", 2_000),
        pytest.param("owners", 5_000, marks=pytest.mark.slow),
        *(pytest.param(name, 15_000, marks=pytest.mark.slow) for name in ("streams", "own variance")),
    ],
)
def test_wrong_sweeps_fail(name, n_replicates, rng, monkeypatch):
    prior = PRIORS["one parameter"]
    if name == "weights":
        prior = OneOwnerTooMany(mass=1.2)
    elif name in ROLES:
        monkeypatch.setattr(_parallel, "sweep_rows", plain_mutant(parallel_sweep, *ROLES[name])["sweep_rows"])
    else:
        monkeypatch.setattr(_parallel, "sweep_rows", mutant(f"parallel: {name}")["parallel_sweep"].sweep_rows)
    options = {"n_replicates": n_replicates, "capacity": 64, "sweep": parallel(prior)}
    result = geweke_sweeps(PRIORS["one parameter"], OBSERVATION, rng, **options)
    assert not result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["one parameter", "finite"])
def test_chain_reaches_the_exact_posterior(prior, rng, monkeypatch):
    monkeypatch.setattr(thali.inference.samplers.gibbs, "_MANY", 1)
    model = Model(PRIORS[prior], OBSERVATION)
    options = {"n_chains": 20, "n_steps": 300}
    scores = compare_with_exact(model, Gibbs(start="spectral"), data(missing=True), rng, **options)
    assert worst(scores) <= z_limit(len(scores)), scores


def test_whole_step(rng, monkeypatch):
    monkeypatch.setattr(thali.inference.samplers.gibbs, "_MANY", 1)
    model = Model(
        IBP(mass=Gamma(3.0, 3.0)),
        LinearGaussian(noise_var=InverseGamma(4.0, 2.0), feature_var=InverseGamma(4.0, 4.0)),
    )
    result = geweke(model, Gibbs(), rng, n_replicates=1_000, missing=MISSING)
    assert result.passed, result.worst
