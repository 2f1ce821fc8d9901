"""loading_classes: groups of dims (or rows) that use the factors of a sparse factor analysis alike.

The file does not have the function's name: imported as a module, it would hide `thali.loading_classes`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from thali.core.protocols.engines.chains import ChainRows
from thali.core.spec import between, positive
from thali.data.fingerprint import fingerprint
from thali.errors import InvalidDataError, InvalidParameterError
from thali.estimator import LatentFeatures
from thali.numerics.blas import one_blas_thread
from thali.observations.sparse.class_chain import ClassState, begin, log_cells, log_fit, step
from thali.observations.sparse.data import LoadingData
from thali.observations.sparse_factors import SparseFactorAnalysis
from thali.posteriors.co_clustering import co_clustering
from thali.posteriors.draws import Draws
from thali.rng import Seed, make_generator, spawn

Array = np.ndarray
Generator = np.random.Generator

_CHAINS = 4  # that are warmed up


class Score(NamedTuple):
    """How well hidden cells are predicted with some number of classes: mean log density per cell, in nats."""

    mean: float
    error: float  # standard error, as far as it comes from the choice of cells
    behind: float  # how much less than the best number of classes it is
    behind_error: float  # standard error of that, cell by cell


class LoadingClasses(NamedTuple):
    """Classes of the owners of loadings: the dims, or the rows where these own them."""

    n_classes: int  # with the best score; some of them may have no owner
    scores: dict[int, Score]  # by number of classes
    co_clustering: Array  # (n_owners, n_owners) probability that two owners are in the same class
    classes: Array  # (n_owners,) of the draw that is nearest to these probabilities; class 0 is the largest
    preferences: (
        Array  # (n_classes, n_components_) of that draw, each component turned so that its loadings are positive
    )


class _Start(NamedTuple):
    """Where chains begin: a draw of the fit, with the factors that persist."""

    spec: SparseFactorAnalysis  # adapted to the data
    concrete: SparseFactorAnalysis  # with the offset of the draw
    loadings: Array  # (n_owners, n_components_)


@one_blas_thread()
def loading_classes(
    model: LatentFeatures,
    X: Any,
    n_classes: int | Iterable[int] = (1, 2, 3, 4, 6),
    *,
    n_warmup: int = 200,
    n_draws: int = 200,
    random_state: Seed = 0,
    share: float = 0.1,
) -> LoadingClasses:
    """Which owners of loadings use the same factors alike, and in how many classes they fall.

    Owners of a class share their preferences: how often they have each factor, and how large their loadings are (both
    are one number, so that a factor which a class rarely has has small or negative loadings there). The model is
    sampled with as many factors as persist in the fit, from its representative draw on. Classes have no order, so only
    what does not depend on it is averaged.

    Parameters
    ----------
    model : LatentFeatures
        A fit of SparseFactorAnalysis.
    X : array of shape (n_rows, n_dims)
        The data that were fitted.
    n_classes : int or several
        Numbers of classes to try. The one that predicts hidden cells best is chosen.
    n_warmup, n_draws : int
        Steps of each of four chains that are left out, and that are kept of the one that explains the data best.
    random_state : None, int or Generator
        Makes the result reproducible.
    share : float
        The share of the observed cells that are hidden while numbers of classes are compared.
    """
    X, start = _begun(model, X)
    numbers = _numbers(n_classes, len(start.loadings))
    for name, value, domain in (("n_warmup", n_warmup, between(0, 10**9)), ("n_draws", n_draws, between(1, 10**9))):
        if not domain.contains(value):
            raise InvalidParameterError(f"{name} must be {domain.words}. Got {value!r}.")
    if not (positive.contains(share) and share < 1):
        raise InvalidParameterError(f"share must lie between 0 and 1. Got {share!r}.")
    hiding, last, *streams = spawn(make_generator(random_state), 2 + len(numbers))
    hidden = _hidden(hiding, X, share)
    prepare = start.spec.engine(ChainRows).prepare
    data = prepare(np.where(hidden, np.nan, X))
    found = {
        number: _log_predictive(_chain(rng, start, data, number, n_warmup, n_draws), data, X, hidden)
        for number, rng in zip(numbers, streams, strict=True)
    }
    best = max(numbers, key=lambda number: float(found[number].mean()))
    scores = {number: _score(cells, found[best]) for number, cells in found.items()}
    return LoadingClasses(best, scores, *_summary(_chain(last, start, prepare(X), best, n_warmup, n_draws)))


# ---- what is asked for


def _begun(model: Any, X: Any) -> tuple[Array, _Start]:
    """X as numbers, and where chains begin; or an error."""
    posterior = getattr(model, "posterior_", None)
    if not isinstance(posterior, Draws) or not isinstance(posterior.model.observation, SparseFactorAnalysis):
        what = model if posterior is None else f"a fit of {type(posterior.model.observation).__name__}"
        raise InvalidParameterError(
            f"model must be a fitted LatentFeatures with SparseFactorAnalysis. Got {what}. "
            "Fit LatentFeatures(SparseFactorAnalysis()) to X first."
        )
    spec = posterior.model.observation
    X = np.ascontiguousarray(spec.check_data(X))
    if fingerprint(X) != model.data_fingerprint_:
        raise InvalidDataError("X is not the data of this fit. Give the X that was fitted, its missing cells as NaN.")
    chain, draw = posterior.representative
    columns = posterior.consensus.columns
    if len(columns) == 0:
        raise InvalidParameterError(
            "model has no factor that persists, so there is nothing to tell owners of loadings apart by. "
            "Fit it for longer, or to more data."
        )
    loadings = posterior.marks(chain, draw)[:, columns]
    return X, _Start(spec, posterior.concrete(chain, draw).observation, loadings)


def _numbers(n_classes: Any, n_owners: int) -> list[int]:
    numbers = list(n_classes) if isinstance(n_classes, Iterable) else [n_classes]
    domain = between(1, n_owners)
    if not numbers or not all(map(domain.contains, numbers)) or len(set(numbers)) < len(numbers):
        raise InvalidParameterError(
            f"n_classes must be {domain.words}, the number of owners of loadings, or several different ones. "
            f"Got {n_classes!r}."
        )
    return [int(number) for number in numbers]


def _hidden(rng: Generator, X: Array, share: float) -> Array:
    """True at so many of the cells that are observed, at least one."""
    hidden = np.zeros(X.size, dtype=bool)
    observed = np.flatnonzero(~np.isnan(X))
    hidden[rng.choice(observed, max(1, round(share * len(observed))), replace=False)] = True
    return hidden.reshape(X.shape)


# ---- chains and what they say


def _chain(
    rng: Generator, start: _Start, data: LoadingData, n_classes: int, n_warmup: int, n_draws: int
) -> Iterator[ClassState]:
    """The states that are kept, of that chain which explains the data best: many stay in classes that are a mixture of
    others. With one class there is nothing to mix."""
    best, best_fit = None, -np.inf
    for _ in range(_CHAINS if n_classes > 1 else 1):
        state, fit = begin(rng, start.concrete, data, start.loadings, n_classes), 0.0
        for i in range(n_warmup):
            state = step(rng, start.spec, data, state)
            fit += log_fit(state, data) if 2 * i >= n_warmup else 0.0
        if best is None or fit > best_fit:
            best, best_fit = state, fit
    assert best is not None
    for _ in range(n_draws):
        best = step(rng, start.spec, data, best)
        yield best


def _log_predictive(states: Iterable[ClassState], data: LoadingData, X: Array, cells: Array) -> Array:
    """log of the mean density of each cell over the states."""
    total, n_states = np.full(np.count_nonzero(cells), -np.inf), 0
    for state in states:
        total = np.logaddexp(total, log_cells(state, data, X, cells))
        n_states += 1
    return total - np.log(n_states)


def _score(cells: Array, best: Array) -> Score:
    behind = best - cells
    root = np.sqrt(max(len(cells) - 1, 1))
    return Score(*(float(v) for v in (cells.mean(), cells.std() / root, behind.mean(), behind.std() / root)))


def _summary(states: Iterable[ClassState]) -> tuple[Array, Array, Array]:
    """(probability that two owners share a class; classes and preferences of the draw nearest to it)."""
    kept = [(state.classes, state.preferences) for state in states]
    together, nearest = co_clustering(np.array([classes for classes, _ in kept]))
    classes, preferences = kept[nearest]
    order = np.argsort(-np.bincount(classes, minlength=len(preferences)), kind="stable")
    return together, np.argsort(order)[classes], preferences[order]
