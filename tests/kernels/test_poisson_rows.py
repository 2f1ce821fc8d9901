"""Mean field of rows of counts against its twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import few, mutant, plain, seeds
from reference.counts import poisson_rows as twin

from thali.kernels.counts import poisson_rows as kernel
from thali.observations.poisson.data import CountData

KERNELS = ("joint_rows", "independent_rows", "hard_rows")


class Problem:
    def __init__(self, seed, n_rows, K, n_dims, missing=0.0):
        rng = np.random.default_rng(seed)
        X = rng.poisson(rng.gamma(0.4, 3.0, (n_rows, n_dims))).astype(float)
        X[rng.random(X.shape) < missing] = np.nan
        self.data = CountData.of(X)
        self.loadings = rng.gamma(0.5, 1.0, (n_dims, K)) + 1e-6
        self.mean = self.loadings * rng.uniform(1.0, 2.0, K)
        self.log_odds = rng.normal(0.0, 2.0, K)
        shapes = rng.gamma(2.0, 1.0, (4, n_rows, K)) + 0.1
        self.local = [rng.uniform(0.05, 0.95, (n_rows, K)), *shapes[1:]]

    def run(self, module, name, n_passes=2):
        """The factors of the rows after some passes."""
        local = [part.copy() for part in self.local]
        seen = (self.loadings, self.mean, self.mean.sum(axis=0), self.log_odds, 0.3, 0.2)
        work = module if callable(module) else getattr(module, name)
        if name == "hard_rows":
            local = [np.round(local[0]), *local[1:3]]
            work(*self.data.arrays, *seen, n_passes, *local)
        else:
            if name == "independent_rows":
                local[3] = local[2].copy()
            work(*self.data.arrays, *seen, 0.01, n_passes, *local)
        return local


def same(mine, theirs):
    return all(np.allclose(a, b, rtol=1e-9, atol=1e-11) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("name", KERNELS)
@few
@given(seeds, st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.sampled_from([0.0, 0.3]))
def test_rows_equal_their_twin(name, seed, n_rows, K, n_dims, missing):
    problem = Problem(seed, n_rows, K, n_dims, missing)
    assert same(problem.run(kernel, name), problem.run(twin, name))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("joint_rows", "- c * log_leak", ""),
        ("joint_rows", "(shape + c) * math.log(on / off)", "shape * math.log(on / off)"),
        ("joint_rows", "rate + leak * seen", "rate"),
        ("independent_rows", "(1.0 - leak) * w_shape", "w_shape"),
        ("independent_rows", "(z + (1.0 - z) * leak)", "z"),
        ("hard_rows", "- a * math.log(on)", "- shape * math.log(on)"),
        ("hard_rows", "- code[k] * own[k, i]", ""),
        ("hard_rows", "size / (n_on + 1.0)", "0.0"),
    ],
)
def test_a_mistake_is_seen(name, old, new):
    problems = [Problem(seed, 6, 3, 5, 0.2) for seed in range(5)]
    right = [problem.run(twin, name) for problem in problems]
    whole = getattr(kernel, name)
    for work, is_right in ((plain(whole), True), (mutant(whole, old, new), False)):
        found = [problem.run(work, name) for problem in problems]
        assert all(map(same, found, right)) is is_right


@pytest.mark.parametrize("name", KERNELS[:2])
def test_single_precision_is_near(name):
    problem = Problem(1, 20, 5, 8, 0.1)
    right = problem.run(kernel, name)
    problem.loadings = problem.loadings.astype(np.float32)
    assert all(np.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(problem.run(kernel, name), right, strict=True))


@few
@given(seeds, st.integers(1, 6), st.integers(1, 4), st.integers(1, 5))
def test_allocation_equals_its_twin(seed, n_rows, K, n_dims):
    problem = Problem(seed, n_rows, K, n_dims)
    mine, theirs = np.zeros((n_dims, K)), np.zeros((n_dims, K))
    data, code = problem.data, problem.local[1]
    log_rate = kernel.allocate(data.start, data.dims, data.counts, problem.loadings, code, mine)
    assert log_rate == pytest.approx(
        twin.allocate(data.start, data.dims, data.counts, problem.loadings, code, theirs), rel=1e-10
    )
    np.testing.assert_allclose(mine, theirs, rtol=1e-10)
    np.testing.assert_allclose((mine * problem.loadings).sum(axis=1), data.sparse().sum(axis=0), rtol=1e-10)


def test_a_count_without_a_feature_is_impossible():
    data = CountData.of(np.array([[2.0]]))
    allocated = np.zeros((1, 1))
    assert kernel.allocate(data.start, data.dims, data.counts, np.ones((1, 1)), np.zeros((1, 1)), allocated) == -np.inf


def test_special_functions():
    for x in (0.005, 0.3, 1.0, 7.9, 8.1, 1e3, 1e8):
        assert plain(kernel.digamma)(x) == pytest.approx(twin.digamma(x), rel=1e-12, abs=1e-12)
    for log_odds in (-1e4, -3.0, 0.0, 2.0, 1e4):
        assert plain(kernel.chance)(log_odds) == pytest.approx(twin.chance(log_odds), rel=1e-9)


def test_parts_equal_their_twins(rng):
    own, values = rng.gamma(1.0, 1.0, (3, 4)), rng.poisson(3.0, 4).astype(float)
    cells, loadings = np.array([2, 0, 1]), rng.random((4, 3))
    assert plain(kernel.log_code)(0.7, 2.0, 0.3, 0.4, -5.0) == pytest.approx(twin.log_code(0.7, 2.0, 0.3, 0.4, -5.0))
    hidden = np.array([1, 3])
    assert plain(kernel.seen_exposure)(np.full(3, 9.0), loadings, hidden, 1) == pytest.approx(
        twin.seen_exposure(np.full(3, 9.0), loadings, hidden, 1)
    )
    for module in (kernel, twin):
        module_own, code = np.zeros((3, 3)), np.array([1e9, 1e-9, 2e-9])
        plain(module.gather)(cells, loadings, module_own)
        assert np.array_equal(module_own, loadings[cells].T)
        total, ratio = np.zeros(4), np.zeros(4)
        plain(module.share)(values, own, code, 3, total, ratio)
        with np.errstate(divide="ignore"):  # what is left has no digits of the sum
            plain(module.change)(values, own, code, 3, 0, 1e-9, total, ratio)
        np.testing.assert_allclose(total, np.array([1e-9, 1e-9, 2e-9]) @ own, rtol=1e-12)
        np.testing.assert_allclose(ratio, values / total, rtol=1e-12)
