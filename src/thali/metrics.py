"""Scores of predictions of counts, how sparse a factorisation is, and how many features rows share."""

import math
from typing import Any

import numpy as np
from scipy import sparse

from thali.data.plain_numbers import plain_numbers
from thali.data.sparse_input import checked_csr
from thali.errors import InvalidDataError, InvalidParameterError
from thali.rng import Seed, make_generator

__all__ = ["compression", "density", "perplexity", "relevance", "shared_features", "split_tokens"]

Array = np.ndarray

_PAIRS = 4_000_000  # of rows that are compared at a time


def split_tokens(X: Any, share: float = 0.5, *, random_state: Seed = 0) -> tuple[Any, Any]:
    """(given, asked): the tokens of each row of counts X at random in two, `share` of them in the first.

    A token is one of a count; which ones of a row are given is a draw without replacement. Sparse X gives sparse parts.
    """
    if not (isinstance(share, float | int) and 0 < share < 1):
        raise InvalidParameterError(f"share must lie between 0 and 1. Got {share!r}.")
    is_sparse = sparse.issparse(X)
    counts = checked_csr(X) if is_sparse else sparse.csr_array(np.asarray(plain_numbers(X), dtype=float))
    values = counts.data
    if not np.isfinite(values).all() or (values < 0).any() or (values != np.floor(values)).any():
        raise InvalidDataError("X must hold counts: whole numbers, zero or more, none missing.")
    rng = make_generator(random_state)
    given = counts.copy()
    for n in range(counts.shape[0]):
        some = slice(counts.indptr[n], counts.indptr[n + 1])
        row = values[some].astype(np.int64)
        n_given = int(share * row.sum() + rng.random())  # so many on average, also of an odd number
        given.data[some] = rng.multivariate_hypergeometric(row, n_given, method="marginals")
    asked = counts - given
    return (given, asked) if is_sparse else (given.toarray(), asked.toarray())


def perplexity(rates: Any, X: Any) -> float:
    """exp of minus the mean log probability of a token of the counts X, whose row n has probabilities in proportion to
    rates[n] (n_dims,). A token that has none makes it infinite."""
    rates = np.asarray(rates, dtype=float)
    counts = sparse.coo_array(checked_csr(X) if sparse.issparse(X) else np.asarray(plain_numbers(X), dtype=float))
    if rates.shape != counts.shape:
        raise InvalidDataError(f"rates must have the shape {counts.shape} of X. Got {rates.shape}.")
    n_tokens = float(counts.data.sum())
    if n_tokens == 0 or (rates < 0).any():
        raise InvalidDataError("perplexity needs rates that are not negative, and at least one token.")
    with np.errstate(divide="ignore"):
        # eq: PCB11.perplexity
        log_p = np.log(rates[counts.row, counts.col]) - np.log(rates.sum(axis=1))[counts.row]
    return math.exp(min(-float(counts.data @ log_p) / n_tokens, 700.0)) if np.isfinite(log_p).all() else math.inf


# ---- of loadings (n_owners, n_features) and factors (n_features, n_values) that multiply to the data


def compression(loadings: Any, n_values: int, *, sparse_loadings: bool = False) -> float:
    """How many numbers loadings and factors have for each one of the data, K (1 / n_values + 1 / n_owners); with
    `sparse_loadings` only those loadings count that are not zero."""
    G = _matrix(loadings)
    if type(n_values) is not int or n_values < 1:
        raise InvalidParameterError(f"n_values must be a positive integer. Got {n_values!r}.")
    n_kept = np.count_nonzero(G) if sparse_loadings else G.size
    # eq: NSFA.compression
    return float((n_kept + G.shape[1] * n_values) / (len(G) * n_values))


def relevance(loadings: Any, factors: Any = None) -> Array:
    """The sum of the sizes of each feature's loadings; with factors |g_k| |f_k|, whatever scale either of them has."""
    G = _matrix(loadings)
    if factors is None:
        return np.asarray(np.abs(G).sum(axis=0))  # eq: NSFA.relevance
    F = _matrix(factors)
    if len(F) != G.shape[1]:
        raise InvalidDataError(f"factors must have a row for each of {G.shape[1]} features. Got {len(F)} rows.")
    return np.asarray(np.linalg.norm(G, axis=0) * np.linalg.norm(F, axis=1))


def density(loadings: Any) -> Array:
    """The share of the features that each owner has: its loadings that are not zero over their number."""
    G = _matrix(loadings)
    return np.count_nonzero(G, axis=1) / max(G.shape[1], 1)  # eq: NSFA.density


# ---- of who has which feature


def shared_features(Z: Any, groups: Any = None, *, relative: bool = False) -> Array:
    """How many features each pair of rows shares: the matrix (n_rows, n_rows) of Z Z'.

    Z are bits, or probabilities (`presence`), (n_rows, n_features): then it is the expected number, with bits that are
    independent of each other; a row shares with itself what it has. With `relative` it is the share of the features
    that either row has (of expected numbers their ratio), and 0 where neither has any. With `groups`, a label for each
    row, it is the mean over pairs of different rows, (n_groups, n_groups) in the order of the sorted labels
    (Figure 7 of Schaeffer et al. 2022); NaN where a group has no two rows.
    """
    presence = _matrix(Z, "Z must be a matrix")
    if (presence < 0).any() or (presence > 1).any():
        raise InvalidDataError("Z must hold bits, or probabilities between 0 and 1. Got numbers beyond.")
    n_rows, sizes = len(presence), presence.sum(axis=1)
    if groups is None:
        return _shared(presence, sizes, np.arange(n_rows), relative)
    labels = np.asarray(groups)
    if labels.shape != (n_rows,):
        raise InvalidDataError(f"groups must have a label for each of {n_rows} rows. Got shape {labels.shape}.")
    names, group = np.unique(labels, return_inverse=True)
    members = (group[:, None] == np.arange(len(names))).astype(float)
    total = np.zeros((len(names), len(names)))
    for rows in np.array_split(np.arange(n_rows), max(n_rows * n_rows // _PAIRS, 1)):
        shared = _shared(presence, sizes, rows, relative)
        shared[np.arange(len(rows)), rows] = 0.0
        total += members[rows].T @ (shared @ members)
    n_members = members.sum(axis=0)
    n_pairs = np.outer(n_members, n_members) - np.diag(n_members)
    return np.divide(total, n_pairs, out=np.full(total.shape, np.nan), where=n_pairs > 0)


def _shared(presence: Array, sizes: Array, rows: Array, relative: bool) -> Array:
    """Of these rows with all."""
    # eq: S22.shared-features
    shared = presence[rows] @ presence.T
    shared[np.arange(len(rows)), rows] = sizes[rows]
    if not relative:
        return shared
    either = sizes[rows][:, None] + sizes - shared
    return np.divide(shared, either, out=np.zeros_like(shared), where=either > 0)


def _matrix(values: Any, what: str = "Loadings and factors must be matrices") -> Array:
    matrix = np.asarray(plain_numbers(values), dtype=float)
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise InvalidDataError(f"{what} of finite numbers. Got shape {matrix.shape}.")
    return matrix
