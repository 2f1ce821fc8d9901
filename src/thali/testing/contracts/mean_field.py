"""The contracts of variational engines: updates that never lower the bound, sums over rows, and a bound that is one."""

import itertools
from typing import Any

import numpy as np

from thali.core.protocols.engines.chains import MarginalRows
from thali.core.protocols.engines.mean_field import Family, FeatureDraws, GrowingSums, MeanFieldRows, ScaledFeatures
from thali.core.protocols.engines.predictions import Predictions
from thali.core.statistics import add
from thali.testing.contracts.example import BITS, Example
from thali.testing.contracts.telling import check_stored, contract, near, unchanged
from thali.testing.zscores import z_limit

Array = np.ndarray

_LOG_ODDS = np.array([0.3, -0.6])
_PASSES = 4
_LEAK = 0.02  # of what counts are explained by, what a feature may take that no row has


def check_mean_field_rows(example: Example) -> None:
    engine = example.observation.engine(MeanFieldRows)
    data, q, local, sums = _begun(example)
    with contract("row_data must have a length, and parts whose sums add up to those of all rows."):
        assert len(data) == len(BITS), f"It has {len(data)} rows."
        halves = [
            engine.update_rows(data.part(a, b), q, type(local)(*(field[a:b] for field in local)), _LOG_ODDS, 0)[1]
            for a, b in ((0, 2), (2, len(BITS)))
        ]
        together = add(*halves)
        assert all(near(a, b) for a, b in zip(together, sums, strict=True)), "They add up to others."
    for _ in range(_PASSES):
        before = _objective(engine, q, sums)
        with contract("update_rows must not lower the bound, and leave its arguments as they were."):
            with unchanged(q=q, local=local):
                local, sums = engine.update_rows(data, q, local, _LOG_ODDS, 1)
            after = _objective(engine, q, sums)
            assert after >= before - 1e-9 * (1 + abs(before)), f"It fell from {before} to {after}."
        with contract("update_features must not lower the bound, and leave its arguments as they were."):
            with unchanged(q=q, sums=sums):
                q = engine.update_features(q, sums)
            last = _objective(engine, q, sums)
            assert last >= after - 1e-9 * (1 + abs(after)), f"It fell from {after} to {last}."
    _check_bound(example, last)
    _check_columns(example, data, q, local, sums)
    _check_results(example, q, local)


def _begun(example: Example) -> tuple[Any, Any, Any, Any]:
    """(data, q, local, statistics) near the example's codes."""
    engine = example.observation.engine(MeanFieldRows)
    engine.init_features(engine.row_data(example.X), BITS.shape[1], Family())  # or it refuses, in words
    with contract("A mean field must begin near codes: init_rows, init_features, update_rows, update_features."):
        X = example.observation.check_data(example.holes)
        with unchanged(X=X, codes=example.codes):
            data = engine.row_data(X)
            q = engine.init_features(data, BITS.shape[1], Family())
            local = engine.init_rows(data, example.codes.astype(float))
        assert local.z_prob.shape == BITS.shape, f"z_prob has shape {local.z_prob.shape}."
        for _ in range(2):
            local, sums = engine.update_rows(data, q, local, _LOG_ODDS, 0)
            q = engine.update_features(q, sums)
        assert np.shape(sums.counts) == (BITS.shape[1],), f"counts have shape {np.shape(sums.counts)}."
        assert near(sums.counts, local.z_prob.sum(axis=0)), "counts are not the sums of z_prob."
        local, sums = engine.update_rows(data, q, local, _LOG_ODDS, 0)
    return data, q, local, sums


def _objective(engine: Any, q: Any, sums: Any) -> float:
    """The bound for independent bits with these odds."""
    bits = float(sums.counts @ _LOG_ODDS - len(BITS) * np.logaddexp(0.0, _LOG_ODDS).sum())
    return engine.features_bound(q, sums) + bits


def _check_bound(example: Example, bound: float) -> None:
    """For bits log p(X) can be summed up."""
    observation = example.observation
    if observation.code_kind != "bits" or not observation.has(MarginalRows):
        return
    with contract("features_bound must be a bound: never above log p(X)."):
        marginal, X, total = observation.engine(MarginalRows), example.holes, []
        for bits in itertools.product((0, 1), repeat=BITS.size):
            Z = np.array(bits, dtype=np.uint8).reshape(BITS.shape)
            total.append(marginal.log_marginal(X, Z) + float(Z.sum(axis=0) @ _LOG_ODDS))
        exact = float(np.logaddexp.reduce(total) - len(BITS) * np.logaddexp(0.0, _LOG_ODDS).sum())
        assert bound <= exact + 1e-9 * (1 + abs(exact)), f"It is {bound}, log p(X) is {exact}."


def _check_columns(example: Example, data: Any, q: Any, local: Any, sums: Any) -> None:
    engine = example.observation.engine(MeanFieldRows)
    with contract("keep_columns must put features in another order without a change of the bound."):
        order = np.array([1, 0])
        with unchanged(q=q, local=local, sums=sums):
            kept, kept_local, kept_sums = (engine.keep_columns(part, order) for part in (q, local, sums))
        assert near(engine.features_bound(kept, kept_sums), engine.features_bound(q, sums)), "The bound is another."
        assert np.array_equal(kept_local.z_prob, local.z_prob[:, order]), "z_prob is another."
    with contract("add_feature and add_column must give one more feature, as in its prior."):
        with unchanged(q=q, local=local):
            more, wider = engine.add_feature(q), engine.add_column(local, np.zeros(len(BITS)))
        assert wider.z_prob.shape[1] == BITS.shape[1] + 1, f"There are {wider.z_prob.shape[1]}."
        _, wide = engine.update_rows(data, more, wider, np.append(_LOG_ODDS, -9.0), 0)
        assert np.isfinite(engine.features_bound(more, wide)), "The bound is not finite."
    with contract("annealed must give q itself at temperature 1."), unchanged(q=q):
        ways = [engine.update_rows(data, p, local, _LOG_ODDS, 1)[0].z_prob for p in (q, engine.annealed(q, 1.0))]
        assert near(*ways), "Rows are updated otherwise."
    with contract("unexplained must have the shape of X, zero at missing cells."), unchanged(q=q, local=local):
        left = engine.unexplained(data, q, local)
        assert np.shape(left) == example.X.shape, f"Got shape {np.shape(left)}."
        assert not np.any(left[np.isnan(example.holes)]), "A missing cell is not zero."


def _check_results(example: Example, q: Any, local: Any) -> None:
    observation = example.observation
    engine = observation.engine(MeanFieldRows)
    with contract("draw_rows and expected_codes must give codes of the model's kind."), unchanged(local=local):
        bits, codes = engine.draw_rows(example.rng, local)
        assert np.shape(bits) == np.shape(codes) == BITS.shape, f"Got shapes {np.shape(bits)} and {np.shape(codes)}."
        assert np.isin(bits, (0, 1)).all(), "A bit is neither 0 nor 1."
        expected = engine.expected_codes(local)
        assert observation.code_kind != "bits" or near(expected, local.z_prob), "Those of bits are z_prob."
        assert observation.code_kind != "positive" or np.all(expected >= 0), "One is negative."
    with contract("check must raise no error for the factors of a fit."), unchanged(q=q, local=local):
        engine.check(q, local)
    with contract("expected_features must have a row for each feature."), unchanged(q=q):
        features = engine.expected_features(q)
        assert np.shape(features) == (BITS.shape[1], example.n_dims), f"Got shape {np.shape(features)}."
    with contract("codebook must be of the kind that predictions need."), unchanged(q=q, local=local):
        book = engine.codebook(q, local)
        wanted = engine.concrete(q, local).engine(Predictions).codebook_kind
        assert type(book) is wanted, f"It is a {type(book).__name__}, not a {wanted.__name__}."
        book.check(BITS.shape[1], example.n_dims)
    check_stored("The factors of a variational fit", q)
    check_stored("The rows' factors of a variational fit", local)


def check_scaled_features(example: Example) -> None:
    engine = example.observation.engine(ScaledFeatures)
    rows = example.observation.engine(MeanFieldRows)
    _, q, local, sums = _begun(example)
    with contract("signs must be -1 or 1 for each feature, and leave the bound as it is."):
        signs = engine.signs(q, [local])
        assert np.isin(signs, (-1, 1)).all(), f"Got {signs}."
        before = rows.features_bound(q, sums)
        for factors in (np.array([-1.0, 1.0]), np.array([1.0, -1.0])):
            with unchanged(q=q, local=local, sums=sums):
                turned = engine.turned(q, factors), engine.turned(sums, factors)
                codes = rows.expected_codes(engine.turned(local, factors))
            assert near(rows.features_bound(*turned), before), "The bound is another."
            assert near(codes, rows.expected_codes(local) * factors), "The codes are not turned."
    with contract("stretch must give a positive factor for each feature."), unchanged(q=q, local=local):
        factors = engine.stretch(q, [local])
        assert np.shape(factors) == (BITS.shape[1],), f"Got shape {np.shape(factors)}."
        assert np.all(factors > 0), f"Got {factors}."


def check_growing_sums(example: Example) -> None:
    rows = example.observation.engine(MeanFieldRows)
    data, q, _, sums = _begun(example)
    with contract("with_unused must add a last feature that no row has, and leave the others as they are."):
        more = rows.add_feature(q)
        with unchanged(q=more, sums=sums):
            wider = example.observation.engine(GrowingSums).with_unused(more, sums, float(len(data)))
        assert near(wider.counts, np.append(sums.counts, 0.0)), f"The counts are {wider.counts}."
        others = rows.expected_features(rows.update_features(more, wider))[: BITS.shape[1]]
        wanted = rows.expected_features(rows.update_features(q, sums))
        assert np.allclose(others, wanted, rtol=_LEAK, atol=0.0), f"The others are {others}, not {wanted}."


def check_feature_draws(example: Example) -> None:
    engine = example.observation.engine(FeatureDraws)
    _, q, _, _ = _begun(example)
    with contract("draw_values must give values whose mean is that of expected_features."), unchanged(q=q):
        mean = example.observation.engine(MeanFieldRows).expected_features(q)
        cells = np.repeat(np.arange(example.n_dims), example.n_draws // 10)
        values = engine.draw_values(example.rng, q, cells).reshape(example.n_dims, -1, len(BITS[0]))
        error = values.std(axis=1) / np.sqrt(values.shape[1])
        assert np.all(np.abs(values.mean(axis=1) - mean.T) <= z_limit(mean.size) * error), "It is another."
