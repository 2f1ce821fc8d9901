"""The contracts of what one draw of a posterior says of rows, fitted or new."""

import itertools
import math

import numpy as np
from scipy.special import expit

from thali.core.codebook import Codebook
from thali.core.protocols.engines.chains import AuxiliaryRows, ChainRows, MarginalRows
from thali.core.protocols.engines.predictions import CellMoments, Predictions
from thali.testing.contracts.example import BITS, Example
from thali.testing.contracts.laws import check_law
from thali.testing.contracts.telling import contract, near, same, unchanged
from thali.testing.zscores import z_limit, z_scores

Array = np.ndarray

_LOG_ODDS = np.array([0.3, -0.6])
_CELL = math.log(2.0 * math.pi)


def check_predictions(example: Example) -> None:
    """For a codebook of a chain; that of other engines is of the same kind."""
    if not example.observation.has(ChainRows) or not example.observation.has_bits:
        return
    _check_codes(example)
    _check_cells(example)
    _check_encoding(example)


def _check_codes(example: Example) -> None:
    observation, book = example.observation, example.codebook()
    engine = observation.engine(Predictions)
    with contract("codes must give those of the fitted rows from their bits and the codebook."), unchanged(book=book):
        codes = np.asarray(engine.codes(BITS.copy(), book))
        assert np.array_equal(codes != 0, BITS != 0), "Other codes are on."
        assert near(np.abs(codes), np.abs(example.codes), 1e-5), "They are others than those that were fitted."
    with contract("features_var must be a variance for each value of the features."), unchanged(book=book):
        var = engine.features_var(book)
        assert np.shape(var) == book.features.shape, f"Got shape {np.shape(var)}."
        assert np.all(var >= 0), "One is negative."
    with contract("definite must give a codebook of the same kind."), unchanged(book=book):
        definite = engine.definite(example.rng, book)
        assert type(definite) is type(book), f"Got a {type(definite).__name__}."
        definite.check(BITS.shape[1], example.n_dims)


def _check_cells(example: Example) -> None:
    observation, book, n_dims = example.observation, example.codebook(), example.n_dims
    engine = observation.engine(Predictions)
    fitted = np.asarray(engine.codes(BITS.copy(), book))
    codes = fitted[1:2]
    with contract("log_cells must give the log density of each cell, whatever other cells are missing."):
        whole = engine.log_cells(example.X, fitted, book)
        assert np.shape(whole) == example.X.shape, f"Got shape {np.shape(whole)}."
        seen = ~np.isnan(example.holes)
        with unchanged(X=example.X, codes=fitted, book=book):
            some = engine.log_cells(example.holes, fitted, book)
        assert near(some[seen], whole[seen]), "It changed where other cells are missing."
    with contract("sample_rows must draw from the density that log_cells says."), unchanged(book=book):
        second = _second(book, example.n_draws)
        many = engine.sample_rows(example.rng, np.repeat(codes, example.n_draws, axis=0), second, 0)
        assert np.shape(many) == (example.n_draws, n_dims), f"Got shape {np.shape(many)}."
        for d in range(n_dims):

            def log_density(values: Array, d: int = d) -> Array:
                rows = np.repeat(many[:1], len(values), axis=0)
                rows[:, d] = values
                return engine.log_cells(rows, np.repeat(codes, len(values), axis=0), _second(book, len(values)))[:, d]

            check_law(many[:, d], log_density)
    with contract("means, counted from the origin, must be the mean of what sample_rows draws."), unchanged(book=book):
        z = np.abs(z_scores(many, np.asarray(engine.means(codes, book))[0] + example.origin))
        assert z.max() <= z_limit(n_dims), f"They are others (z = {z.max():.1f})."
    with contract("sample_rows must give data that check_data takes, with unknown features too."):
        rows = engine.sample_rows(example.rng, fitted, book, np.array([0, 1, 2, 0]))
        assert np.array_equal(observation.check_data(rows), rows), "check_data changed them."
    if observation.has(MarginalRows) and not observation.has(AuxiliaryRows):
        with contract("log_cells of one more row must be by how much it raises log_marginal."):
            marginal, new = observation.engine(MarginalRows), many[:1]
            joint = marginal.log_marginal(np.vstack([example.X, new]), np.vstack([fitted, codes]))
            wanted = joint - marginal.log_marginal(example.X, fitted)
            got = float(engine.log_cells(new, codes, book).sum())
            assert near(got, wanted, 1e-6), f"It is {got}, log_marginal says {wanted}."


def _second(book: Codebook, n: int) -> Codebook:
    """The codebook of so many rows, each of them the second that was fitted."""
    return book.rows(np.ones(n, dtype=np.int64))


def _check_encoding(example: Example) -> None:
    observation, book = example.observation, example.codebook()
    engine = observation.engine(Predictions)
    rows = np.vstack([example.X[1], example.holes[0] if example.n_dims > 1 else example.X[0], example.X[3]])
    with contract("encode must say of each row what it says of it alone."):
        with unchanged(rows=rows, book=book):
            encoded = engine.encode(rows, book, _LOG_ODDS, 0.1)
        alone = engine.encode(rows[1:2], book, _LOG_ODDS, 0.1)
        for name in ("presence", "codes", "log_density"):
            both = getattr(encoded, name)[1:2], getattr(alone, name)
            assert near(*both), f"{name} is {both[0]} among others and {both[1]} alone."
        shape = (len(rows), BITS.shape[1])
        assert encoded.presence.shape == encoded.codes.shape == shape, f"presence is {encoded.presence.shape}."
        assert np.all((encoded.presence >= 0) & (encoded.presence <= 1)), "A presence is no probability."
        assert np.isfinite(encoded.log_density).all(), "A density is not finite."
        assert same(encoded[:3], engine.encode(rows, book, _LOG_ODDS, 0.1)[:3]), "It was another the second time."
    with contract("sample_codes must give codes of the model's kind, one row for each owner."):
        owner = np.array([0, 2, 0])
        drawn = np.asarray(engine.sample_codes(example.rng, encoded, owner), dtype=float)
        assert drawn.shape == (3, BITS.shape[1]), f"Got shape {drawn.shape}."
        assert observation.code_kind != "bits" or np.isin(drawn, (0.0, 1.0)).all(), "Codes are bits, and one is not."
        assert observation.code_kind != "positive" or (drawn >= 0).all(), "A code is negative."
    if observation.code_kind == "bits":
        _check_enumerated(example, rows)


def _check_enumerated(example: Example, rows: Array) -> None:
    """Where codes are bits, all that a row may have can be listed."""
    book, engine = example.codebook(), example.observation.engine(Predictions)
    presence, _, log_density = engine.encode(rows, book, _LOG_ODDS, 0.0)[:3]
    listed = np.array(list(itertools.product((0, 1), repeat=BITS.shape[1])), dtype=np.uint8)
    prior = listed @ np.log(expit(_LOG_ODDS)) + (1 - listed) @ np.log(expit(-_LOG_ODDS))
    for row, got, density in zip(rows, presence, log_density, strict=True):
        with contract("encode must give the posterior of the bits by log_odds and log_cells, missing cells left out."):
            cells = engine.log_cells(np.repeat(row[None], len(listed), axis=0), listed, book)
            weight = prior + np.where(np.isnan(row), 0.0, cells).sum(axis=1)
            total = float(np.logaddexp.reduce(weight))
            wanted = np.exp(weight - total) @ listed
            assert np.allclose(got, wanted, atol=1e-8), f"presence is {got}, enumeration says {wanted}."
            assert near(density, total), f"The log density is {density}, enumeration says {total}."


def check_cell_moments(example: Example) -> None:
    observation, book = example.observation, example.codebook()
    engine, moments = observation.engine(Predictions), observation.engine(CellMoments)
    with contract("cell_moments must be the mean and the variance of the normal density that log_cells says."):
        codes = np.asarray(engine.codes(BITS.copy(), book), dtype=float)
        with unchanged(book=book):
            mean, noise, more = moments.cell_moments(codes, np.zeros_like(codes), book)
        assert near(mean + example.origin, observation.reconstruct(codes, book.features)), "The mean is another."
        peak = engine.log_cells(mean + example.origin, codes, book)
        assert near(-0.5 * (_CELL + np.log(noise + more)), peak, 1e-6), "The variance is another."
    with contract("from_origin must give X as the moments are counted."), unchanged(X=example.X):
        assert near(moments.from_origin(example.X), example.X - example.origin), "It gives another X."
