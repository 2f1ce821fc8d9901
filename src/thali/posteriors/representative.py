"""What the draws agree on: the features that persist, and one draw that shows them.

An infinite prior lets features that nothing speaks for come and go: up to about `mass` of them, each of one row, at any
time. A feature counts when at least half of the draws of its chain have it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from thali.core.protocols.engines.predictions import Predictions
from thali.numerics.blas import one_blas_thread
from thali.posteriors.matching import match

Array = np.ndarray

PERSISTENT = 0.5  # share of a chain's draws
_DRAWS = 200  # of a chain, evenly spaced, are looked at
_STARTS, _JUDGES = 12, 40  # draws among which the search for a representative begins, and by which


class Consensus(NamedTuple):
    """The persistent features, as one draw has them; `columns` of that draw, most frequent first."""

    chain: int
    draw: int
    columns: Array
    persistence: Array  # (K,) share of the draws of that chain that have the feature
    stability: Array  # (K,) the same over all chains
    presence: Array  # (n_owners, K) share of the draws with the feature in which the row, or dim, has it
    codes: Array  # (n_rows, K) mean code over the draws with the feature; `presence` itself where codes are bits
    feature_sd: Array  # (K, n_dims) posterior sd of the features, within and between draws
    chain_features: Array  # (n_chains,) number of persistent features of each chain, each judged by itself


class Medoid(NamedTuple):
    """A draw that stands for its chain, and what the chain's other draws say to its features."""

    draw: int
    persistence: Array  # share of the draws in which each feature has a partner
    similar: Array  # (draws, persistent features) similarity to the partner, 0 where there is none

    def score(self) -> tuple[int, float]:
        return self.similar.shape[1], float(self.similar.sum())


def evenly(n: int, limit: int) -> Array:
    """At most `limit` evenly spaced numbers of 0 ... n - 1."""
    return np.unique(np.linspace(0, n - 1, min(n, limit)).round().astype(int))


@one_blas_thread()
def find_consensus(posterior: Any) -> Consensus:
    """The chain with the highest mean free energy speaks: that scores a mode, as the log joint scores a point."""
    draws = [int(i) for i in evenly(posterior.n_draws, _DRAWS)]
    medoids = [find_medoid(partial(posterior.marks, c), draws, posterior.similarity) for c in range(posterior.n_chains)]
    chain = int(np.argmax(posterior.draws["free_energy"].mean(axis=1)))
    draw, persistence, _ = medoids[chain]
    bits, marks = posterior.bits(chain, draw), posterior.marks(chain, draw)
    columns = np.flatnonzero(persistence >= PERSISTENT)
    first_row, counts = bits[:, columns].argmax(axis=0), bits[:, columns].sum(axis=0, dtype=np.int64)
    columns = columns[np.lexsort((first_row, -counts))]

    centre = posterior.codebook(chain, draw).features[columns]
    found = np.zeros(len(columns), dtype=np.int64)
    presence = np.zeros((len(bits), len(columns)))
    mean_codes = presence if posterior.codes_are_bits else np.zeros((posterior.n_rows, len(columns)))
    total, square = np.zeros_like(centre), np.zeros_like(centre)
    for c in range(posterior.n_chains):
        for i in draws:
            similar = posterior.similarity(marks, posterior.marks(c, i))
            partner = match(np.abs(similar))[columns]
            has = np.flatnonzero(partner >= 0)
            codebook, engine = posterior.codebook(c, i), posterior.concrete(c, i).observation.engine(Predictions)
            sign = np.sign(similar[columns[has], partner[has]])
            values = sign[:, None] * codebook.features[partner[has]] - centre[has]
            found[has] += 1
            presence[:, has] += posterior.bits(c, i)[:, partner[has]]
            if not posterior.codes_are_bits:
                mean_codes[:, has] += sign * posterior.codes(c, i)[:, partner[has]]
            total[has] += values
            square[has] += values**2 + engine.features_var(codebook)[partner[has]]
    n = found[:, None]
    presence /= found
    if not posterior.codes_are_bits:
        mean_codes /= found
    return Consensus(
        chain,
        draw,
        columns,
        persistence[columns],
        found / (posterior.n_chains * len(draws)),
        presence,
        mean_codes,
        np.sqrt(np.maximum(square / n - (total / n) ** 2, 0.0)),
        np.array([medoid.similar.shape[1] for medoid in medoids]),
    )


def find_medoid(
    codes: Callable[[int], Array], draws: Sequence[int], similarity: Callable[[Array, Array], Array]
) -> Medoid:
    """Begin with the best of a few draws; go to one that has more of what persists, as long as there is one.

    Better is: more persistent features, then more similar ones, then fewer others.
    """
    few = [draws[i] for i in evenly(len(draws), _JUDGES)]
    starts = [draws[i] for i in evenly(len(draws), _STARTS)]
    best = max((_judge(codes, start, few, similarity) for start in starts), key=Medoid.score)
    best = _judge(codes, best.draw, draws, similarity)
    sizes = np.array([codes(i).shape[1] for i in draws])
    while True:
        n_found = np.sum(best.similar > 0.0, axis=1)
        there = int(np.lexsort((n_found - sizes, best.similar.sum(axis=1), n_found))[-1])
        found = _judge(codes, draws[there], draws, similarity)
        if found.score() <= best.score():
            return best
        best = found


def _judge(
    codes: Callable[[int], Array], draw: int, others: Sequence[int], similarity: Callable[[Array, Array], Array]
) -> Medoid:
    reference = codes(draw)
    similar = np.zeros((len(others), reference.shape[1]))
    for i, other in enumerate(others):
        table = np.abs(similarity(reference, codes(other)))
        partner = match(table)
        has = np.flatnonzero(partner >= 0)
        similar[i, has] = table[has, partner[has]]
    persistence = np.mean(similar > 0.0, axis=0)
    return Medoid(draw, persistence, similar[:, persistence >= PERSISTENT])
