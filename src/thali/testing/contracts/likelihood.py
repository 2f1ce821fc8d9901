"""The contract of a likelihood: what it draws, how probable it says that is, what it expects, and which X it takes."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from thali.core.observation import Observation
from thali.core.protocols.engines.chains import MarginalRows
from thali.errors import InvalidDataError, InvalidParameterError
from thali.testing.contracts.example import BITS, Example
from thali.testing.contracts.laws import check_law, is_binary
from thali.testing.contracts.telling import contract, near, same, unchanged
from thali.testing.zscores import z_limit, z_scores

Array = np.ndarray

_TRIES = 20  # data of which those that say most are taken


def check_likelihood(observation: Any, rng: np.random.Generator, n_dims: int, n_draws: int) -> Example:
    """The spec alone, without its engines; an example of it."""
    with contract("An observation model must be a concrete `Observation` that says what its codes are."):
        assert isinstance(observation, Observation), f"{type(observation).__name__} is none."
        assert not observation.learned, f"{', '.join(observation.learned)} is learned; give numbers."
        kind = getattr(observation, "code_kind", None)
        assert kind in ("bits", "real", "positive"), f"code_kind is {kind!r}."
    codes = _check_codes(observation, rng, n_draws)
    features = observation.draw_features(rng, BITS.shape[1], n_dims)
    _check_features(observation, rng, n_dims, n_draws)
    _check_simulate(observation, rng, codes, features)
    tries = [observation.simulate(rng, BITS.copy(), codes=codes, n_dims=n_dims) for _ in range(_TRIES)]
    X = max(tries, key=lambda values: len(np.unique(values)))  # counts may all be zero
    example = Example(observation, rng, n_draws, codes, X)
    many, binary = _check_cells(example, features)
    _check_missing_cells(example, features)
    _check_data(example, many, binary)
    with contract("adapt and draw must leave a concrete model concrete."), unchanged(X=X):
        for other in (observation.adapt(X), observation.draw(rng, n_dims)):
            assert type(other) is type(observation), f"Got {other!r}."
            assert not other.learned, f"Got {other!r}."
        assert observation.log_hyper(observation) == 0.0, "log_hyper is not 0 although nothing is learned."
    return example


def _check_codes(observation: Any, rng: np.random.Generator, n_draws: int) -> Array:
    with contract("draw_codes must give the kind of codes that code_kind says, zero where bits are off."):
        Z = BITS.copy()
        with unchanged(Z=Z):
            codes = np.array(observation.draw_codes(rng, Z))
        assert codes.shape == BITS.shape, f"Got shape {codes.shape}."
        assert np.isfinite(codes).all(), "A code is not finite."
        if observation.has_bits:
            assert np.array_equal(codes != 0, BITS != 0), "Other codes than those of the bits are on."
        if observation.code_kind == "bits":
            assert np.array_equal(codes, BITS), "Codes are bits, and must be those of Z."
        assert observation.code_kind != "positive" or (codes >= 0).all(), "A code is negative."
    if observation.has(MarginalRows):
        log_codes = observation.engine(MarginalRows).log_codes
        with contract("draw_codes must draw from the density that log_codes says."):
            assert observation.code_kind != "bits" or log_codes(codes) == 0.0, "log_codes of bits is not 0."
            if observation.code_kind != "bits":
                drawn = np.asarray(observation.draw_codes(rng, np.ones((1, n_draws), dtype=np.uint8)))[0]
                check_law(drawn, lambda w: np.array([log_codes(np.array([[value]])) for value in w]))
    return codes


def _check_features(observation: Any, rng: np.random.Generator, n_dims: int, n_draws: int) -> None:
    with contract("draw_features must give (n_features, n_dims) finite numbers."):
        for n in (0, 3):
            features = observation.draw_features(rng, n, n_dims)
            assert np.shape(features) == (n, n_dims), f"Got shape {np.shape(features)} for {n} features."
            assert np.isfinite(features).all(), "A value is not finite."
    if hasattr(observation, "log_features"):
        with contract("draw_features must draw from the density that log_features says."):
            many = observation.draw_features(rng, n_draws, n_dims)
            for d in range(n_dims):
                check_law(many[:, d], _column_law(observation.log_features, n_dims, d, float(many[0, d])))


def _column_law(log_density: Callable[[Array], Array], n_dims: int, d: int, usual: float) -> Callable[[Array], Array]:
    def of_values(values: Array) -> Array:
        features = np.full((len(values), n_dims), usual)
        features[:, d] = values
        return log_density(features)[:, d]

    return of_values


def _check_simulate(observation: Any, rng: np.random.Generator, codes: Array, features: Array) -> None:
    Z = BITS.copy()
    with contract("simulate must give a matrix of finite numbers, the same ones from the same stream."):
        again = copy.deepcopy(rng)
        with unchanged(Z=Z, codes=codes, features=features):
            X = observation.simulate(rng, Z, features=features, codes=codes)
        assert np.shape(X) == (len(BITS), features.shape[1]), f"Got shape {np.shape(X)}."
        assert np.isfinite(X).all(), "A cell is not finite."
        assert same(X, observation.simulate(again, Z, features=features, codes=codes)), "It drew other numbers."
    with contract("simulate must refuse, with InvalidParameterError, to guess how many dims there are."):
        _refused(InvalidParameterError, lambda: observation.simulate(rng, Z))


def _check_cells(example: Example, features: Array) -> tuple[Array, bool]:
    """(many draws of a row with both features, (n_draws, n_dims); whether cells are zero or one)."""
    observation, n_dims = example.observation, features.shape[1]
    codes = example.codes[1:2]
    many_codes = np.repeat(codes, example.n_draws, axis=0)
    bits = np.ones(many_codes.shape, dtype=np.uint8)
    many = observation.simulate(example.rng, bits, codes=many_codes, features=features)
    binary = False
    for d in range(n_dims):

        def log_density(values: Array, d: int = d) -> Array:
            row = np.full((1, n_dims), np.nan)
            found = np.zeros(len(values))
            for i, value in enumerate(values):
                row[0, d] = value
                found[i] = observation.log_prob(row, codes, features)
            return found

        with contract("simulate must draw from the density that log_prob says."):
            check_law(many[:, d], log_density)
        binary |= bool(np.isin(many, (0.0, 1.0)).all()) and is_binary(log_density)
    with contract("reconstruct must give the mean of what simulate draws."):
        expected = np.asarray(observation.reconstruct(codes, features))
        assert expected.shape == (1, n_dims), f"Got shape {expected.shape}."
        z = np.abs(z_scores(many, expected[0])).max()
        assert z <= z_limit(n_dims), f"It is off by z = {z:.1f}."
    return many, binary


def _check_missing_cells(example: Example, features: Array) -> None:
    with contract("log_prob must be a sum over cells that leaves the missing ones out."):
        X, observation = example.X, example.observation
        hidden = np.zeros(X.shape, dtype=bool)
        hidden[1, -1] = hidden[2, 0] = True
        with unchanged(X=X, codes=example.codes, features=features):
            whole = observation.log_prob(X, example.codes, features)
        parts = [observation.log_prob(np.where(h, np.nan, X), example.codes, features) for h in (hidden, ~hidden)]
        assert near(sum(parts), whole), f"All cells have {whole}, some {parts[0]} and the others {parts[1]}."


def _check_data(example: Example, many: Array, binary: bool) -> None:
    observation, X = example.observation, example.X
    with contract("check_data must take what simulate gives, and leave its cells as they are."):
        for given in (X, example.holes, many):
            with unchanged(X=given):
                checked = observation.check_data(given)
            assert np.array_equal(checked, given, equal_nan=True), "It changed a cell."
    wrong = {
        "text": np.full(X.shape, "a"),
        "one row without its axis": X[0],
        "no rows": X[:0],
        "an infinite cell": np.where(np.arange(X.size).reshape(X.shape) == 0, np.inf, X),
    }
    values = np.concatenate([X.ravel(), many.ravel()])
    if (values == np.floor(values)).all():
        wrong["a half, where cells are whole numbers"] = X + 0.5
        if values.min() >= 0:
            wrong["a negative cell, where none can be"] = X - values.max() - 1
        if binary:
            wrong["a two, where cells are zero or one"] = np.where(X.max() == X, 2.0, X)
    for what, bad in wrong.items():
        with contract(f"check_data must refuse {what} with InvalidDataError."):
            _refused(InvalidDataError, partial(observation.check_data, bad))
    if observation.takes_sparse:
        with contract("A model with takes_sparse must say the same of sparse and of dense data."):
            features = observation.draw_features(example.rng, BITS.shape[1], X.shape[1])
            sparse = observation.check_data(csr_array(X))
            assert np.array_equal(sparse.toarray(), X), "check_data changed a cell."
            both = [observation.log_prob(data, example.codes, features) for data in (X, sparse)]
            assert near(both[0], both[1]), f"log_prob is {both[0]} of dense and {both[1]} of sparse data."


def _refused(kind: type[Exception], call: Callable[[], Any]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError("It was taken.")
