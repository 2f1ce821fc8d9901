"""Sticks: their exact probabilities, the weights of a slice sampler, and the bounds of variational inference."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betaln, gammaln, softmax
from scipy.stats import beta as beta_law

from thali import IBP, Gamma, InvalidDataError, InvalidParameterError, LogNormal, StickBreakingIBP
from thali.priors.sticks import weights as sticks
from thali.priors.sticks.taylor import printed_rest, taylor_head, taylor_interval
from thali.testing import check_prior, z_limit
from thali.testing.zscores import z_scores

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/ibp-gibbs-variational.json").read_text())
CASES = {case["id"]: case for case in GOLDEN}
TAU = np.array(CASES["G13"]["inputs"]["tau"]).T


# --- the prior ------------------------------------------------------------------------------------


@pytest.mark.parametrize("truncation", [1, 2, None])
def test_contract(truncation, rng):
    check_prior(StickBreakingIBP(mass=1.3, truncation=truncation), rng)


class OneStickTooFew(StickBreakingIBP):
    def log_prob(self, Z):
        return super().log_prob(Z) - math.log(self.mass)


class FlatSticks(StickBreakingIBP):
    def simulate(self, rng, n_rows):
        weights = rng.beta(self.mass, 1.0, size=self.truncation)  # no product
        return (rng.random((n_rows, self.truncation)) < weights).astype(np.uint8)


@pytest.mark.parametrize("wrong", [OneStickTooFew, FlatSticks])
def test_contract_catches_mutants(wrong, rng):
    with pytest.raises(AssertionError):
        check_prior(wrong(mass=1.3, truncation=2), rng)


def test_log_prob_is_the_integral_over_sticks():
    """Two sticks by two-dimensional quadrature."""
    Z = np.array([[1, 0], [1, 1], [0, 0], [1, 0]])
    m, mass = Z.sum(axis=0), 0.8

    def inner(v1):
        def integrand(v2):
            p = np.array([v1, v1 * v2])
            return mass**2 * (v1 * v2) ** (mass - 1) * np.prod(p**m * (1 - p) ** (4 - m))

        return quad(integrand, 0, 1, epsabs=1e-13)[0]

    wanted = quad(inner, 0, 1, epsabs=1e-13)[0]
    assert StickBreakingIBP(mass=mass, truncation=2).log_prob(Z) == pytest.approx(math.log(wanted), rel=1e-8)


def test_many_sticks_are_the_ibp():
    """The class of Z, summed over the places that its columns may take, tends to that of the IBP."""
    Z = np.array([[1, 0], [1, 1], [0, 1]], dtype=np.uint8)
    for truncation, error in ((8, 0.1), (16, 3e-3)):
        prior = StickBreakingIBP(mass=1.2, truncation=truncation)
        total = 0.0
        for places in itertools.permutations(range(truncation), 2):
            padded = np.zeros((3, truncation), dtype=np.uint8)
            padded[:, list(places)] = Z
            total += math.exp(prior.log_prob(padded))
        assert math.log(total) == pytest.approx(IBP(mass=1.2).log_prob(Z), abs=error)


def test_moments_of_the_weights(rng):
    """E pi_k^j = (mass/(mass + j))^k."""
    prior = StickBreakingIBP(mass=2.0, truncation=6)
    draws = np.array([prior.draw_sticks(rng) for _ in range(20_000)])
    assert (np.diff(draws, axis=1) <= 0).all()
    k = np.arange(1, 7)
    moments = np.hstack([draws, draws**2, draws**3, np.log(draws)])
    expected = np.concatenate([(2 / 3) ** k, (2 / 4) ** k, (2 / 5) ** k, -k / 2.0])
    z = z_scores(moments, expected)
    assert len(z) >= 20
    assert np.abs(z).max() <= z_limit(len(z)), z


def test_weights_of_a_slice_sampler(rng):
    """Used: Beta(m, N - m + 1). Unused: counts above levels are Poisson with the integral of the intensity."""
    prior, n_rows = StickBreakingIBP(mass=1.7), 6
    used = np.array([prior.draw_weights(rng, np.array([1, 3, 6]), n_rows) for _ in range(20_000)])
    z = list(z_scores(used, np.array([1, 3, 6]) / 7.0))
    levels = np.array([0.01, 0.05, 0.2, 0.5])
    found = [prior.draw_unused(rng, levels[0], n_rows) for _ in range(20_000)]
    assert all((np.diff(x) <= 0).all() and (x > levels[0]).all() for x in found)
    counts = np.array([[(x > level).sum() for level in levels] for x in found], dtype=float)
    rate = np.array([1.7 * quad(lambda x: (1 - x) ** n_rows / x, level, 1)[0] for level in levels])
    z += list(z_scores(np.hstack([counts, counts**2]), np.concatenate([rate, rate + rate**2])))
    assert np.abs(z).max() <= z_limit(len(z)), z


def test_bad_input():
    for truncation in (0, -1, 2.5, 10**9, True):
        with pytest.raises(InvalidParameterError, match="truncation must be None or an integer from 1 to"):
            StickBreakingIBP(truncation=truncation)
    with pytest.raises(InvalidParameterError, match=r"use replace\(truncation=K\)"):
        StickBreakingIBP().draw_sticks(np.random.default_rng(0))
    with pytest.raises(InvalidParameterError, match="use truncation=None"):
        StickBreakingIBP(mass=1.0, truncation=3).draw_unused(np.random.default_rng(0), 0.1, 5)
    with pytest.raises(InvalidDataError, match="truncation = 3 columns"):
        StickBreakingIBP(mass=1.0, truncation=3).log_prob(np.ones((2, 2)))
    with pytest.raises(InvalidParameterError, match="to be a number or a Gamma"):
        StickBreakingIBP(mass=LogNormal()).init_weights(10)


# --- E log(1 - weight) ----------------------------------------------------------------------------


def test_complement_golden():
    outputs = CASES["G13"]["outputs"]
    assert sticks.stick_scores(TAU) == pytest.approx(outputs["s"], rel=1e-9)
    assert sticks.multinomial_complement(TAU) == pytest.approx(outputs["L"], rel=1e-9)
    assert sticks.exact_complement(TAU) == pytest.approx(outputs["exact"], rel=1e-9)


def test_complement_of_three_sticks_golden():
    tau = np.array([[2.0, 1.5, 3.0], [1.0, 0.8, 0.6]])
    scores = sticks.stick_scores(tau)
    assert sticks.multinomial_complement(tau)[2] == pytest.approx(-0.984300866622, rel=1e-11)
    assert softmax(scores) == pytest.approx([0.597083008001, 0.339341745542, 0.0635752464572], rel=1e-10)
    assert sticks.exact_complement(tau)[2] == pytest.approx(-0.5324, abs=1e-4)


def test_exact_complement_is_the_expectation(rng):
    v = rng.beta(TAU[0], TAU[1], size=(40_000, 5))
    z = z_scores(np.log1p(-np.cumprod(v, axis=1)), sticks.exact_complement(TAU))
    assert np.abs(z).max() <= z_limit(5), z
    wrong = z_scores(np.log1p(-np.cumprod(v, axis=1)), sticks.multinomial_complement(TAU))
    assert np.abs(wrong).max() > z_limit(5)


@pytest.mark.parametrize("n_terms", [1, 8, 50])
@pytest.mark.parametrize(
    "tau", [TAU, np.array([[2.0, 3.0], [0.5, 0.3]]), np.array([[50.0, 60.0], [2.0, 3.0]])], ids=range(3)
)
def test_taylor_interval_holds_the_truth(tau, n_terms):
    lower, upper = taylor_interval(tau, n_terms)
    exact = sticks.exact_complement(tau)
    assert (lower <= exact + 1e-13).all()
    assert (exact <= upper + 1e-13).all()
    assert (taylor_head(tau, n_terms) >= exact).all()
    assert (taylor_head(tau, n_terms) - printed_rest(tau, n_terms) <= exact).all()
    assert (upper - lower <= printed_rest(tau, n_terms)).all()


def test_taylor_golden():
    outputs = CASES["G16"]["outputs"]
    assert taylor_head(TAU, 8)[-1] == pytest.approx(outputs["head"], rel=1e-9)
    assert printed_rest(TAU, 8)[-1] == pytest.approx(outputs["eps"], rel=1e-9)


# --- variational weights --------------------------------------------------------------------------


def nu(n_rows, n_features):
    n, k = np.arange(n_rows)[:, None], np.arange(n_features)[None]
    return 1 / (1 + np.exp(-np.sin(1.7 * n + 2.3 * k + 0.5)))


def test_update_golden():
    inputs, outputs = CASES["G15"]["inputs"], CASES["G15"]["outputs"]
    counts = nu(inputs["N"], inputs["K"]).sum(axis=0)
    found = sticks.multinomial_update(np.array(inputs["tau"]).T, inputs["alpha"], counts, inputs["N"])
    assert pytest.approx(np.array(outputs["tau_new"]), rel=1e-9) == found.T


def test_bounds_golden():
    """G14: the corrected Eq. (8); its other terms are those of the finite bound, G11, so only the difference is new."""
    inputs = CASES["G11"]["inputs"]
    tau = np.array(inputs["tau"]).T
    counts = (1 / (1 + np.exp(-np.array(inputs["logit_nu"])))).sum(axis=0)
    by = {}
    for how in ("multinomial", "exact"):
        prior = StickBreakingIBP(mass=inputs["alpha"], truncation=2, log_complement=how)
        by[how] = prior.weights_bound(prior.init_weights(2)._replace(tau=tau), counts, inputs["N"])
    wanted = CASES["G14"]["outputs"]
    assert by["exact"] - by["multinomial"] == pytest.approx(
        wanted["elbo_exactE"] - wanted["elbo_multinomial"], rel=1e-9
    )
    assert sticks.exact_complement(tau) == pytest.approx(wanted["exactE"], rel=1e-9)


def test_mass_golden():
    inputs, outputs = CASES["G24"]["inputs"], CASES["G24"]["outputs"]
    tau = np.array(CASES[inputs["same_as"]]["inputs"]["tau"]).T
    mass = StickBreakingIBP(mass=Gamma(2.0, 1.0), truncation=2).init_weights(4).mass
    found = mass.updated(2, -float(sticks.expected_log_sticks(tau).sum()))
    assert (found.shape, found.rate) == pytest.approx(outputs["q_alpha_inf"], rel=1e-9)


def test_gradient_is_that_of_finite_differences():
    counts = nu(6, 5).sum(axis=0)
    _, gradient = sticks.exact_objective(TAU, 1.5, counts, 6)
    for index in np.ndindex(TAU.shape):
        ends = []
        for sign in (1, -1):
            tau = TAU.copy()
            tau[index] += sign * 1e-5
            ends.append(sticks.exact_objective(tau, 1.5, counts, 6)[0])
        assert gradient[index] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-8)


def test_exact_update_is_a_stationary_point():
    counts = nu(6, 5).sum(axis=0)
    tau = sticks.exact_update(TAU, 1.5, counts, 6)
    _, gradient = sticks.exact_objective(tau, 1.5, counts, 6)
    assert np.abs(gradient * tau).max() < 1e-2 * np.abs(counts).max()
    assert sticks.exact_objective(tau, 1.5, counts, 6)[0] > sticks.exact_objective(TAU, 1.5, counts, 6)[0]


def thinned_tail(tau, n_rows):
    """E g_N(pi_K) by thinning N rows with one stick after the other: beta-binomial, positive terms only, O(K N^2)."""
    coefficients = np.concatenate([[0.0], 1 / np.arange(1, n_rows + 1)])
    j = np.arange(n_rows + 1)
    J, L = np.meshgrid(j, j, indexing="ij")
    gap = np.maximum(J - L, 0)
    for a, b in tau.T:
        log_p = gammaln(J + 1) - gammaln(L + 1) - gammaln(gap + 1) + betaln(a + L, b + gap) - betaln(a, b)
        coefficients = np.where(L <= J, np.exp(log_p), 0.0).T @ coefficients
    return (1 / np.arange(1, n_rows + 1)).sum() - coefficients[0]


TAILS = {
    "golden": TAU,
    "one stick": np.array([[2.0], [1.0]]),
    "prior": np.tile([[3.0], [1.0]], (1, 20)),
    "sure": np.tile([[3000.0], [1500.0]], (1, 8)),
    "mixed": np.array([[3000.0, 1.0, 500.0], [1500.0, 1.0, 20.0]]),
}


@pytest.mark.parametrize("n_rows", [1, 10, 200])
@pytest.mark.parametrize("name", TAILS)
def test_expected_tail(name, n_rows):
    assert sticks.expected_tail(TAILS[name], n_rows) == pytest.approx(thinned_tail(TAILS[name], n_rows), rel=1e-8)


def test_tail_golden():
    inputs, outputs = CASES["G23"]["inputs"], CASES["G23"]["outputs"]
    prior = StickBreakingIBP(mass=inputs["alpha"], truncation=1)
    q = prior.init_weights(2)._replace(tau=np.array(inputs["tau"]).T)
    assert prior.tail_correction(q, inputs["N"]) == pytest.approx(outputs["correction"], rel=1e-9)


def test_the_printed_bound_may_exceed_the_ibp_and_the_corrected_one_does_not():
    """Z = 0 (a data set without features): the bound of p(Z = 0) that leaves the tail out is above the IBP's."""
    mass, n_rows = 3.0, 3
    truth = -mass * sum(1 / i for i in range(1, n_rows + 1))
    prior = StickBreakingIBP(mass=mass, truncation=1, log_complement="exact")
    counts = np.zeros(1)
    q = prior.update_weights(prior.init_weights(n_rows), counts, n_rows)
    assert prior.weights_bound(q, counts, n_rows) > truth
    assert prior.weights_bound(q, counts, n_rows) + prior.tail_correction(q, n_rows) <= truth


def test_default_truncation_leaves_little_out():
    q = StickBreakingIBP(mass=5.0).init_weights(1000)
    K = q.tau.shape[1]
    assert 1 - math.exp(-1000 * 5 * (5 / 6) ** K) <= 0.01 < 1 - math.exp(-1000 * 5 * (5 / 6) ** (K - 1))
    assert beta_law(*q.tau[:, 0]).mean() == pytest.approx(5 / 6)
