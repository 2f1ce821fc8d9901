"""The contracts of the row variables that chains keep, of the exact marginal, and of where chains begin."""

import math
import warnings
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from thali.core.protocols.engines.chains import (
    AuxiliaryRows,
    ChainRows,
    FactorStart,
    FreshRows,
    MarginalRows,
    OwnStart,
    ShownRows,
    StartRows,
)
from thali.core.protocols.engines.predictions import Predictions
from thali.observations.explicit.marginal import N_DRAWS as SIMULATED
from thali.observations.explicit.marginal import ExplicitMarginal
from thali.testing.contracts.example import BITS, Example
from thali.testing.contracts.telling import check_stored, contract, near, same, spoiled, unchanged
from thali.testing.zscores import z_limit

Array = np.ndarray

_EFFECTIVE = 100  # draws that must count in a mean


def check_chain_rows(example: Example) -> None:
    for X in (example.X, example.holes):
        _check_placed(example, X)
    _check_codebook(example)
    if example.observation.takes_sparse:
        with contract("prepare must make the same of sparse and of dense data."):
            rows = example.observation.engine(ChainRows)
            data = rows.prepare(example.observation.check_data(csr_array(example.X)))
            local = rows.place(data, example.codes, example.X)
            got, wanted = rows.log_evidence(data, local), rows.log_evidence(*example.placed())
            assert near(got, wanted), f"log_evidence is {got} of sparse and {wanted} of dense data."


def _check_placed(example: Example, X: Array) -> None:
    observation = example.observation
    rows = observation.engine(ChainRows)
    with contract("place must give row variables with the codes that it was given, and leave X as it was."):
        with unchanged(X=X, codes=example.codes):
            data, local = example.placed(X)
        assert getattr(local, "_fields", (None,))[0] == "z", "It is no NamedTuple that begins with z."
        assert local.z.dtype == np.uint8, f"z has dtype {local.z.dtype}, not uint8."
        assert np.array_equal(local.z, BITS), "Its bits are others."
        assert near(rows.codes(local), example.codes), "Its codes are others."
    with contract("check must accept the row variables that place gives."), unchanged(local=local):
        rows.check(data, local)
    for what, wrong in spoiled(local, local._fields[1:]):
        with contract(f"check must refuse row variables with {what} by a ValueError."):
            _refused_by_check(rows, data, wrong)
    with contract("completed must leave the observed cells as they are, and fill the others."):
        full = np.asarray(rows.completed(data, local)) + example.origin
        assert full.shape == X.shape, f"Got shape {full.shape}."
        assert np.isfinite(full).all(), "A cell is not finite."
        seen = ~np.isnan(X)
        assert near(full[seen], X[seen]), "An observed cell is another."
    with contract("log_evidence must be a finite number that depends on its arguments alone."), unchanged(local=local):
        evidence = rows.log_evidence(data, local)
        assert math.isfinite(evidence), f"Got {evidence}."
        assert rows.log_evidence(*example.placed(X)) == evidence, "It was another for the same arguments."
    if not observation.has(AuxiliaryRows) and observation.has(MarginalRows):  # else more than codes is kept
        with contract("log_evidence must be log_marginal and the log density of the codes."):
            marginal = observation.engine(MarginalRows)
            wanted = marginal.log_marginal(full, example.codes) + marginal.log_codes(example.codes)
            assert near(evidence, wanted), f"It is {evidence}, they are {wanted}."
    with contract("resample must leave a model alone whose hyperparameters are numbers."), unchanged(local=local):
        assert rows.resample(example.rng, observation, data, local) == observation, "It changed one."
    if X is not example.X:
        check_stored("The row variables of a chain", local)


def _refused_by_check(rows: Any, data: Any, local: Any) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of nonsense
            rows.check(data, local)
    except ValueError:
        return
    raise AssertionError("They were accepted.")


def _check_codebook(example: Example) -> None:
    rows = example.observation.engine(ChainRows)
    n_dims = example.n_dims
    with contract("codebook must keep the features in use, in its own kind of arrays."):
        data, local = example.placed()
        wide = rows.place(data, np.insert(example.codes, 1, 0, axis=1), example.X - example.origin)  # one is not in use
        for given in (local, wide):
            with unchanged(local=given):
                book = rows.codebook(data, given)
            book.check(BITS.shape[1], n_dims)
            assert np.array_equal(book.counts, BITS.sum(axis=0)), f"counts are {book.counts}."
        if example.observation.has(Predictions):
            wanted = example.observation.engine(Predictions).codebook_kind
            assert type(book) is wanted, f"It is a {type(book).__name__}, predictions need a {wanted.__name__}."
    with contract("A codebook must give some of its features, in any order, by its columns."):
        turned = book.columns(np.array([1, 0]))
        turned.check(2, n_dims)
        book.columns(np.array([1])).check(1, n_dims)
        assert np.array_equal(turned.features, book.features[::-1]), "Its features are others."
        back = turned.columns(np.array([1, 0]))
        assert same(back, book.columns(np.array([0, 1]))), "Turned twice, it is another."
    check_stored("A codebook", book)


def check_marginal_rows(example: Example) -> None:
    """p(X | codes) is the mean of p(X | codes, features) over features from their prior; with a missing cell too.

    Of so many rows as the draws can tell of: features that suit many rows are rare among draws from a prior.
    """
    X, codes = example.X, example.codes
    told = [_told_marginal(example, X[rows], codes[rows]) for rows in ([0, 1, 2, 3], [0], [1], [2])]
    assert any(told), f"{example.n_draws} draws of the features tell nothing of any row. Give a larger n_draws."
    for rows in ([0, 1, 2, 3], [0, 1], [1, 2]):  # in which each dim has a cell
        if _told_marginal(example, example.holes[rows], codes[rows]):
            break


def _told_marginal(example: Example, X: Array, codes: Array) -> bool:
    """Whether enough of the draws count; if so, log_marginal is held against their mean."""
    observation = example.observation
    engine = observation.engine(MarginalRows)
    with contract("log_marginal must be the mean of log_prob over features from their prior."):
        with unchanged(X=X, codes=codes):
            wanted = engine.log_marginal(X, codes)
        draws = (observation.draw_features(example.rng, codes.shape[1], X.shape[1]) for _ in range(example.n_draws))
        log_terms = np.array([observation.log_prob(X, codes, features) for features in draws])
        terms = np.exp(log_terms - log_terms.max())
        if terms.sum() ** 2 < _EFFECTIVE * np.sum(terms**2):
            return False
        share = 1.0 / len(terms) + (1.0 / SIMULATED if isinstance(engine, ExplicitMarginal) else 0.0)
        error = max(terms.std(ddof=1) * math.sqrt(share), 1e-9 * terms.mean())  # the default is a mean of draws itself
        z = (terms.mean() - math.exp(wanted - log_terms.max())) / error
        assert abs(z) <= z_limit(1), f"It is off by z = {z:.1f}."
    return True


def check_auxiliary_rows(example: Example) -> None:
    observation = example.observation
    with contract("simulate_local must give data, and row variables that check accepts, with these bits."):
        missing = np.zeros(example.X.shape, dtype=bool)
        missing[0, 0] = True
        rows = observation.engine(ChainRows)
        for hidden in (None, missing):
            Z = BITS.copy()
            with unchanged(Z=Z):
                X, local = observation.engine(AuxiliaryRows).simulate_local(example.rng, Z, example.n_dims, hidden)
            assert X.shape == example.X.shape, f"X has shape {X.shape}."
            assert np.array_equal(local.z, BITS), "Its bits are others."
            data = rows.prepare(observation.check_data(X if hidden is None else np.where(hidden, np.nan, X)))
            rows.check(data, local)


def check_start_rows(example: Example) -> None:
    observation = example.observation
    engine, rows = observation.engine(StartRows), observation.engine(ChainRows)
    data, _ = example.placed(example.holes)
    with contract("matrix must give X with NaN where a cell is missing, and whether an offset is learned."):
        matrix, learned = engine.matrix(data)
        assert np.array_equal(np.isnan(matrix), np.isnan(example.holes)), "NaN is elsewhere."
        assert isinstance(learned, bool), f"The second is {learned!r}."
    with contract("units must be None, or one positive number per dim."):
        units = engine.units(example.n_dims)
        assert units is None or (np.shape(units) == (example.n_dims,) and np.all(units > 0)), f"Got {units!r}."
    with contract("begin must give a concrete model and row variables that check accepts."):
        codes = example.codes.astype(float)
        with unchanged(codes=codes):
            current, local = engine.begin(data, codes, np.where(np.isnan(matrix), 0.0, matrix))
        assert not current.learned, f"{', '.join(current.learned)} is still a distribution."
        rows.check(data, local)
    with contract("tempered must give a concrete model, and itself for the factor 1."):
        hot = engine.tempered(2.0)
        assert not hot.learned, f"{', '.join(hot.learned)} is a distribution."
        assert math.isfinite(hot.engine(ChainRows).log_evidence(data, local)), "Its evidence is not finite."
        ways = [m.engine(ChainRows).log_evidence(data, local) for m in (engine.tempered(1.0), observation)]
        assert near(*ways), f"The evidence is {ways[0]}, not {ways[1]}."


def check_own_start(example: Example) -> None:
    with contract("start_codes must give as many codes as it is asked for, of the model's kind."):
        data, _ = example.placed()
        for n in (2, None):
            codes = example.observation.engine(OwnStart).start_codes(example.rng, data, n, lambda: False)
            assert len(codes) == len(BITS), f"It gives {len(codes)} rows for {len(BITS)}."
            assert n is None or codes.shape[1] == n, f"It gives {codes.shape[1]} features, not {n}."
            assert np.isfinite(codes).all(), "A code is not finite."
            assert example.observation.code_kind != "positive" or (codes >= 0).all(), "A code is negative."
        few = example.observation.engine(OwnStart).start_codes(example.rng, data, 2, lambda: True)
        assert few.shape == (len(BITS), 2), f"Without time it gives codes of shape {few.shape}."


def check_factor_start(example: Example) -> None:
    with contract("start_factors must give a column for each owner of bits, NaN where a cell is missing."):
        data, _ = example.placed(example.holes)
        Y = example.observation.engine(FactorStart).start_factors(data)
        assert Y.shape[1] == len(BITS), f"It gives {Y.shape[1]} columns for {len(BITS)}."
        assert np.isnan(Y).sum() == np.isnan(example.holes).sum(), "NaN is elsewhere."


def check_fresh_rows(example: Example) -> None:
    engine, rows = example.observation.engine(FreshRows), example.observation.engine(ChainRows)
    with contract("refresh must give row variables that check accepts, with the same codes."):
        data, local = example.placed(example.holes)
        with unchanged(X=example.holes, local=local):
            new = engine.refresh(example.rng, data, local)
        rows.check(data, new)
        assert near(rows.codes(new), rows.codes(local)), "Its codes are others."


def check_shown_rows(example: Example) -> None:
    engine, rows = example.observation.engine(ShownRows), example.observation.engine(ChainRows)
    with contract("shown must give row variables that check accepts, and that it shows as they are."):
        data, local = example.placed()
        with unchanged(local=local):
            once = engine.shown(local)
        rows.check(data, once)
        assert same(engine.shown(once), once), "Shown again, they are others."
