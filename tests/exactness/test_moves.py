"""Every shipped move of whole columns: exact posterior kept, flows in balance, joint distribution kept."""

import numpy as np
import pytest
from mutants import mutant
from thinned import thinned

from thali import IBP, BetaBernoulli, LinearGaussian
from thali.core.model import Model
from thali.inference.samplers.column_moves import MOVES, ExclusiveOr, Rebirth, column_weight
from thali.kernels.bits import move_replicates
from thali.testing import flow_test, geweke_sweeps, sweep_against_exact, z_limit

X = np.array([[1.6, -0.9], [0.3, 1.2], [2.0, 0.2]])
PRIORS = {"IBP": IBP(mass=1.0), "three parameters": IBP(mass=0.8, concentration=0.7, discount=0.3)}
OBSERVATION = LinearGaussian(noise_var=0.49, feature_var=1.0)
NAMES = {f"{m.n_old}-{m.n_new}" if isinstance(m, Rebirth) else repr(m): m for m in MOVES}
INVERSES = {"1-0", "2-1"}  # tested with 0-1 and 1-2: a replicate takes either direction
TESTED = [name for name in NAMES if name not in INVERSES]
FINITE = [name for name in TESTED if name not in ("0-1", "1-2")]


def as_sweep(name, kernels=move_replicates):
    """One Metropolis step with this move in every replicate, with the signature of `sweep_replicates`."""
    move = NAMES[name]

    def sweep(X, start, dims, Z, K, log_odds, new_rate, noise, feature, group, rng):
        numbers = (X, Z, K, column_weight(log_odds, new_rate), noise, feature)
        if isinstance(move, Rebirth):
            kernels.rebirth_replicates(*numbers, move.n_old, move.n_new, rng)
        elif isinstance(move, ExclusiveOr):
            kernels.exclusive_or_replicates(*numbers, rng)
        else:
            kernels.recoding_replicates(*numbers, np.array(move.table, np.uint8).reshape(2, 2), rng)
        return 0

    return sweep


def worst(scores):
    return max(abs(z) for z in scores.values())


def model(prior="IBP"):
    return Model(PRIORS[prior], OBSERVATION)


@pytest.mark.parametrize("name", thinned(TESTED, "1-2"))
def test_move_keeps_the_exact_posterior(name, rng):
    scores = sweep_against_exact(model(), X, rng, sweep=as_sweep(name), n_replicates=100_000)
    assert worst(scores) <= z_limit(len(scores)), scores


@pytest.mark.parametrize("name", thinned(FINITE, "2-2"))
def test_move_keeps_the_exact_posterior_of_a_finite_prior(name, rng):
    finite = Model(BetaBernoulli(mass=1.5, n_features=3), OBSERVATION)
    scores = sweep_against_exact(finite, X, rng, sweep=as_sweep(name), n_replicates=50_000)
    assert worst(scores) <= z_limit(len(scores)), scores


@pytest.mark.parametrize("name", thinned(TESTED, "Recoding(table=(0, 1, 1, 0))"))
def test_flows_are_in_balance(name, rng):
    flows = flow_test(model(), X, rng, as_sweep(name), n_replicates=100_000)
    assert flows.df > 20
    assert flows.p > 1e-4, flows


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("name", TESTED)
def test_flows_are_in_balance_long(name, prior, rng):
    flows = flow_test(model(prior), X, rng, as_sweep(name), n_replicates=1_000_000)
    assert flows.df > 200
    assert flows.p > 1e-4, flows


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTED)
def test_move_keeps_the_exact_posterior_long(name, rng):
    scores = sweep_against_exact(model(), X, rng, sweep=as_sweep(name), n_replicates=1_000_000)
    assert worst(scores) <= z_limit(len(scores)), scores


def joint(name, rng, n_replicates, kernels=move_replicates, prior="IBP"):
    sweep = as_sweep(name, kernels)
    return geweke_sweeps(PRIORS[prior], OBSERVATION, rng, n_replicates=n_replicates, sweep=sweep, capacity=40)


@pytest.mark.parametrize("name", TESTED)
def test_move_keeps_the_joint_distribution(name, rng):
    result = joint(name, rng, 50_000)
    assert result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("name", TESTED)
def test_move_keeps_the_joint_distribution_long(name, prior, rng):
    result = joint(name, rng, 1_000_000, prior=prior)
    assert result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("group", [2, 3])
@pytest.mark.parametrize("prior", PRIORS)
def test_groups_keep_the_joint_distribution(prior, group, rng):
    result = geweke_sweeps(PRIORS[prior], OBSERVATION, rng, n_replicates=1_000_000, group=group, capacity=40)
    assert result.passed, result.worst


@pytest.mark.parametrize("group", thinned([2, 3], 3))
@pytest.mark.parametrize("missing", thinned([False, True], True), ids=["complete", "missing cells"])
def test_groups_keep_the_exact_posterior(group, missing, rng):
    data = X.copy()
    if missing:
        data[0, 1] = data[2, 0] = np.nan
    scores = sweep_against_exact(model(), data, rng, group=group)
    assert worst(scores) <= z_limit(len(scores)), scores


@pytest.mark.slow
@pytest.mark.parametrize("name", ["groups without prior odds", "groups without the cross term"])
def test_wrong_groups_do_not(name, rng):
    sweep = mutant(name)["replicates"].sweep_replicates
    scores = sweep_against_exact(model(), X, rng, group=2, sweep=sweep, capacity=64)
    assert worst(scores) > z_limit(len(scores)), scores


def wrong(mistake, *names):
    """Each mistake takes half a minute of compilation."""
    return pytest.param(mistake, names, marks=pytest.mark.slow, id=mistake)


WRONG = [
    wrong("no K! in the target", "0-1", "1-2"),
    wrong("no proposal density", "1-1", "2-2"),
    wrong("no launch for the way back", "1-2"),
    wrong("partner by likeness", "2-2", "1-2"),
    wrong("recoding without its backward part", "Recoding(table=(0, 1, 1, 0))"),
]


@pytest.mark.parametrize(("mistake", "names"), WRONG)
def test_wrong_ratios_fail_every_test(mistake, names, rng):
    kernels = mutant(mistake)["move_replicates"]
    for name in names:
        sweep = as_sweep(name, kernels)
        flows = flow_test(model(), X, rng, sweep, n_replicates=200_000)
        assert flows.p < 1e-4, flows
        if mistake != "partner by likeness":  # subtle: flows show it first
            scores = sweep_against_exact(model(), X, rng, sweep=sweep, n_replicates=200_000)
            assert worst(scores) > z_limit(len(scores)), scores
