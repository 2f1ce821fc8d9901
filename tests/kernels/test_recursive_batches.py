"""Rows that share the posterior of the features: the kernel against its twin, the bound of a batch and its gradient."""

import numpy as np
import pytest
from problems import mutant, plain
from reference.bits import recursive_batches as twin
from test_recursive_rows import CASES, LAW, PLAN, rows, slots, totals

from thali.kernels.bits import recursive_batches as kernel
from thali.kernels.bits import recursive_rows


def stream(filter_batch, X, size=7, law=LAW, plan=PLAN, width=1):
    """Everything after batches of so many rows, and what was told."""
    room = plan.most + 4
    s, t, K, told = slots(room, X.shape[1], width), totals(), 0, []
    for at in range(0, len(X), size):
        notes = np.zeros((1000, 4))
        K, n = filter_batch(X[at : at + size], K, s, t, law, plan, notes)
        told += notes[:n].tolist()
    return [part[:K, :K] if part is s.together else part[:K] for part in s] + list(t) + [np.array(told)]


SHARED = {name: case for name, case in CASES.items() if name != "paper"}


@pytest.mark.parametrize("case", SHARED)
def test_kernel_equals_its_twin(case):
    settings = dict(SHARED[case])
    X = rows(3, 40, missing=settings.pop("missing", 0.0))
    mine, its = stream(kernel.filter_batch, X, **settings), stream(twin.filter_batch, X, **settings)
    assert len(mine[2]) >= 1
    for a, b in zip(mine, its, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)


MUTANTS = [
    ("scan_features", "p = share[i] * b", "p = b", "forgetting"),
    ("scan_features", "weight[k, d] * old[k, d]", "weight[k, d] * mean[k, d]", "comonotone"),
    ("scan_rows", "R[i, d] = r[n_seen]", "R[i, d] = R[i, d]", "missing"),
    ("batch_bound", "step * step / noise", "step * step", "comonotone"),
    ("columns_of", "free += 1\n            log_odds", "log_odds", "comonotone"),
    ("filter_batch", "count *= plan.keep", "count *= 1.0", "forgetting"),
    ("filter_batch", "keep * together_before[j, origin[c]]", "together_before[j, c]", "forgetting"),
]


@pytest.mark.parametrize(("name", "old", "new", "case"), MUTANTS, ids=[f"{m[0]}-{i}" for i, m in enumerate(MUTANTS)])
def test_a_wrong_kernel_differs_from_the_twin(name, old, new, case, monkeypatch):
    settings = dict(SHARED[case])
    X = rows(3, 24, missing=settings.pop("missing", 0.0))
    monkeypatch.setattr(kernel, "filter_recorded", plain(recursive_rows.filter_recorded))
    monkeypatch.setattr(kernel, name, mutant(getattr(kernel, name), old, new))
    wrong, right = stream(plain(kernel.filter_batch), X, **settings), stream(twin.filter_batch, X, **settings)
    same = all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-7, atol=1e-8) for a, b in zip(wrong, right, strict=True)
    )
    assert not same


# ---- the bound of a batch


def batch_of(seed, K=3, n=6, D=4, missing=0.0):
    rng = np.random.default_rng(seed)
    X, mean = rng.standard_normal((n, D)), rng.standard_normal((K, D))
    X[rng.random(X.shape) < missing] = np.nan
    bits, seen = rng.random((n, K)), ~np.isnan(X)
    weight = 0.3 + 5 * rng.random((K, D))
    return X, {
        "mean": mean.copy(), "old": mean.copy(), "weight": weight, "seen": seen, "share": np.ones(n),
        "R": np.where(seen, X - bits @ mean, 0.0), "bits": bits, "log_odds": rng.standard_normal((n, K)),
        "variance": 1 / weight,
    }  # fmt: skip


def swept(parts, b, n, noise=0.4):
    """Passes over a batch by these functions, and its bound after each."""
    b = {name: value.copy() for name, value in b.items()}
    K = len(b["mean"])
    square, spread, bounds = (b["mean"] ** 2).sum(axis=1), b["variance"].sum(axis=1), []
    for s in range(n):
        back = s % 2 == 1
        parts.scan_rows(
            back, K, b["mean"], b["seen"], b["seen"].all(axis=1), b["R"], b["bits"], b["log_odds"], square, spread,
            b["variance"], noise,
        )  # fmt: skip
        parts.scan_features(
            back, K, b["mean"], b["old"], b["weight"], b["seen"], b["share"], b["R"], b["bits"], square, spread,
            b["variance"],
        )  # fmt: skip
        bounds.append(
            parts.batch_bound(
                K, b["mean"], b["old"], b["weight"], b["seen"], b["share"], b["R"], b["bits"], b["log_odds"],
                b["variance"], noise,
            )[0]
        )  # fmt: skip
    return b, np.array(bounds)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_passes_over_a_batch_equal_their_twins_and_never_lower_its_bound(missing):
    _, batch = batch_of(0, missing=missing)
    mine, bounds = swept(kernel, batch, 40)
    its, same = swept(twin, batch, 40)
    for name in mine:
        np.testing.assert_allclose(mine[name], its[name], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(bounds, same, rtol=1e-10)
    assert (np.diff(bounds) >= -1e-11).all()


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_gradient_of_the_bound_of_a_batch_vanishes_at_the_fixed_point(missing):
    X, batch = batch_of(1, missing=missing)
    end, _ = swept(kernel, batch, 1000, noise=2.0)
    K, D = end["mean"].shape
    n = len(X)
    Sigma0 = [2.0 * np.diag(1 / w) for w in end["weight"]]

    def bound(theta):
        b, mu = theta[: n * K].reshape(n, K), theta[n * K : n * K + K * D].reshape(K, D)
        Sigma = [np.diag(np.exp(v)) for v in theta[n * K + K * D :].reshape(K, D)]
        return twin.batch_elbo(X, b, end["log_odds"], mu, Sigma, end["old"], Sigma0, 2.0)

    theta = np.concatenate([end["bits"].ravel(), end["mean"].ravel(), np.log(2.0 * end["variance"]).ravel()])
    steps = 1e-5 * np.eye(len(theta))

    def gradient(at):
        return np.array([(bound(at + e) - bound(at - e)) / 2e-5 for e in steps])

    assert np.abs(gradient(theta)).max() < 1e-6
    assert np.abs(gradient(0.99 * theta)).max() > 1e-3


def test_means_of_a_batch_are_those_of_one_linear_system():
    X, batch = batch_of(2)
    end, _ = swept(kernel, batch, 1000)
    b, (K, D) = end["bits"], end["mean"].shape
    gram = b.T @ b
    np.fill_diagonal(gram, b.sum(axis=0))
    for d in range(D):
        w = end["weight"][:, d]
        mu = np.linalg.solve(np.diag(w) + gram, w * end["old"][:, d] + b.T @ X[:, d])
        np.testing.assert_allclose(end["mean"][:, d], mu, atol=1e-9)
    assert K == 3
