"""The contract of priors: what is drawn, its probability, and the tables that sweeps ask for say the same."""

import math
from typing import Any

import numpy as np
from scipy.special import pdtr

from thali.core.binary import history_counts, n_non_empty
from thali.core.protocols.prior import Predictive, Prior
from thali.testing.enumerate import all_classes, all_matrices
from thali.testing.zscores import FALSE_ALARM, z_limit

Array = np.ndarray


def check_prior(prior: Any, rng: np.random.Generator, *, n_rows: int = 3, n_draws: int = 20_000) -> None:
    """A concrete prior: simulate agrees with log_prob, and so does each capability; learned values are refused."""
    assert isinstance(prior, Prior), f"{type(prior).__name__} lacks methods of thali.core.protocols.prior"
    assert not prior.learned, "check_prior needs numbers for all hyperparameters"
    n_features = prior.n_features
    listed = list(all_classes(n_rows, 6) if n_features is None else all_matrices(n_rows, n_features))
    probability = np.exp([prior.log_prob(Z) for Z in listed])
    draws = [prior.simulate(rng, n_rows) for _ in range(n_draws)]
    assert all(Z.dtype == np.uint8 and Z.shape[0] == n_rows for Z in draws), "simulate must give uint8 (n_rows, K)"
    _check_total(probability, draws, n_features)
    _check_frequencies(listed, probability, draws, labelled=n_features is not None)
    if isinstance(prior, Predictive):
        _check_predictive(prior, n_rows)


def _check_total(probability: Array, draws: list[Array], n_features: int | None) -> None:
    total = float(probability.sum())
    if n_features is not None:
        assert abs(total - 1.0) < 1e-9, f"log_prob sums to {total} over all matrices"
        return
    beyond = sum(int(n_non_empty(Z) > 6) for Z in draws)
    expected = max(1.0 - total, 0.0) * len(draws)
    chance = min(float(pdtr(beyond, expected)), 1.0 - float(pdtr(beyond - 1, expected)) if beyond else 1.0)
    assert chance > FALSE_ALARM / 2, (
        f"log_prob sums to {total}, so {expected:.1f} of {len(draws)} draws should have more columns; {beyond} do"
    )


def _check_frequencies(listed: list[Array], probability: Array, draws: list[Array], *, labelled: bool) -> None:
    keys = {_key(Z, labelled): i for i, Z in enumerate(listed)}
    hits = np.zeros(len(listed))
    for Z in draws:
        index = keys.get(_key(Z, labelled))
        if index is not None:
            hits[index] += 1
    expected = probability * len(draws)
    common = expected >= 20
    z = (hits - expected)[common] / np.sqrt(expected * (1 - probability))[common]
    worst = int(np.argmax(np.abs(z)))
    message = f"simulate and log_prob disagree: z = {z[worst]:.1f} for\n{listed[int(np.flatnonzero(common)[worst])]}"
    assert np.abs(z).max() <= z_limit(len(z)), message


def _key(Z: Array, labelled: bool) -> Any:
    if labelled:
        return Z.tobytes()
    return tuple(sorted(tuple(column) for column in Z.T if column.any()))


def _check_predictive(prior: Any, n_rows: int) -> None:
    """The tables are ratios of log_prob, for every count m and for every number of new columns."""
    table = prior.log_odds(n_rows)
    assert table.shape == (n_rows,), f"log_odds must have n_rows = {n_rows} entries, got {table.shape}"
    infinite = table[0] == -math.inf
    n_features = 2 if infinite else prior.n_features
    for m in range(1 if infinite else 0, n_rows):
        Z = np.zeros((n_rows, n_features), dtype=np.uint8)
        Z[0, 1:] = 1  # the other columns are there all the time
        Z[1 : m + 1, 0] = 1
        off = _labelled(prior, Z, infinite)
        Z[0, 0] = 1
        got, wanted = table[m], _labelled(prior, Z, infinite) - off
        assert abs(got - wanted) < 1e-9 * (1 + abs(wanted)), f"log_odds[{m}] = {got}, log_prob says {wanted}"
    rate = prior.new_rate(n_rows)
    if not infinite:
        assert rate == 0.0, "a finite prior must have new_rate 0"
        return
    shared = np.ones((n_rows, 1), dtype=np.uint8)
    own = np.zeros((n_rows, 1), dtype=np.uint8)
    own[0] = 1
    for j in range(1, 4):
        ratio = prior.log_prob(np.hstack([shared, *[own] * j])) - prior.log_prob(shared)
        wanted = j * math.log(rate) - math.lgamma(j + 1)
        assert abs(ratio - wanted) < 1e-9 * (1 + abs(wanted)), (
            f"{j} new columns: log ratio {ratio}, Poisson says {wanted}"
        )


def _labelled(prior: Any, Z: Array, infinite: bool) -> float:
    """Log probability of the matrix with its columns told apart, up to a function of their number."""
    return prior.log_prob(Z) + (sum(math.lgamma(k + 1) for k in history_counts(Z)) if infinite else 0.0)
