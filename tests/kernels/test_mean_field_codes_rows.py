"""Variational factors of the bits and weights of rows: twins, bounds that never fall, mutants."""

import math

import numpy as np
import pytest
from code_laws import LAWS
from hypothesis import given
from hypothesis import strategies as st
from problems import few, mutant, plain, seeds
from reference.weights import mean_field_codes as twin

from thali.kernels.weights import code_factors as factors
from thali.kernels.weights import mean_field_codes as kernel


class Row:
    """Arguments of a pass."""

    def __init__(self, seed, K, law):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((K, 3))
        self.forms = A @ A.T + np.diag(0.3 * rng.random(K))
        self.product = A @ (2 * rng.standard_normal(3))
        self.odds, self.law = rng.standard_normal(K), LAWS[law]
        self.z, self.mean = rng.random(K), rng.standard_normal(K)
        self.pull, self.curve, self.spread = rng.standard_normal(K), 1 + rng.random(K), 0.2 + rng.random(K)

    def joint(self, module, sharpness=1.0, n_passes=1, moments=True):
        z, mean, pull, curve = (part.copy() for part in (self.z, self.mean, self.pull, self.curve))
        v, square = np.zeros_like(z), np.zeros_like(z)
        totals = [module.joint_moments(*self.law, z, pull, curve, v, square)] if moments else []
        g = self.product - self.forms @ v
        for _ in range(n_passes):
            arguments = g, self.forms, self.odds, *self.law, sharpness, z, mean, pull, curve, v, square
            totals.append(module.joint_pass(*arguments))
        return np.concatenate([z, mean, pull, curve, v, square, g, totals])

    def independent(self, module, sharpness=1.0, n_passes=1):
        z, mean, spread = (part.copy() for part in (self.z, self.mean, self.spread))
        z = (z > 0.5).astype(float) if sharpness > 1 else z
        v, square = np.zeros_like(z), np.zeros_like(z)
        totals = [module.independent_moments(*self.law, z, mean, spread, v, square)]
        g = self.product - self.forms @ v
        for _ in range(n_passes):
            arguments = g, self.forms, self.odds, *self.law, sharpness, z, mean, spread, v, square
            totals.append(module.independent_pass(*arguments))
        return np.concatenate([z, mean, spread, v, z * square, g, totals])

    def bound(self, total, z, v, square):
        """The row's part of the bound, up to a constant."""
        second = np.outer(v, v) - np.diag(v**2) + np.diag(square)
        return total + z @ self.odds + self.product @ v - 0.5 * np.sum(self.forms * second)


@few
@given(seeds, st.integers(0, 5), st.sampled_from(sorted(LAWS)), st.sampled_from([1.0, math.inf]), st.integers(0, 3))
def test_passes_equal_their_twins(seed, K, law, sharpness, n_passes):
    row = Row(seed, K, law)
    for run in (row.joint, row.independent)[: 1 if law == "both" else 2]:  # of an independent factor: one or the other
        np.testing.assert_allclose(run(kernel, sharpness, n_passes), run(twin, sharpness, n_passes), 1e-6, 1e-8)


class Part:
    """Arguments of `joint_rows` and `independent_rows`: some rows with missing cells, and an offset or none."""

    def __init__(self, seed, n_rows, K, law, missing, offset):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((K + offset, 4))
        self.of_dims = np.ascontiguousarray(np.einsum("kd,ld->dkl", A, A) + 0.2 * np.eye(K + offset))
        self.forms = self.of_dims.sum(axis=0)
        holes = rng.random((n_rows, 4)) < missing
        holes[:, 0] = False
        X = np.where(holes, 0.0, 2 * rng.standard_normal((n_rows, 4)))
        self.starts = np.concatenate([[0], np.cumsum(holes.sum(axis=1))]).astype(np.int64)
        self.dims = np.nonzero(holes)[1].astype(np.int64)
        self.products, self.odds, self.law = X @ A[:K].T, rng.standard_normal(K), LAWS[law]
        self.local = [rng.random((n_rows, K)), *rng.standard_normal((2, n_rows, K)), 1 + rng.random((n_rows, K))]

    def run(self, rows, sharpness=1.0, n_passes=1):
        z, mean, pull, curve = (part.copy() for part in self.local)
        v, square = np.zeros_like(z), np.zeros_like(z)
        z = (z > 0.5).astype(float) if sharpness > 1 else z
        factors = (z, mean, pull, curve) if "joint" in rows.__name__ else (z, mean, curve)
        total = rows(
            self.products, self.starts, self.dims, self.forms, self.of_dims, self.odds, *self.law, sharpness,
            n_passes, *factors, v, square,
        )  # fmt: skip
        return np.concatenate([*(part.ravel() for part in factors), v.ravel(), (z * square).ravel(), [total]])


@few
@given(
    seeds, st.integers(1, 5), st.integers(0, 3), st.sampled_from(["normal", "laplace"]),
    st.sampled_from([0.0, 0.4, 0.9]), st.sampled_from([0, 1]), st.sampled_from([1.0, math.inf]), st.integers(0, 2),
)  # fmt: skip
def test_rows_equal_their_twins(seed, n_rows, K, law, missing, offset, sharpness, n_passes):
    part = Part(seed, n_rows, K, law, missing, offset)
    for name in ("joint_rows", "independent_rows"):
        mine = part.run(getattr(kernel, name), sharpness, n_passes)
        np.testing.assert_allclose(mine, part.run(getattr(twin, name), sharpness, n_passes), 1e-6, 1e-8)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("own_forms(forms.reshape(-1), flat_dims, cells,", "own_forms(forms.reshape(-1), flat_dims, cells[:0],"),
        ("total - forms[k, K] if", "total if"),
        ("total -= forms", "total += forms"),
    ],
)
def test_a_mistake_in_the_forms_of_a_row_is_seen(old, new):
    wrong = vars(kernel) | {"begin_row": mutant(kernel.begin_row, old, new)}
    function = plain(kernel.joint_rows)
    patched = type(function)(function.__code__, wrong, function.__name__)
    part = Part(0, 6, 3, "normal", 0.4, 1)
    right = part.run(twin.joint_rows)
    np.testing.assert_allclose(part.run(function), right, 1e-6, 1e-8)
    assert not np.allclose(part.run(patched), right, 1e-6, 1e-8)


def lowest_step(row, kind, sharpness, joint_pass=None):
    """The least that the bound of a row rises in a pass."""
    values = []
    K = len(row.z)

    class Module:
        joint_moments, independent_moments = kernel.joint_moments, kernel.independent_moments
        independent_pass = kernel.independent_pass

    Module.joint_pass = kernel.joint_pass if joint_pass is None else joint_pass
    for n_passes in range(1, 8):
        if kind == "joint":
            out = row.joint(Module, sharpness, n_passes)
            z, v, square = out[:K], out[4 * K : 5 * K], out[5 * K : 6 * K]
        else:
            out = row.independent(Module, sharpness, n_passes)
            z, v, square = out[:K], out[3 * K : 4 * K], out[4 * K : 5 * K]
            square = z * (out[K : 2 * K] ** 2 + (2 * out[2 * K : 3 * K] ** 2 if row.law[0] > 0 else out[2 * K : 3 * K]))
        values.append(row.bound(out[-1], z, v, square))
    return np.diff(values).min()


@pytest.mark.parametrize("kind", ["joint", "independent"])
@pytest.mark.parametrize("sharpness", [1.0, math.inf])
@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_the_bound_of_a_row_never_falls(kind, sharpness, law):
    for seed in range(20):
        assert lowest_step(Row(seed, 4, law), kind, sharpness) >= -1e-10


@pytest.mark.parametrize("law", LAWS)
def test_joint_bounds_are_higher(law):
    better = 0
    for seed in range(20):
        row = Row(seed, 1, law)  # one feature: one optimum
        joint, independent = row.joint(kernel, n_passes=50), row.independent(kernel, n_passes=50)
        m, s = independent[1:3]
        square = independent[0] * factors.square_of(m, s, row.law[0])
        low = row.bound(independent[-1], independent[:1], independent[3:4], np.array([square]))
        high = row.bound(joint[-1], joint[:1], joint[4:5], joint[5:6])
        assert high >= low - 1e-9
        better += high > low + 1e-3
    assert better > 10


# ---- mistakes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("g[k] + c * v[k]", "g[k]"),
        ("g[j] -= step * forms[k, j]", "g[j] += step * forms[k, j]"),
        ("square[k] = p * first, p * second", "square[k] = p * first, p * first**2"),
        ("log_odds[k] + log_integral", "log_odds[k] + log_integral + log_norm"),
        ("- p * (b * first", "- (b * first"),
        ("max(forms[k, k], 0.0)", "forms[k, 0]"),
    ],
)
def test_a_mistake_in_the_joint_pass_is_seen(old, new):
    wrong = mutant(kernel.joint_pass, old, new)
    rows = [Row(seed, 4, law) for seed in range(4) for law in LAWS]

    class Wrong:
        joint_moments, joint_pass = kernel.joint_moments, wrong

    assert not all(np.allclose(row.joint(Wrong), row.joint(twin), 1e-6, 1e-8) for row in rows)
