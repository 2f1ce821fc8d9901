"""Starts: what they are made of, and that the search ends in the right mode where Gibbs alone does not."""

import math

import numpy as np
import pytest

from thali import IBP, BetaBernoulli, CollapsedGibbs, LinearGaussian, NormalOffset, PerDim, datasets
from thali.core.model import Model
from thali.core.odds import RowOdds, exchangeable_odds
from thali.core.protocols.engines.chains import BitEntropy, ChainRows, MarginalRows, StartRows
from thali.inference.starts.search import KINDS, find_start
from thali.inference.starts.searching_chain import Walk
from thali.inference.starts.spectral import low_rank_completion, spectral_start, unexplained_share


def adapted(X, prior=None, observation=None):
    observation = LinearGaussian() if observation is None else observation
    model = Model(IBP() if prior is None else prior, observation.adapt(X))
    return model, model.observation.engine(ChainRows).prepare(X)


def walk_at(X, Z, seed=0):
    """A walk that begins at these bits, with the hyperparameters learned."""
    rng = np.random.default_rng(seed)
    model, data = adapted(X)
    observation, local = model.observation.engine(StartRows).begin(data, Z.astype(np.uint8), X)
    walk = Walk(rng, model, data, (model.prior.resample(rng, model.prior.draw(rng), Z), observation, local), None)
    walk.settle(15, learn=True)
    return walk


@pytest.mark.parametrize(
    "observation",
    [
        LinearGaussian(noise_var=0.4, feature_var=1.3),
        LinearGaussian(noise_var=np.array([0.4, 0.9, 0.2]), feature_var=1.3, offset=np.array([1.0, 0.0, -0.5])),
    ],
    ids=["one noise level", "per dim with offset"],
)
def test_bit_entropy_is_that_of_the_conditionals(observation, rng):
    prior = IBP(mass=1.1)
    Z = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 1, 0]], dtype=np.uint8)  # the last has one member
    X = observation.simulate(rng, Z, n_dims=3)
    data = observation.engine(ChainRows).prepare(X)
    wanted = 0.0
    for n, k in np.ndindex(*Z.shape):
        if Z[:, k].sum() - Z[n, k] == 0:
            continue
        flipped = Z.copy()
        flipped[n, k] = 1 - Z[n, k]
        here, there = (
            prior.log_odds(5)[Z[:, k].sum() - Z[n, k]] * M[n, k] + observation.engine(MarginalRows).log_marginal(X, M)
            for M in (Z, flipped)
        )
        p = 1 / (1 + math.exp(here - there))
        wanted -= p * math.log(p) + (1 - p) * math.log1p(-p)
    got = observation.engine(BitEntropy).bit_entropy(
        data, observation.engine(ChainRows).place(data, Z, X), exchangeable_odds(prior, 5)
    )
    assert got == pytest.approx(wanted, rel=1e-9)


def test_entropy_of_no_features(rng):
    X = rng.standard_normal((4, 2))
    observation = LinearGaussian(noise_var=1.0, feature_var=1.0)
    data = observation.engine(ChainRows).prepare(X)
    assert (
        observation.engine(BitEntropy).bit_entropy(
            data, observation.engine(ChainRows).place(data, np.zeros((4, 0), np.uint8), X), RowOdds(np.zeros(4), 0.0)
        )
        == 0.0
    )


@pytest.mark.parametrize("noise", [0.4, np.array([0.4, 0.9])], ids=["one noise level", "per dim"])
def test_tempered_noise_keeps_the_features(noise):
    spec = LinearGaussian(noise_var=noise, feature_var=1.3)
    hot = spec.engine(StartRows).tempered(4.0)
    assert np.allclose(hot.noise_var, 4 * np.asarray(noise))
    unit = np.asarray(noise) if np.ndim(noise) else 1.0
    hot_unit = hot.noise_var if np.ndim(noise) else 1.0
    assert np.allclose(hot.feature_var * hot_unit, 1.3 * unit)


def test_completion_beats_the_mean(rng):
    data = datasets.bars(300, noise_var=0.0625, random_state=3)
    holes = rng.random(data.X.shape) < 0.2
    X = np.where(holes, np.nan, data.X)
    mean = np.broadcast_to(np.nanmean(X, axis=0), X.shape)
    error = [np.sqrt(np.mean((filled[holes] - data.X[holes]) ** 2)) for filled in (low_rank_completion(X), mean)]
    assert error[0] < 0.7 * error[1]
    assert np.array_equal(low_rank_completion(X)[~holes], data.X[~holes])
    assert low_rank_completion(data.X) is data.X


def test_what_other_dims_leave_unexplained(rng):
    """It is the noise of each dim but for shrinkage, whatever the units; likewise with more dims than rows."""
    noise = np.linspace(1.0, 2.0, 40)
    X = rng.standard_normal((900, 2)) @ rng.standard_normal((2, 40)) + noise * rng.standard_normal((900, 40))
    share = unexplained_share(X)
    assert np.sqrt(share * X.var(axis=0)) == pytest.approx(noise, rel=0.2)
    assert np.abs(X.std(axis=0) / noise - 1).max() > 0.3
    np.testing.assert_allclose(unexplained_share(X * 10.0 ** np.linspace(-5, 5, 40) + 7.0), share, rtol=1e-6)
    few = rng.standard_normal((8, 10))
    shrunk = 0.98 * np.corrcoef(few.T) + 0.02 * np.eye(10)
    np.testing.assert_allclose(unexplained_share(few), 1 / np.diag(np.linalg.inv(shrunk)), rtol=1e-9)
    few[:, 3] = 2.0  # a constant dim, and one with missing cells
    few[2:, 4] = np.nan
    share = unexplained_share(few)
    assert share[3] == 1.0
    assert ((share > 0) & (share <= 1)).all()


def test_spectral_start_of_incomplete_data_sees_all_features(rng):
    data = datasets.bars(500, noise_var=0.25, random_state=3)
    X = np.where(rng.random(data.X.shape) < 0.2, np.nan, data.X)
    assert spectral_start(rng, low_rank_completion(X), has_offset=False).shape[1] == 4


MODELS = {
    "infinite": (None, None),
    "finite": (BetaBernoulli(n_features=6), None),
    "per dim, offset, floor": (None, LinearGaussian(noise_var=PerDim(), offset=NormalOffset(), noise_floor=0.1)),
    "fixed offset": (None, LinearGaussian(offset=np.full(36, 0.1))),
}


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_every_start_gives_a_sound_state(name, kind, missing, rng):
    prior, observation = MODELS[name]
    X = datasets.bars(60, random_state=1).X
    X[rng.random(X.shape) < missing] = np.nan
    model, data = adapted(X, prior, observation)
    n_ticks = []
    state = find_start(rng, model, data, kind, 30, lambda: n_ticks.append(1))
    assert not state[0].learned
    assert not state[1].learned
    z = state[2].z
    assert z.shape[1] == (6 if name == "finite" else z.any(axis=0).sum())
    dense = z.astype(float)
    assert np.array_equal(state[2].gram, dense.T @ dense)
    completed = state[1].engine(ChainRows).completed(data, state[2])
    assert np.allclose(state[2].cross, dense.T @ completed)
    assert np.array_equal(completed[~np.isnan(X)], X[~np.isnan(X)])
    assert (len(n_ticks) > 0) == (kind != "empty")


def test_a_start_depends_on_its_stream_only():
    X = datasets.bars(80, random_state=1).X
    model, data = adapted(X)
    found = [find_start(np.random.default_rng(7), model, data, "search", 40) for _ in range(2)]
    assert np.array_equal(found[0][2].z, found[1][2].z)
    assert found[0][1].noise_var == found[1][1].noise_var


def test_an_error_of_tick_ends_the_search():
    class StopError(Exception):
        pass

    def tick():
        raise StopError

    X = datasets.bars(50, random_state=1).X
    model, data = adapted(X)
    with pytest.raises(StopError):
        find_start(np.random.default_rng(0), model, data, "search", 40, tick)


def rare_features():
    """Z from IBP(3): columns with few members lie below the spectral edge."""
    rng = np.random.default_rng(3)
    Z = IBP(mass=3.0).simulate(rng, 200)
    return Z, Z @ rng.standard_normal((Z.shape[1], 40)) + 0.5 * rng.standard_normal((200, 40))


@pytest.mark.parametrize("name", ["blocks", "rare features"])
def test_search_finds_the_right_mode(name):
    """Free energy as high as that of a chain that begins at the truth."""
    if name == "blocks":
        data = datasets.blocks(300, random_state=2)
        Z, X = data.Z, data.X
    else:
        Z, X = rare_features()
    truth = walk_at(X, Z).score(30)
    model, data = adapted(X)
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        found = Walk(rng, model, data, find_start(rng, model, data, "search", 500), None)
        found.settle(10, learn=True)
        assert found.score(30) > truth - 20.0


def test_single_bits_from_no_features_do_not():
    """The mutant of the search: the same number of plain Gibbs sweeps."""
    data = datasets.blocks(300, random_state=2)
    truth = walk_at(data.X, data.Z).score(30)
    model, prepared = adapted(data.X)
    rng = np.random.default_rng(0)
    inference = CollapsedGibbs(start="empty", group=1, moves=0.0)
    state = inference.init(rng, model, prepared, 300)
    for _ in range(700):
        state, _ = inference.step(rng, state, model, prepared)
    assert Walk(rng, model, prepared, state, None).score(30) < truth - 100.0


def test_free_energy_prefers_mass_over_density():
    """At noise variance 1 the density of a mode with three features can be higher; its free energy is not."""
    data = datasets.bars(500, noise_var=1.0, random_state=100)
    right = walk_at(data.X, data.Z)
    wrong = walk_at(data.X, data.Z[:, :3])
    while wrong.n_features > 3:
        wrong.place(wrong.local.z[:, :3])
    energies = [w.free_energy() for w in (right, wrong)]
    assert energies[0] > energies[1] + 20.0
