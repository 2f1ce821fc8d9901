"""Sweeps of sparse loadings by classes of their owners against twins, and against numbers from the reference."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from problems import bits, few, mutant, seeds
from reference.weights import class_replicates as replicates_twin
from reference.weights import class_rows as twin

from thali.kernels.weights import class_replicates
from thali.kernels.weights import class_rows as kernel
from thali.testing import z_limit
from thali.testing.zscores import z_scores

NAMES = ("draw_loadings", "draw_classes", "draw_preferences")


def run(module, seed, kind, n_rows, K, n_cells, n_classes, missing, **changed):
    """What two rounds of all three draws give; `changed` has some that are not those of the module."""
    draw = {name: getattr(module, name) for name in NAMES} | changed
    rng = np.random.default_rng(seed)
    G = bits(rng, kind, n_rows, K) * rng.standard_normal((n_rows, K))
    F, preferences = rng.standard_normal((K, n_cells)), rng.standard_normal((n_classes, K))
    classes = rng.integers(n_classes, size=n_rows)
    noise_vars, precisions = rng.uniform(0.4, 1.5, n_rows), rng.uniform(0.5, 2.0, K)
    Y = G @ F + rng.standard_normal((n_rows, n_cells))
    holes = rng.random(Y.shape) < missing
    Y[holes] = 0.0
    starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
    cells, fits = np.nonzero(holes)[1].astype(np.int64), []
    for _ in range(2):
        draw["draw_loadings"](Y, starts, cells, G, F, precisions, noise_vars, classes, preferences, rng)
        fits.append(draw["draw_classes"](G, precisions, classes, preferences, rng))
        draw["draw_preferences"](G, precisions, classes, preferences, rng)
    return [G, classes, preferences, fits, rng.random()]


def same(mine, theirs):
    return all(np.allclose(a, b, rtol=1e-6, atol=1e-7) for a, b in zip(mine, theirs, strict=True))


PROBLEMS = st.tuples(
    seeds, st.sampled_from(["random", "zero", "own", "twins"]), st.integers(1, 8), st.integers(1, 5),
    st.integers(1, 5), st.integers(1, 4), st.sampled_from([0.0, 0.3, 1.0]),
)  # fmt: skip


@few
@given(PROBLEMS)
@example((2, "random", 8, 5, 4, 3, 0.3))
def test_draws_equal_their_twins(of):
    assert same(run(kernel, *of), run(twin, *of))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("draw_loadings", "cells, seen_gram", "cells[:0], seen_gram"),
        ("draw_loadings", "if j != k:", "if j < k:"),
        ("draw_loadings", "pull = left / noise_vars[n] + precision * preference", "pull = left / noise_vars[n]"),
        ("draw_loadings", "preferences[classes[n], k]", "preferences[0, k]"),
        ("draw_classes", "log_class(G[n], precisions, preferences[i])", "0.0"),
        ("draw_classes", "u >= log_weights[i]", "u < log_weights[i]"),
        ("draw_preferences", "draw_polya_gamma_sum(n_rows[i], ", "draw_polya_gamma_sum(1, "),
        ("draw_preferences", "totals[i, k] += G[n, k]", "pass"),
    ],
)
def test_a_mistake_is_seen(name, old, new):
    wrong = {name: mutant(getattr(kernel, name), old, new)}
    problems = [(seed, "random", 8, 4, 4, 3, 0.2) for seed in range(6)]
    assert not all(same(run(kernel, *of, **wrong), run(twin, *of)) for of in problems)


@pytest.mark.parametrize("missing", [False, True])
def test_replicates_equal_their_twin(missing, rng):
    G = (rng.random((6, 4, 3)) < 0.5) * rng.standard_normal((6, 4, 3))
    Y, noises = rng.standard_normal((6, 4, 2)), rng.uniform(0.5, 1.5, (6, 4))
    classes, preferences = rng.integers(2, size=(6, 4)), rng.standard_normal((6, 2, 3))
    holes = np.zeros((4, 2), dtype=bool)
    holes[1, 1] = holes[3] = missing
    Y[:, holes] = 0.0
    results = []
    for module in (class_replicates, replicates_twin):
        stream = np.random.default_rng(1)
        arrays = [G.copy(), np.ones((6, 3)), noises.copy(), classes.copy(), preferences.copy()]
        module.class_replicates(Y, holes, *arrays, (2.0, 1.5), (3.0, 2.0), stream)
        results.append([*arrays, stream.random()])
    assert same(*results)


def test_parts_equal_their_twins(rng):
    for _ in range(50):
        curve, pull, precision, preference = rng.uniform(1, 3), rng.normal(), rng.uniform(0.2, 1), 2 * rng.normal()
        of = curve, pull, precision, preference
        assert kernel.use_log_odds(*of) == pytest.approx(twin.use_log_odds(*of))
        g, precisions = rng.standard_normal(4) * (rng.random(4) < 0.5), rng.uniform(0.5, 2, 4)
        of = g, precisions, 3 * rng.standard_normal(4)
        assert kernel.log_class(*of) == pytest.approx(twin.log_class(*of))
        of = 7, 3, rng.normal(), 1.4, rng.random()
        np.testing.assert_allclose(kernel.preference_law(*of), twin.preference_law(*of))


def test_preferences_beyond_all_bounds_do_no_harm():
    g, precisions, steep = np.array([1.0, 0.0]), np.ones(2), np.array([800.0, -800.0])
    assert kernel.log_class(g, precisions, steep) == pytest.approx(-0.5 * 799.0**2)
    for preferences, wanted in ((np.array([steep, -steep]), 0), (np.array([-steep, steep]), 1)):
        for seed in range(20):
            classes = np.zeros(1, np.int64)
            fit = kernel.draw_classes(g[None], precisions, classes, preferences, np.random.default_rng(seed))
            assert classes[0] == wanted
            assert np.isfinite(fit)


def test_an_empty_class_has_the_preferences_of_the_prior(rng):
    drawn = []
    for _ in range(2000):
        preferences = np.zeros((2, 2))
        kernel.draw_preferences(np.ones((3, 2)), np.ones(2), np.zeros(3, np.int64), preferences, rng)
        drawn.append(preferences[1])
    x = np.array(drawn)
    assert np.abs(z_scores(np.column_stack([x, x**2]), np.array([0.0, 0.0, 1.0, 1.0]))).max() <= z_limit(4)


# ---- numbers of the reference, golden G12


def wave(c, n, m):
    return np.sin(c + 1.3 * np.arange(n)[:, None] + 0.7 * np.arange(m))


def test_golden_class():
    g, precisions = np.array([0.9, 0.0, -0.4]), np.array([0.7, 1.3, 2.1])
    weights = np.exp([kernel.log_class(g, precisions, v) for v in wave(0.3, 2, 3)])
    np.testing.assert_allclose(weights / weights.sum(), [0.135896458825, 0.864103541175], rtol=1e-10)


def test_golden_bit():
    """The owner and factor of golden G4, with a preference of 0.6."""
    F, Y, noise, precision, preference = wave(0.5, 3, 6), 2 * wave(0.1, 4, 6), 0.5, 2.1, 0.6
    left = Y[1] - np.array([0, 1.2, 0]) @ F
    curve = F[2] @ F[2] / noise + precision
    pull = F[2] @ left / noise + precision * preference
    assert curve == pytest.approx(6.79799614308)
    assert kernel.use_log_odds(curve, pull, precision, preference) == pytest.approx(-0.136798897629, rel=1e-10)


def test_golden_preference():
    np.testing.assert_allclose(kernel.preference_law(5, 3, 1.4, 1.3, 1.05), [0.389915966387, 5.95], rtol=1e-11)
