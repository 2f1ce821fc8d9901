"""Gamma variables below a ceiling: against quadrature, with mutants."""

import math

import numpy as np
import pytest
from problems import mutant
from reference import capped_gamma as twin
from scipy.integrate import quad
from scipy.special import gammaln

from thali.kernels import capped_gamma as kernel

CASES = [(2.5, 1.0, 0.3), (2.5, 1.0, 2.0), (2.5, 1.0, 60.0), (0.3, 4.0, 0.1), (102.0, 90.0, 1.0), (102.0, 1e-9, 1e6)]


def by_quadrature(shape, rate, ceiling):
    """(mean, log mass), the integrand divided by its largest value."""
    peak = min(max((shape - 1) / rate, 1e-3 * ceiling), ceiling)

    def density(x, power=0):
        return x**power * math.exp((shape - 1) * math.log(x / peak) - rate * (x - peak)) if x > 0 else 0.0

    parts = [quad(density, 0, ceiling, args=(power,), points=[peak], limit=200, epsabs=0)[0] for power in (0, 1)]
    return parts[1] / parts[0], math.log(parts[0]) + (shape - 1) * math.log(peak) - rate * peak


@pytest.mark.parametrize(("shape", "rate", "ceiling"), CASES)
def test_mean_and_mass(shape, rate, ceiling):
    means, logs = np.zeros((2, 1))
    kernel.capped_gammas(np.array([shape]), np.array([rate]), ceiling, means, logs)
    mean, log_mass = by_quadrature(shape, rate, ceiling)
    np.testing.assert_allclose(means, mean, rtol=1e-7)
    np.testing.assert_allclose(logs, log_mass, rtol=1e-7, atol=1e-7)
    assert means[0] <= ceiling


@pytest.mark.parametrize("shape", [0.5, 3.0, 1e4])
def test_without_a_ceiling_that_matters(shape):
    """At the end of the series both forms are one, and with none it is a gamma variable."""
    edge = shape + 10 * math.sqrt(shape) + 40
    for x in (0.999 * edge, 1.001 * edge, math.inf):
        assert kernel.capped_mean(shape, 2.0, x / 2.0) == pytest.approx(shape / 2.0, rel=1e-12)
        log_mass = gammaln(shape) - shape * math.log(2.0)
        assert kernel.capped_log_mass(shape, 2.0, x / 2.0) == pytest.approx(log_mass, rel=1e-12)


def test_they_equal_their_twins(rng):
    shapes, rates = rng.uniform(0.1, 30, 200), rng.uniform(0.1, 60, 200)
    for ceiling in (1.0, 0.2, math.inf):
        found, wanted = np.zeros((2, 2, 200))
        kernel.capped_gammas(shapes, rates, ceiling, *found)
        twin.capped_gammas(shapes, rates, ceiling, *wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    for shape, x in zip(shapes, rates, strict=True):
        assert kernel.capped_series(shape, x) == pytest.approx(twin.capped_series(shape, x), rel=1e-8)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("capped_mean", "series / (1.0 + series)", "series"), ("capped_log_mass", "- math.log(shape)", ""),
     ("capped_series", "shape + i", "shape + i - 1")],
)  # fmt: skip
def test_a_mistake_is_seen(name, old, new):
    wrong = mutant(getattr(kernel, name), old, new)
    right = getattr(kernel, name).py_func
    for shape, rate, ceiling in CASES[:2]:
        arguments = (shape, rate * ceiling) if name == "capped_series" else (shape, rate, ceiling)
        assert not np.allclose(wrong(*arguments), right(*arguments))
