"""DistanceDependentGibbs leaves the posterior as it is: enumeration, joint draws, calibration, and mistakes."""

import itertools

import numpy as np
import pytest
from linked_draws import FEATURE, NOISE, exact_scores, joint_draws, move, paired_scores, posterior_draws
from mutants import mutant

from thali import (
    IBP,
    ConstantDecay,
    DistanceDependentGibbs,
    DistanceDependentIBP,
    ExponentialDecay,
    Gamma,
    InverseGamma,
    LinearGaussian,
    WindowDecay,
)
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows, MarginalRows
from thali.rng import make_generator
from thali.testing.enumerate import enumerate_posterior, exact_statistics
from thali.testing.geweke import geweke
from thali.testing.sbc import sbc
from thali.testing.zscores import z_limit, z_scores

X = np.array([[1.9, -1.3], [1.4, 2.1], [0.3, 0.5]])
STEPS = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
SKEWED = STEPS + np.where(np.triu(np.ones((4, 4)), 1) > 0, 0.7, 0.0)


def prior(kind: str, n_rows: int, mass: float = 0.5) -> DistanceDependentIBP:
    some = np.ix_(range(n_rows), range(n_rows))
    if kind == "window":
        return DistanceDependentIBP(mass, STEPS[some], WindowDecay(1.0))
    distances = SKEWED if kind == "skewed" else STEPS
    return DistanceDependentIBP(mass, distances[some], ExponentialDecay(1.0), sequential=kind == "ordered")


def test_golden_posterior():
    """G24: two rows, at most two features of each owner, from the prior's links and the model's likelihood."""
    model = LinearGaussian(noise_var=NOISE, feature_var=FEATURE).engine(MarginalRows)
    given = prior("symmetric", 2, 1.3)
    (rate, _), shared = given.owner_rates(), given.link_probs().toarray()[0, 1]
    number = np.array([1.0, rate, rate**2 / 2])
    number /= number.sum()
    weight, values = [], []
    for first, second in itertools.product(range(3), repeat=2):
        for bits in itertools.product((0, 1), repeat=first + second):
            columns = [(1, bit) for bit in bits[:first]] + [(bit, 1) for bit in bits[first:]]
            Z = np.array(columns, dtype=np.uint8).reshape(-1, 2).T.copy()
            n_shared = sum(bits)
            chance = number[first] * number[second] * shared**n_shared * (1 - shared) ** (len(bits) - n_shared)
            weight.append(np.log(chance) + model.log_marginal(X[:2], Z))
            values.append((Z.sum(), len(bits), n_shared))
    log_evidence = np.logaddexp.reduce(weight)
    assert log_evidence == pytest.approx(-9.668553319, abs=1e-8)
    assert np.allclose(np.exp(weight - log_evidence) @ values, [3.3043837423, 2.8251327298, 0.47925101248], atol=1e-9)


@pytest.mark.parametrize("kind", ["symmetric", "ordered"])
def test_sweeps_keep_the_exact_posterior(kind):
    """Enumeration and moves are both cut at six features: what has no room is refused."""
    rng = make_generator(5)
    given = prior(kind, 3, 1.3)
    exact, start = posterior_draws(given, X, 20_000, rng, most=6, capacity=6)
    for moves in ("L", "OLO", "J"):
        drawn = start.copied()
        move(given, drawn, moves, rng, capped=True)
        scores = exact_scores(exact, drawn, most=6)
        assert np.abs(scores).max() < z_limit(len(scores)), moves


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [2, 3])
@pytest.mark.parametrize("mass", [0.5, 1.3])
@pytest.mark.parametrize("kind", ["symmetric", "skewed", "ordered", "window"])
def test_every_move_keeps_the_exact_posterior(kind, mass, n_rows):
    rng = make_generator(n_rows)
    given = prior(kind, n_rows, mass)
    exact, start = posterior_draws(given, X[:n_rows], 1_000_000, rng, most=6, capacity=6)
    for moves in ("L", "O", "J", "LOLO"):
        drawn = start.copied()
        move(given, drawn, moves, rng, capped=True)
        scores = exact_scores(exact, drawn, most=6)
        assert np.abs(scores).max() < z_limit(len(scores)), moves


@pytest.mark.slow
def test_a_cut_of_one_side_alone_is_seen():
    """Moves with room for more features than were enumerated leave the law of the cut, whatever they are."""
    rng = make_generator(2)
    given = prior("symmetric", 3, 1.3)
    exact, drawn = posterior_draws(given, X, 1_000_000, rng, most=6, capacity=16)
    move(given, drawn, "O", rng)
    assert np.abs(exact_scores(exact, drawn, most=6)).max() > 5


def paired(kind: str, n: int, kernels=None) -> dict[str, float]:
    rng = make_generator(11)
    given = prior(kind, 4, 0.8)
    before = joint_draws(given, 2, n, rng)
    after = before.copied()
    how = {} if kernels is None else {"kernels": kernels}
    move(given, after, "LOM", rng, **how)
    return paired_scores(before, after)


@pytest.mark.parametrize("kind", ["symmetric", "skewed", "ordered", "window"])
def test_sweeps_keep_the_joint_distribution(kind):
    scores = paired(kind, 10_000)
    assert max(map(abs, scores.values())) < z_limit(len(scores)), scores


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["symmetric", "skewed", "ordered", "window"])
def test_sweeps_keep_the_joint_distribution_of_a_million(kind):
    scores = paired(kind, 1_000_000)
    assert max(map(abs, scores.values())) < z_limit(len(scores)), scores


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("links: the likelihood of one row", "symmetric"),
        ("links: births with a binomial factor", "symmetric"),
        ("links: the owner stays", "skewed"),
        ("links: a shift without the other rows", "ordered"),
    ],
)
def test_a_mistake_is_seen(name, kind):
    scores = paired(kind, 200_000, mutant(name)["linked_replicates"])
    worst = max(map(abs, scores.values()))
    assert worst > z_limit(len(scores)), scores


def chain_scores(given, wanted, n_chains: int, n_steps: int) -> np.ndarray:
    """z-scores of chains against the statistics of an exact posterior with at most 8 features."""
    model = Model(given, LinearGaussian(noise_var=NOISE, feature_var=FEATURE))
    inference, rng = DistanceDependentGibbs(n_warmup=0, start="empty"), make_generator(3)
    pairs = np.tril_indices(len(X))
    estimates = np.zeros((n_chains, 9 + len(pairs[0])))
    data = model.observation.engine(ChainRows).prepare(X)
    for chain, stream in enumerate(rng.spawn(n_chains)):
        state = inference.init(stream, model, data, len(X))
        for step in range(n_steps + 30):
            state, info = inference.step(stream, state, model, data)
            if step >= 30:
                dense = state.local.z.astype(float)
                estimates[chain, min(info.n_features, 8)] += 1
                estimates[chain, 9:] += (dense @ dense.T)[pairs]
    keep = np.append(np.minimum(wanted[:9], 1 - wanted[:9]) * n_chains * n_steps > 200, np.ones(len(pairs[0]), bool))
    return z_scores(estimates[:, keep] / n_steps, wanted[keep])


@pytest.mark.slow
def test_constant_decay_gives_the_posterior_of_the_ibp():
    model = Model(IBP(mass=0.5), LinearGaussian(noise_var=NOISE, feature_var=FEATURE))
    wanted = exact_statistics(enumerate_posterior(model, X, max_features=8), 3, 8)
    given = DistanceDependentIBP(0.5, STEPS[:3, :3], ConstantDecay(), sequential=True)
    scores = chain_scores(given, wanted, 40, 1000)
    assert np.abs(scores).max() < z_limit(len(scores))


LEARNED = LinearGaussian(noise_var=InverseGamma(6.0, 2.0), feature_var=InverseGamma(6.0, 6.0))


def learning(**settings) -> Model:
    decay = ExponentialDecay(Gamma(4.0, 4.0))
    return Model(DistanceDependentIBP(Gamma(3.0, 4.0), STEPS, decay, **settings), LEARNED)


@pytest.mark.slow
@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_whole_step_keeps_the_joint_distribution(sequential, hidden):
    missing = np.zeros((4, 2), dtype=bool)
    missing[1, 0] = missing[3, 1] = hidden
    result = geweke(
        learning(sequential=sequential), DistanceDependentGibbs(), make_generator(1), n_rows=4, n_dims=2,
        n_replicates=4_000, missing=missing if hidden else None,
    )  # fmt: skip
    assert result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("sequential", [False, True])
def test_it_is_calibrated(sequential):
    result = sbc(
        learning(sequential=sequential), DistanceDependentGibbs(n_warmup=20), make_generator(2), n_rows=4,
        n_replicates=300, n_draws=15, n_warmup=40,
    )  # fmt: skip
    assert {"mass", "decay_rate"} <= result.p_values.keys()
    assert result.passed(), result.p_values
