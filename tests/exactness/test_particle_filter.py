"""The particle filter against enumeration: its evidence is unbiased, and so is evidence times any posterior mean."""

import functools
import inspect
import math

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from tiny import data

from thali import IBP, BetaBernoulli, BetaProcess, Gamma, InverseGamma, LinearGaussian, ParticleFilter
from thali.core.binary import column_counts
from thali.core.model import Model
from thali.inference.streams import particle_filter
from thali.kernels.bits import particle_rows, particles
from thali.observations.gaussian import particles as _particles
from thali.observations.gaussian.collapsed import CollapsedGaussian
from thali.observations.gaussian.marginal import spectrum
from thali.testing import z_limit
from thali.testing.enumerate import all_matrices, enumerate_posterior
from thali.testing.zscores import z_scores

PRIORS = {
    "one parameter": IBP(mass=1.2),
    "two parameters": IBP(mass=1.2, concentration=0.6),
    "three parameters": IBP(mass=1.0, concentration=0.7, discount=0.4),
    "rounds": BetaProcess(mass=1.2, concentration=2.0, rounds=2),
    "finite": BetaBernoulli(mass=1.2, n_features=3),
}
OBSERVATION = LinearGaussian(noise_var=0.25, feature_var=1.0)
N_K = 7  # numbers of features that are compared
MOST = 8  # features that are enumerated


class Singly(ParticleFilter):
    """Bits proposed one by one, so that the proposal is not the best one even for few features."""

    group = 1


FILTERS = {
    "gibbs": ParticleFilter(proposal="gibbs", n_sweeps=0),
    "singly": Singly(n_sweeps=0),
    "prior": ParticleFilter(proposal="prior", n_sweeps=0),
}
SWEPT = ParticleFilter(n_particles=20, proposal="prior", n_sweeps=1, resample_below=1.0)


def run(inference, model, X, rng, n_filters):
    """The states of independent filters after X."""
    model = Model(model.prior, model.observation.adapt(X))
    for stream in rng.spawn(n_filters):
        state = inference.begin(stream, model, X.shape[1])
        state, _ = inference.absorb(stream, state, model, X)
        yield state


def unbiased(states, log_evidence):
    """For each filter, its evidence and its sums for P(K) and E[ZZ'], all divided by the true evidence."""
    rows = []
    for state in states:
        weight = np.exp(state.particles.log_weight)
        z = state.particles.z[:, : state.particles.n_rows].astype(float)
        pairs = np.tril_indices(z.shape[1])
        shared = np.einsum("p,pnk,pmk->nm", weight, z, z)[pairs]
        p_k = np.bincount(state.particles.n_columns, weight, minlength=N_K)[:N_K]
        rows.append(math.exp(state.log_evidence - log_evidence) * np.concatenate([[1.0], p_k, shared]))
    return np.array(rows)


@functools.cache
def enumerated(prior, missing):
    return enumerate_posterior(Model(PRIORS[prior], OBSERVATION), data(missing=missing), max_features=MOST)


def worst(prior, missing, inference, rng, n_filters=250):
    X, model, exact = data(missing=missing), Model(PRIORS[prior], OBSERVATION), enumerated(prior, missing)
    found = unbiased(run(inference, model, X, rng, n_filters), exact.log_evidence)
    expected = np.concatenate([[1.0], exact.p_k(N_K), exact.shared()[np.tril_indices(len(X))]])
    common = expected > 0.02  # rare numbers of features have no normal error
    return float(np.abs(z_scores(found[:, common], expected[common])).max()), z_limit(int(common.sum()))


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.parametrize(
    ("prior", "missing"),
    [("one parameter", False), ("two parameters", True), ("finite", False), ("finite", True)],
    ids=["one parameter", "two parameters, missing cells", "finite", "finite, missing cells"],
)
def test_evidence_and_posterior_are_unbiased(prior, kind, missing, rng):
    z, limit = worst(prior, missing, FILTERS[kind].replace(n_particles=60), rng)
    assert z <= limit


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing cells"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.parametrize("prior", PRIORS)
def test_evidence_and_posterior_are_unbiased_to_a_thousandth(prior, kind, share, missing, rng):
    z, limit = worst(prior, missing, FILTERS[kind].replace(n_particles=100, resample_below=share), rng, 2000)
    assert z <= limit


@pytest.mark.parametrize("n_filters", [100, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("prior", ["one parameter", "finite"])
def test_sweeps_leave_it_unbiased(prior, n_filters, rng):
    """Columns come and go in a sweep, and a particle takes up its new bits and cells."""
    z, limit = worst(prior, prior == "finite", SWEPT, rng, n_filters)
    assert z <= limit


def test_sweeps_with_too_many_births_fail(rng, monkeypatch):
    right = CollapsedGaussian.sweep

    def wrong(self, stream, data, local, odds, group):
        return right(self, stream, data, local, odds._replace(new_rate=2.0 * odds.new_rate), group)

    monkeypatch.setattr(CollapsedGaussian, "sweep", wrong)
    z, limit = worst("one parameter", False, SWEPT, rng, 100)
    assert z > limit


def plain(kernel):
    return getattr(kernel, "py_func", kernel)


def mutate(monkeypatch, module, name, old, new):
    """The filter in plain Python, with a piece of one kernel replaced."""
    source = inspect.getsource(plain(getattr(module, name)))
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {name}"
    names = dict(vars(module))
    exec(source.replace(old, new), names)
    monkeypatch.setattr(module, name, names[f"_{name}"])
    monkeypatch.setattr(particles, "draw_row", plain(particle_rows.draw_row))
    wrong = plain(particles.filter_rows)
    monkeypatch.setitem(wrong.__globals__, "draw_row", particles.draw_row)
    monkeypatch.setattr(_particles, "filter_rows", wrong)


@pytest.mark.parametrize(
    ("module", "name", "old", "new"),
    [
        (particle_rows, "log_row", "    v += 1.0 / ridge", "    v += 0.0"),
        (particles, "filter_rows", "log_weight[p] = -math.log(n_particles)", "log_weight[p] *= 1.0"),
    ],
    ids=["no variance of new features", "weights not reset"],
)
def test_wrong_filters_fail(module, name, old, new, monkeypatch, rng):
    mutate(monkeypatch, module, name, old, new)
    inference = SWEPT.replace(n_sweeps=0)
    z, limit = worst("one parameter", False, inference, rng, 80)
    assert z > limit


def test_births_of_another_row_fail(monkeypatch, rng):
    right = particle_filter.prior_tables

    def late(priors, n_before, n_rows):
        log_odds, new_rate = right(priors, n_before, n_rows)
        return log_odds, np.array([[p.new_rate(n_before + i + 2) for i in range(new_rate.shape[1])] for p in priors])

    monkeypatch.setattr(particle_filter, "prior_tables", late)
    z, limit = worst("one parameter", False, FILTERS["gibbs"].replace(n_particles=60), rng)
    assert z > limit


# ---- learned hyperparameters


def exact_with_learned_mass(shape, rate):
    """(log evidence, P(K), E[mass]) of at most MOST features, mass ~ Gamma: p(Z | mass) = mass^K exp(-mass H) c(Z)."""
    one, mass, H = enumerated("one parameter", False), PRIORS["one parameter"].mass, 1 + 1 / 2 + 1 / 3
    K = np.arange(MOST + 1)
    with np.errstate(divide="ignore"):
        log_c = np.log(one.p_k(len(K))) + one.log_evidence + mass * H - K * math.log(mass)

    def log_mean(power):  # of mass^(K + power) exp(-mass H)
        k = K + power
        return shape * math.log(rate) - (shape + k) * math.log(rate + H) + gammaln(shape + k) - gammaln(shape)

    total = logsumexp(log_c + log_mean(0))
    return total, np.exp(log_c + log_mean(0) - total), math.exp(logsumexp(log_c + log_mean(1)) - total)


def learned_mass(rng, n_filters=40, n_particles=50):
    """z-scores of evidence, P(K) and E[mass], with the mass moved after every row."""
    X = data()
    log_evidence, p_k, mean = exact_with_learned_mass(2.0, 1.5)
    model = Model(IBP(mass=Gamma(2.0, 1.5)), OBSERVATION)
    inference = ParticleFilter(n_particles=n_particles, resample_below=1.0, n_sweeps=0)
    found = []
    for state in run(inference, model, X, rng, n_filters):
        weight = np.exp(state.particles.log_weight) * (state.particles.n_columns <= MOST)
        shares = np.bincount(state.particles.n_columns, weight, minlength=N_K)[:N_K]
        values = np.concatenate([[weight.sum()], shares, [weight @ state.hyper["prior.mass"]]])
        found.append(math.exp(state.log_evidence - log_evidence) * values)
    expected = np.concatenate([[1.0], p_k[:N_K], [mean]])
    return z_scores(np.array(found), expected)[expected > 0.02]


@pytest.mark.parametrize("n_filters", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_learned_mass_has_its_exact_posterior(n_filters, rng):
    z = learned_mass(rng, n_filters)
    assert np.abs(z).max() <= z_limit(z.size), z


def test_a_wrong_move_of_the_mass_fails(rng, monkeypatch):
    right = IBP.resample

    def wrong(self, stream, current, Z):
        """Its conditional for one column more than there is."""
        return right(self, stream, current, np.hstack([Z, np.ones((len(Z), 1), np.uint8)]))

    monkeypatch.setattr(IBP, "resample", wrong)
    z = learned_mass(rng)
    assert np.abs(z).max() > z_limit(z.size), z


def evidence_given(X, prior, noise, feature, masses):
    """log p(X) for each draw of (mass, noise_var, feature_var), by enumeration."""
    n_rows, n_dims = X.shape
    parts: dict = {}
    total = np.full(len(noise), -np.inf)
    for Z in all_matrices(n_rows, prior.n_features):
        counts = tuple(sorted(column_counts(Z)))
        if counts not in parts:
            parts[counts] = np.array([prior.replace(mass=float(mass)).log_prob(Z) for mass in masses])
        z = Z.astype(float)
        lam, power, square, _, _ = spectrum(z.T @ z, z.T @ X, float(np.sum(X * X)), n_rows, n_dims)
        ratio = feature / noise
        explained = sum(p / (eigen + 1 / ratio) for p, eigen in zip(power, lam, strict=True))
        spread = sum(np.log1p(eigen * ratio) for eigen in lam)
        log_likelihood = (
            -0.5 * n_rows * n_dims * np.log(2 * np.pi * noise)
            - 0.5 * n_dims * spread
            - 0.5 * (square - explained) / noise
        )
        total = np.logaddexp(total, parts[counts] + log_likelihood)
    return total


@pytest.mark.parametrize(("n", "n_filters"), [(1500, 20), pytest.param(30_000, 500, marks=pytest.mark.slow)])
def test_learned_variances_against_draws_from_their_prior(n, n_filters, rng):
    """Evidence, and evidence times the posterior means, by brute force: exact given each draw of the prior."""
    X = data()
    prior = BetaBernoulli(mass=Gamma(3.0, 2.0), n_features=2)
    observation = LinearGaussian(noise_var=InverseGamma(4.0, 2.0), feature_var=InverseGamma(4.0, 4.0))
    values = {
        "prior.mass": rng.gamma(3.0, 1 / 2.0, n),
        "observation.noise_var": 2.0 / rng.gamma(4.0, size=n),
        "observation.feature_var": 4.0 / rng.gamma(4.0, size=n),
    }
    given = evidence_given(
        X, prior, values["observation.noise_var"], values["observation.feature_var"], values["prior.mass"]
    )
    unit = given.max()
    brute = np.exp(given - unit)[:, None] * np.column_stack([np.ones(n), *values.values()])
    found = []
    inference = ParticleFilter(n_particles=60, resample_below=1.0)
    for state in run(inference, Model(prior, observation), X, rng, n_filters):
        weight = np.exp(state.particles.log_weight)
        means = [weight @ state.hyper[name] for name in values]
        found.append(math.exp(state.log_evidence - unit) * np.array([1.0, *means]))
    error = [np.var(a, axis=0, ddof=1) / len(a) for a in (brute, np.array(found))]
    z = (np.mean(found, axis=0) - brute.mean(axis=0)) / np.sqrt(sum(error))
    assert np.abs(z).max() <= z_limit(z.size), z
