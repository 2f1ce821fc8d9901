"""Documents as word counts: partitions, the split of a document's tokens, perplexity, and ordinary factorisations.

The protocol of Paisley et al. (2011, Section 5.1): half of the tokens of a test document say what it is about, the
other half is predicted, word by word, by the rates that a method expects, divided by their sum.
"""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

COUNTS, VOCABULARY = "nyt_world2009_counts.npz", "nyt_world2009_vocab.txt"
_LEAST = 1e-12  # of what a multiplicative update may divide by
Array = np.ndarray


class Corpus(NamedTuple):
    counts: sparse.csr_array  # (n_documents, n_words)
    words: list[str]


class Partition(NamedTuple):
    """Whole documents to learn from, and two halves of each test document."""

    train: sparse.csr_array
    given: sparse.csr_array
    asked: sparse.csr_array


def load(folder: Path) -> Corpus:
    counts = sparse.csr_array(sparse.load_npz(folder / COUNTS).astype(np.int64))
    return Corpus(counts, (folder / VOCABULARY).read_text(encoding="utf-8").split())


def split_tokens(rng: np.random.Generator, counts: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Each document's tokens in two halves at random; the odd one falls to the second."""
    given, asked = counts.copy(), counts.copy()
    for row in range(counts.shape[0]):
        at = slice(counts.indptr[row], counts.indptr[row + 1])
        n = counts.data[at]
        given.data[at] = rng.multivariate_hypergeometric(n, n.sum() // 2, method="marginals")
    asked.data -= given.data
    for half in (given, asked):
        half.eliminate_zeros()
    return given, asked


def partition(corpus: Corpus, number: int, share: float = 5 / 8) -> Partition:
    """The documents at random, that share of them for training (5000 of 8000 in the paper)."""
    rng = np.random.default_rng([number, 2011])
    order = rng.permutation(corpus.counts.shape[0])
    n_train = round(share * len(order))
    return Partition(corpus.counts[order[:n_train]], *split_tokens(rng, corpus.counts[order[n_train:]]))


def perplexity(rates: Array, asked: sparse.csr_array) -> float:
    """exp of minus the mean log probability of a token; rates (n_documents, n_words) need not be normalised."""
    cells = asked.tocoo()
    log_p = np.log(rates[cells.row, cells.col]) - np.log(rates.sum(axis=1))[cells.row]
    return math.exp(-float(cells.data @ log_p) / float(cells.data.sum()))


def smoothed(rates: Array, share: float = 0.01) -> Array:
    """Word probabilities with a share for all words alike: maximum likelihood gives unseen words nothing."""
    return (1 - share) * rates / np.maximum(rates.sum(axis=1, keepdims=True), _LEAST) + share / rates.shape[1]


# --- ordinary models -------------------------------------------------------------------------------


def unigram(part: Partition) -> Array:
    """The same probabilities for every document."""
    return np.tile(part.train.sum(axis=0), (part.asked.shape[0], 1)).astype(float)


def kl_loss(counts: sparse.csr_array, W: Array, H: Array) -> float:
    """Generalised Kullback-Leibler divergence of the counts from W H."""
    cells = counts.tocoo()
    rates = _rates(cells, W, H)
    return float(cells.data @ np.log(cells.data / rates) - cells.data.sum() + W.sum(axis=0) @ H.sum(axis=1))


def _rates(cells: sparse.coo_array, W: Array, H: Array) -> Array:
    """W H where there are counts."""
    return np.einsum("ik,ik->i", W[cells.row], H.T[cells.col])


def update_left(counts: sparse.csr_array, W: Array, H: Array) -> Array:
    """One multiplicative update of W (Lee & Seung 2001), which never raises the divergence."""
    cells = counts.tocoo()
    ratio = sparse.csr_array(
        (cells.data / np.maximum(_rates(cells, W, H), _LEAST), (cells.row, cells.col)), counts.shape
    )
    return np.maximum(W * (ratio @ H.T) / np.maximum(H.sum(axis=1), _LEAST), _LEAST)


def update_right(counts: sparse.csr_array, W: Array, H: Array) -> Array:
    """The same for H."""
    return np.ascontiguousarray(update_left(counts.T.tocsr(), np.ascontiguousarray(H.T), W.T).T)


def kl_nmf(rng: np.random.Generator, counts: sparse.csr_array, rank: int, n_iter: int = 100) -> tuple[Array, Array]:
    """(documents' weights, topics): both from a random start."""
    W = rng.uniform(0.5, 1.5, (counts.shape[0], rank))
    H = rng.uniform(0.5, 1.5, (rank, counts.shape[1])) * counts.mean() / rank
    for _ in range(n_iter):
        H = update_right(counts, W, H)
        W = update_left(counts, W, H)
    return W, H


def kl_nmf_rates(counts: sparse.csr_array, topics: Array, n_iter: int = 50) -> Array:
    """Rates of new documents given topics: their weights alone are fitted."""
    W = np.ones((counts.shape[0], len(topics)))
    for _ in range(n_iter):
        W = update_left(counts, W, topics)
    return W @ topics
