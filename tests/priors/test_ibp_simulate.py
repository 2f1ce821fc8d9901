"""Draws of the IBP: whole columns at a time have the law of the restaurant, and a million rows are quick."""

import numpy as np
import pytest

from thali import IBP
from thali.testing import z_limit
from thali.testing.zscores import z_scores

PRIORS = [IBP(mass=2.0), IBP(mass=1.5, concentration=3.0), IBP(mass=1.0, concentration=0.6, discount=0.5)]


def restaurant(prior: IBP, rng: np.random.Generator, n_rows: int) -> np.ndarray:
    """Row by row, as the process is told."""
    columns: list[list[int]] = []
    for n in range(n_rows):
        for column in columns:
            column.append(int(rng.random() * (n + prior.concentration) < sum(column) - prior.discount))
        columns += [[0] * n + [1] for _ in range(rng.poisson(prior.new_rate(n + 1)))]
    return np.array(columns, dtype=np.uint8).reshape(-1, n_rows).T


def summary(Z: np.ndarray) -> np.ndarray:
    """Statistics that see each row's births, how often columns are taken again, and how that depends on the past."""
    counts = Z.sum(axis=0, dtype=int)
    born = np.bincount(Z.argmax(axis=0), minlength=len(Z)) if Z.size else np.zeros(len(Z))
    common = np.bincount(counts, minlength=len(Z) + 1)[1:]
    return np.concatenate([born, common, Z.sum(axis=1), [Z.shape[1] ** 2, (counts**2).sum(), (Z[0] * Z[-1]).sum()]])


def gaps(prior: IBP, draw, rng: np.random.Generator, n_draws: int) -> np.ndarray:
    """z of the difference from the restaurant, for each statistic."""
    ours = np.array([summary(draw(prior, rng)) for _ in range(n_draws)], dtype=float)
    theirs = np.array([summary(restaurant(prior, rng, 6)) for _ in range(n_draws)], dtype=float)
    return z_scores(ours - theirs, np.zeros(ours.shape[1]))


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_columns_have_the_law_of_the_restaurant(prior, rng):
    z = gaps(prior, lambda p, rng: p.simulate(rng, 6), rng, 4000)
    assert len(z) >= 20
    assert np.abs(z).max() <= z_limit(len(z)), z


class Skewed:
    """A generator whose beta draws have a wrong parameter."""

    def __init__(self, rng, da, db):
        self.rng, self.da, self.db = rng, da, db

    def __getattr__(self, name):
        return getattr(self.rng, name)

    def beta(self, a, b):
        return self.rng.beta(a + self.da, b + self.db)


@pytest.mark.parametrize(("da", "db"), [(0.0, 1.0), (0.5, 0.0)], ids=["row not counted", "discount forgotten"])
def test_wrong_urns_are_seen(da, db, rng):
    z = gaps(PRIORS[2], lambda p, rng: p.simulate(Skewed(rng, da, db), 6), rng, 4000)
    assert np.abs(z).max() > z_limit(len(z))


def test_blocks_do_not_show(rng, monkeypatch):
    """The same seed gives the same matrix, however many rows are drawn at a time."""
    seed = int(rng.integers(2**31))
    whole = IBP(mass=3.0).simulate(np.random.default_rng(seed), 50)
    monkeypatch.setattr("thali.priors.ibp._BLOCK", 64)
    assert np.array_equal(IBP(mass=3.0).simulate(np.random.default_rng(seed), 50), whole)
    assert whole.dtype == np.uint8
    assert whole.flags.c_contiguous
    assert (np.diff(whole.argmax(axis=0)) >= 0).all()  # in order of first appearance


def test_no_rows_and_no_features(rng):
    assert IBP(mass=3.0).simulate(rng, 0).shape == (0, 0)
    assert IBP(mass=1e-9).simulate(rng, 5).shape == (5, 0)


def test_a_million_rows(rng):
    Z = IBP(mass=5.0).simulate(rng, 10**6)
    assert abs(Z.sum() / len(Z) - 5.0) < 5 * np.sqrt(5.0 / 2)  # the sum of all weights has variance mass / 2
