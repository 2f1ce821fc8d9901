"""Sums over all integers, against closed forms and 40-digit arithmetic."""

import math

import numpy as np
import pytest
from scipy.special import digamma, gammaln, zeta

from thali.numerics import series
from thali.numerics.series import expected_log_complement, log_beta_moment, series_nodes, sum_series

# -E log(1 - V exp(-T)), V ~ Beta(a, b), T ~ Gamma(u, v): the series with its integral in 40-digit arithmetic
LOG_COMPLEMENTS = {
    (1.0, 1.0, 1.0, 1.0): 2 - math.pi**2 / 6,
    (0.5, 0.7, 0.3, 2.0): 0.703607241432130014,
    (1.0, 0.3, 0.01, 1000.0): 3.31913637828329158,
    (5.0, 40.0, 3.0, 50.0): 0.111831822259775869,
    (30.0, 2.0, 0.2, 300.0): 3.00974175820453939,
    (2.0, 3.0, 1.5, 4.0): 0.369666863272280932,
    (0.01, 0.02, 0.03, 0.5): 6.64511954718331174,
    (100.0, 100000.0, 0.5, 20.0): 0.000975405999548350371,
    (2000.0, 3.0, 7.0, 2.0): 0.0630396794369461162,
    (0.001, 0.1, 1e-6, 1.0): 0.10044131691438305,
}
# log B(a + r, b) / B(a, b) in 120-digit arithmetic
BETA_MOMENTS = {
    (0.01, 2.0, 3.0): -7.085951175214185,
    (3.0, 1e6, 1.0): -12.716901269291665,
    (1e6, 1e6, 2.0): -1.3862938611202655,
    (5.0, 40.0, 1e3): -155.13664203633581,
    (0.3, 0.2, 1e20): -9.73377342386956,
    (30.0, 2.0, 1e24): -103.6888998775669,
    (1e-4, 1e-3, 1e10): -2.4214973529652384,
    (1e6, 0.5, 1e12): -6.907755903981762,
    (100.0, 1e5, 20.0): -136.38970641580224,
    (7.9, 8.1, 1.5): -1.035992697770947,
}


def log_complement(a, b, u, v):
    return -expected_log_complement(lambda r: log_beta_moment(a, b, r) - u * np.log1p(r / v), b + u)


def largest_error():
    return max(abs(log_complement(*point) / value - 1) for point, value in LOG_COMPLEMENTS.items())


def test_log_complements_of_the_reference():
    assert largest_error() < 1e-13


@pytest.mark.parametrize("exponent", [1.001, 1.5, 2.0, 7.0])
def test_zeta_function(exponent):
    r, _ = series_nodes()
    assert sum_series(r**-exponent, exponent - 1) == pytest.approx(zeta(exponent), rel=1e-13)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.2, 3.0), (40.0, 0.05), (7.0, 900.0)])
def test_beta_variable(a, b):
    """E log(1 - x) = psi(b) - psi(a + b); also the limit of V exp(-T) for T -> 0."""
    assert expected_log_complement(lambda r: log_beta_moment(a, b, r), b) == pytest.approx(digamma(b) - digamma(a + b))
    assert log_complement(a, b, 1e-12, 1.0) == pytest.approx(digamma(a + b) - digamma(b), rel=1e-9)


def test_atoms_are_independent():
    points = np.array(list(LOG_COMPLEMENTS))
    a, b, u, v = points.T[:, :, None]
    together = -expected_log_complement(lambda r: log_beta_moment(a, b, r) - u * np.log1p(r / v), (b + u)[:, 0])
    np.testing.assert_allclose(together, [log_complement(*point) for point in points], rtol=1e-13)


def test_beta_moments():
    for (a, b, r), wanted in BETA_MOMENTS.items():
        assert log_beta_moment(a, b, np.array([r]))[0] == pytest.approx(wanted, rel=1e-14, abs=1e-13), (a, b, r)


def test_difference_of_log_gammas_fails_the_moments():
    a, b, r = 0.3, 0.2, 1e20
    naive = gammaln(a + r) - gammaln(a + b + r) + gammaln(a + b) - gammaln(a)
    assert abs(naive - BETA_MOMENTS[a, b, r]) > 1e-6


def test_rule_is_exact_for_polynomials_on_integers():
    x, weights = series._integer_rule(32.0)
    for power in range(2 * series._POINTS):
        assert weights @ x**power == pytest.approx(float(sum(i**power for i in range(32))), rel=1e-12)


def continuous_rule(n):
    """Mutant: the Gauss-Legendre rule for the integral from -1/2 to n - 1/2 in place of the sum."""
    x, weights = np.polynomial.legendre.leggauss(series._POINTS)
    return n / 2 * (x + 1) - 0.5, n / 2 * weights


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("_integer_rule", continuous_rule),
        ("_LAST_PANEL", 10),  # a power law from r = 1024 on
        ("_POINTS", 4),
        ("sum_series", lambda terms, decay: terms @ series_nodes()[1]),  # no remainder
    ],
)
def test_mutants_fail_the_reference(name, mutant, monkeypatch):
    series_nodes.cache_clear()
    monkeypatch.setattr(series, name, mutant)
    error = largest_error()
    series_nodes.cache_clear()
    assert error > 1e-11


def test_first_thousand_terms_fail_the_reference():
    """The reference's table of a series that is cut off: 11 % at one of its points."""
    r = np.arange(1.0, 1001.0)
    a, b, u, v = 1.0, 0.3, 0.01, 1000.0
    cut = np.exp(log_beta_moment(a, b, r) - u * np.log1p(r / v) - np.log(r)).sum()
    assert 1 - cut / LOG_COMPLEMENTS[a, b, u, v] == pytest.approx(0.11, abs=0.005)
