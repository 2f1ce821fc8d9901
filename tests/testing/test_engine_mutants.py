"""Each contract of an engine catches one that breaks it, and says which."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from outside.noisy_or import NoisyOr

from thali import FactorAnalysis, LinearGaussian, PoissonGamma, SparseFactorAnalysis
from thali.core.protocols.engines import calibration, chains, mean_field, particles, point, predictions, recursive
from thali.core.protocols.engines.chains import (
    AuxiliaryRows,
    BitEntropy,
    ChainRows,
    CollapsedRows,
    ColumnMoves,
    ConditionalRows,
    FactorStart,
    FreshRows,
    GroupedRows,
    ImportanceRows,
    LinkedRows,
    MarginalRows,
    OwnStart,
    ParallelRows,
    ProposedRows,
    ShownRows,
    SliceRows,
    StartRows,
)
from thali.core.protocols.engines.mean_field import FeatureDraws, GrowingSums, MeanFieldRows, ScaledFeatures
from thali.core.protocols.engines.particles import ParticleRows
from thali.core.protocols.engines.point import PointRows
from thali.core.protocols.engines.predictions import CellMoments, Predictions
from thali.core.protocols.engines.recursive import RecursiveRows
from thali.core.statistics import scale
from thali.rng import make_generator
from thali.testing.contracts.example import BITS, Example
from thali.testing.contracts.observation import CONTRACTS

NORMAL = LinearGaussian(noise_var=0.3, feature_var=1.2)
WEIGHTED = FactorAnalysis(noise_var=0.3, feature_var=1.2, offset=None, noise_floor=0.0)
COUNTS = PoissonGamma(weight_shape=0.8, weight_rate=1.5, feature_shape=0.7, feature_rate=2.0)
SPARSE = SparseFactorAnalysis(sparse="rows", noise_var=0.5, loading_var=0.7, offset=None, scale=1.0)
BINARY = NoisyOr()
X = np.array([[1.3, 0.6], [1.2, -1.8], [-0.1, -1.2], [0.2, 0.1]])
X_OF = {
    NORMAL: X,
    WEIGHTED: X,
    SPARSE: X,
    COUNTS: np.abs(np.round(2 * X)),
    BINARY: np.array([[1.0, 0], [1, 1], [0, 1], [0, 0]]),
}


def example(model: Any, like: Any, rng: np.random.Generator) -> Example:
    values = X_OF[like].copy()
    if model.code_kind == "positive":
        values[3] = 0.0  # no feature, no counts
    return Example(model, rng, 1000, model.draw_codes(make_generator(0), BITS.copy()), values)


def broken(model: Any, capability: type, **methods: Any) -> Any:
    """The model with some methods of one of its engines in place of their own. `up` is the engine's own class."""
    own = model.engines[capability]
    engine = type("Broken", (own,), {name: _bound(own, method) for name, method in methods.items()})
    kind = type(f"Broken{type(model).__name__}", (type(model),), {"engines": {**model.engines, capability: engine}})
    return kind(**{f.name: getattr(model, f.name) for f in dataclasses.fields(model)})


def _bound(own: type, method: Any) -> Any:
    return (lambda self, *args, **more: method(own, self, *args, **more)) if callable(method) else method


def spoiling(name: str, position: int) -> Any:
    """Writes into the bits of the row variables that it is given."""

    def method(own: Any, self: Any, *args: Any, **more: Any) -> Any:
        args[position].z[0, 0] ^= 1
        result = getattr(own, name)(self, *args, **more)
        return result

    return method


def with_odds(name: str, change: float) -> Any:
    """As if the prior's odds were others."""

    def method(own: Any, self: Any, rng: Any, data: Any, local: Any, odds: Any, *args: Any) -> Any:
        return getattr(own, name)(self, rng, data, local, odds._replace(log_odds=odds.log_odds + change), *args)

    return method


def counted(name: str) -> Any:
    """Draws from a stream of its own, another one each time."""
    calls: list[int] = []

    def method(own: Any, self: Any, rng: Any, *args: Any) -> Any:
        calls.append(1)
        return getattr(own, name)(self, make_generator(len(calls)), *args)

    return method


def likelier_weights(own: Any, self: Any, rng: Any, data: Any, local: Any, weights: Any, *args: Any) -> Any:
    return own.parallel_sweep(self, rng, data, local, lambda counts: weights(counts) ** 0.3, *args)


def other_threads(own: Any, self: Any, rng: Any, data: Any, local: Any, w: Any, rate: Any, n_threads: Any) -> Any:
    for _ in range(n_threads - 1):
        rng.random()
    return own.parallel_sweep(self, rng, data, local, w, rate, n_threads)


def blind_to_level(own: Any, self: Any, rng: Any, data: Any, local: Any, used: Any, unused: Any, level: Any) -> Any:
    return own.weighted_sweep(self, rng, data, local, used, unused, 0.0)


def blind_to_kinds(own: Any, self: Any, rng: Any, data: Any, local: Any, chances: Any, kinds: Any, *args: Any) -> Any:
    return own.grouped_sweep(self, rng, data, local, chances, 0 * kinds, *args)


def turned_book(own: Any, self: Any, data: Any, local: Any) -> Any:
    book = own.codebook(self, data, local)
    return book.replace(counts=book.counts[::-1] + 1)


def wrong_point(own: Any, self: Any, data: Any, Z: Any, A: Any, penalty: Any, limit: Any, order: Any) -> Any:
    return np.ascontiguousarray(np.ones_like(Z)), 1


def wrong_sums(own: Any, self: Any, data: Any, q: Any, local: Any, odds: Any, n_passes: int) -> Any:
    local, sums = own.update_rows(self, data, q, local, odds, n_passes)
    return local, sums._replace(**{sums._fields[1]: sums[1] * len(data)})


def by_batch(o: Any, s: Any, known: Any, X: np.ndarray, law: Any, plan: Any) -> Any:
    known, notes = o.filter_rows(s, known, X, law, plan)
    return known._replace(mean=known.mean * 0.9), notes


def heavier(own: Any, self: Any, *args: Any) -> Any:
    done = own.filter_rows(self, *args)
    return done._replace(particles=done.particles._replace(log_weight=done.particles.log_weight + 1.0))


def no_check(own: Any, self: Any, *args: Any) -> None:
    return None


MUTANTS = [
    (
        NORMAL,
        MarginalRows,
        {"log_marginal": lambda o, s, X, c: o.log_marginal(s, X, c) + 0.5},
        "log_marginal must be the mean",
    ),
    (
        BINARY,
        MarginalRows,
        {"log_marginal": lambda o, s, X, c: o.log_marginal(s, X, c) + 0.5},
        "log_marginal must be the mean",
    ),
    (NORMAL, ChainRows, {"check": no_check}, "check must refuse row variables with gram too short"),
    (BINARY, ChainRows, {"check": no_check}, "check must refuse row variables with codes too short"),
    (COUNTS, ChainRows, {"check": no_check}, "check must refuse row variables with v too short"),
    (
        NORMAL,
        ChainRows,
        {"place": lambda o, s, d, c, X: o.place(s, d, 1 - c, X)},
        "place must give row variables with the codes",
    ),
    (
        NORMAL,
        ChainRows,
        {"completed": lambda o, s, d, loc: 2 * o.completed(s, d, loc)},
        "completed must leave the observed cells",
    ),
    (
        NORMAL,
        ChainRows,
        {"log_evidence": lambda o, s, d, loc: o.log_evidence(s, d, loc) + loc.z.sum()},
        "log_evidence must be log_marginal",
    ),
    (
        WEIGHTED,
        ChainRows,
        {
            "totals": lambda o, s, loc: loc.z.sum(axis=0),
            "log_evidence": lambda o, s, d, loc: o.log_evidence(s, d, loc) + 1,
        },
        "log_evidence must be log_marginal",
    ),
    (
        BINARY,
        ChainRows,
        {"log_evidence": lambda o, s, d, loc: float("nan")},
        "check must accept|log_evidence must be a finite",
    ),
    (
        NORMAL,
        ChainRows,
        {"resample": lambda o, s, rng, spec, d, loc: spec.replace(noise_var=9.0)},
        "resample must leave a model alone",
    ),
    (NORMAL, ChainRows, {"codebook": turned_book}, "codebook must keep the features in use"),
    (
        COUNTS,
        ChainRows,
        {"prepare": lambda o, s, X: o.prepare(s, X if isinstance(X, np.ndarray) else 2 * X)},
        "prepare must make the same of sparse",
    ),
    (
        BINARY,
        AuxiliaryRows,
        {"simulate_local": lambda o, s, rng, Z, *a: o.simulate_local(s, rng, 1 - Z, *a)},
        "simulate_local must give",
    ),
    (NORMAL, StartRows, {"matrix": lambda o, s, d: (np.nan_to_num(o.matrix(s, d)[0]), False)}, "matrix must give X"),
    (NORMAL, StartRows, {"units": lambda o, s, n: np.zeros(n)}, "units must be None"),
    (NORMAL, StartRows, {"tempered": lambda o, s, f: o.tempered(s, 2 * f)}, "tempered must give"),
    (
        BINARY,
        StartRows,
        {"begin": lambda o, s, d, c, m: (s.model, o.begin(s, d, c, m)[1]._replace(z=1 - BITS))},
        "begin must give",
    ),
    (COUNTS, OwnStart, {"start_codes": lambda o, s, *a: -o.start_codes(s, *a)}, "start_codes must give"),
    (
        NORMAL,
        CollapsedRows,
        {"sweep": spoiling("sweep", 2)},
        "CollapsedRows.sweep with group=1 must leave its arguments",
    ),
    (
        NORMAL,
        CollapsedRows,
        {"sweep": counted("sweep")},
        "CollapsedRows.sweep with group=1 must leave its arguments .* another result",
    ),
    (
        NORMAL,
        CollapsedRows,
        {"sweep": with_odds("sweep", 1.0)},
        "CollapsedRows.sweep with group=1 must leave the joint",
    ),
    (
        NORMAL,
        ConditionalRows,
        {"conditional_sweep": with_odds("conditional_sweep", 1.0)},
        "conditional_sweep must leave the joint",
    ),
    (
        BINARY,
        ConditionalRows,
        {"conditional_sweep": with_odds("conditional_sweep", 2.0)},
        "conditional_sweep must leave the joint",
    ),
    (
        COUNTS,
        ConditionalRows,
        {"conditional_sweep": with_odds("conditional_sweep", 2.0)},
        "conditional_sweep must leave the joint",
    ),
    (
        BINARY,
        ConditionalRows,
        {"conditional_sweep": spoiling("conditional_sweep", 2)},
        "conditional_sweep must leave its arguments",
    ),
    (BINARY, SliceRows, {"weighted_sweep": blind_to_level}, "weighted_sweep must leave"),
    (COUNTS, GroupedRows, {"grouped_sweep": blind_to_kinds}, "grouped_sweep must leave"),
    (
        BINARY,
        GroupedRows,
        {"grouped_sweep": lambda o, s, *a: (o.grouped_sweep(s, *a)[0], a[5] < 0)},
        "grouped_sweep must leave",
    ),
    (
        SPARSE,
        ConditionalRows,
        {"conditional_sweep": with_odds("conditional_sweep", 2.0)},
        "conditional_sweep must leave the joint",
    ),
    (
        SPARSE,
        ProposedRows,
        {"proposed_sweep": with_odds("proposed_sweep", 2.0)},
        "proposed_sweep must leave the joint",
    ),
    (SPARSE, FreshRows, {"refresh": spoiling("refresh", 2)}, "refresh must give row variables"),
    (
        SPARSE,
        ShownRows,
        {"shown": lambda o, s, local: local._replace(noise=2 * local.noise)},
        "shown must give row variables",
    ),
    (
        SPARSE,
        FactorStart,
        {"start_factors": lambda o, s, d: np.nan_to_num(o.start_factors(s, d))},
        "start_factors must give",
    ),
    (
        NORMAL,
        ImportanceRows,
        {"importance_sweep": with_odds("importance_sweep", 1.0)},
        "importance_sweep must leave the joint",
    ),
    (NORMAL, ParallelRows, {"parallel_sweep": likelier_weights}, "parallel_sweep must leave the joint"),
    (NORMAL, ParallelRows, {"parallel_sweep": other_threads}, "parallel_sweep must give the same bits"),
    (
        NORMAL,
        ColumnMoves,
        {"propose_exclusive_or": lambda o, s, *a: (o.propose_exclusive_or(s, *a)[0], 0.5)},
        "propose_exclusive_or must give",
    ),
    (NORMAL, LinkedRows, {"column_change": lambda o, s, *a: 2 * o.column_change(s, *a)}, "column_change must give"),
    (
        NORMAL,
        LinkedRows,
        {"linked_sweep": lambda o, s, *a: (*o.linked_sweep(s, *a)[:1], a[4], {})},
        "linked_sweep must leave",
    ),
    (NORMAL, ColumnMoves, {"propose_rebirth": spoiling("propose_rebirth", 2)}, "Proposals must leave"),
    (NORMAL, ColumnMoves, {"likeness": lambda o, s, loc: o.likeness(s, loc) - 1}, "likeness must be symmetric"),
    (NORMAL, BitEntropy, {"bit_entropy": lambda o, s, *a: -o.bit_entropy(s, *a) - 1}, "bit_entropy must be"),
    (
        NORMAL,
        Predictions,
        {"encode": lambda o, s, X, b, lo, r: o.encode(s, X, b, lo + 0.1, r)},
        "encode must give the posterior of the bits",
    ),
    (
        BINARY,
        Predictions,
        {"encode": lambda o, s, X, b, lo, r: o.encode(s, X, b, lo + 0.1, r)},
        "encode must give the posterior of the bits",
    ),
    (
        COUNTS,
        Predictions,
        {"encode": lambda o, s, X, b, lo, r: o.encode(s, X + (len(X) > 1), b, lo, r)},
        "encode must say of each row",
    ),
    (
        BINARY,
        Predictions,
        {"sample_rows": lambda o, s, rng, c, b, n: 1 - o.sample_rows(s, rng, c, b, n)},
        "sample_rows must draw from",
    ),
    (
        WEIGHTED,
        Predictions,
        {"sample_rows": lambda o, s, rng, c, b, n: 1.5 * o.sample_rows(s, rng, c, b, n)},
        "sample_rows must draw from",
    ),
    (
        COUNTS,
        Predictions,
        {"sample_rows": lambda o, s, rng, c, b, n: o.sample_rows(s, rng, 2 * c, b, n)},
        "sample_rows must draw from",
    ),
    (
        COUNTS,
        Predictions,
        {"codes": lambda o, s, Z, b: 2 * o.codes(s, Z, b)},
        "codes must give those of the fitted rows",
    ),
    (NORMAL, Predictions, {"means": lambda o, s, c, b: 2 * o.means(s, c, b)}, "means, counted from the origin"),
    (NORMAL, Predictions, {"features_var": lambda o, s, b: -o.features_var(s, b)}, "features_var must be"),
    (
        WEIGHTED,
        Predictions,
        {"sample_codes": lambda o, s, rng, e, w: o.sample_codes(s, rng, e, w)[:, :1]},
        "sample_codes must give",
    ),
    (
        NORMAL,
        CellMoments,
        {"cell_moments": lambda o, s, m, v, b: o.cell_moments(s, m, v + 0.1, b)},
        "cell_moments must be",
    ),
    (
        NORMAL,
        MeanFieldRows,
        {"features_bound": lambda o, s, q, t: o.features_bound(s, q, t) + 50},
        "features_bound must be a bound",
    ),
    (
        NORMAL,
        MeanFieldRows,
        {"update_features": lambda o, s, q, t, **m: o.update_features(s, q, scale(t, 0.3), **m)},
        "update_features must not lower the bound",
    ),
    (
        NORMAL,
        MeanFieldRows,
        {"update_rows": lambda o, s, d, q, loc, lo, n: o.update_rows(s, d, q, loc, -9 * lo if n else lo, n)},
        "update_rows must not lower the bound",
    ),
    (NORMAL, MeanFieldRows, {"update_rows": wrong_sums}, "row_data must have a length, and parts"),
    (
        WEIGHTED,
        MeanFieldRows,
        {"keep_columns": lambda o, s, part, c: o.keep_columns(s, part, c[::-1] if hasattr(part, "family") else c)},
        "keep_columns must put",
    ),
    (
        COUNTS,
        MeanFieldRows,
        {"unexplained": lambda o, s, d, q, loc: o.unexplained(s, d, q, loc) + 1},
        "unexplained must have",
    ),
    (
        NORMAL,
        MeanFieldRows,
        {"draw_rows": lambda o, s, rng, loc: (o.draw_rows(s, rng, loc)[0] + 1, loc.z_prob)},
        "draw_rows and expected_codes",
    ),
    (COUNTS, MeanFieldRows, {"check": lambda o, s, q, loc: o.check(s, q, loc._replace(w_on=-loc.w_on))}, "check must"),
    (WEIGHTED, ScaledFeatures, {"signs": lambda o, s, q, p: 2 * o.signs(s, q, p)}, "signs must be -1 or 1"),
    (SPARSE, ScaledFeatures, {"signs": lambda o, s, q, p: 2 * o.signs(s, q, p)}, "signs must be -1 or 1"),
    (
        SPARSE,
        ScaledFeatures,
        {"turned": lambda o, s, part, f: o.turned(s, part, f**2 if hasattr(part, "family") else f)},
        "signs must be -1 or 1 for each feature, and leave",
    ),
    (SPARSE, FeatureDraws, {"draw_values": lambda o, s, rng, q, c: -o.draw_values(s, rng, q, c)}, "draw_values must"),
    (
        SPARSE,
        MeanFieldRows,
        {"update_features": lambda o, s, q, sums: o.update_features(s, q, sums._replace(cross=2 * sums.cross))},
        "update_features must not lower the bound",
    ),
    (SPARSE, MeanFieldRows, {"expected_features": lambda o, s, q: q.mean[:1]}, "expected_features must have"),
    (
        NORMAL,
        GrowingSums,
        {"with_unused": lambda o, s, q, sums, n: o.with_unused(s, q, sums._replace(cross=1.5 * sums.cross), n)},
        "with_unused must add",
    ),
    (WEIGHTED, ScaledFeatures, {"stretch": lambda o, s, q, loc: -o.stretch(s, q, loc)}, "stretch must give a positive"),
    (
        NORMAL,
        PointRows,
        {"features": lambda o, s, d, Z: o.features(s, d, Z) + 1},
        "features must be those of the least error",
    ),
    (NORMAL, PointRows, {"sweep": wrong_point}, "sweep must not raise the error"),
    (NORMAL, PointRows, {"worth": lambda o, s, d, Z: 2 * o.worth(s, d, Z)}, "worth must be by how much"),
    (NORMAL, ParticleRows, {"filter_rows": heavier}, "filter_rows must take in all rows"),
    (NORMAL, ParticleRows, {"check_sound": no_check}, "check_sound must accept"),
    (NORMAL, RecursiveRows, {"filter_rows": by_batch}, "filter_rows must not depend on batches"),
    (NORMAL, RecursiveRows, {"check_known": no_check}, "check_known must accept"),
    (
        NORMAL,
        RecursiveRows,
        {"known_of": lambda o, s, X, z, *rest: o.known_of(s, X, 0.5 * z, *rest)},
        "known_of must have these features",
    ),
    (
        NORMAL,
        RecursiveRows,
        {"log_density": lambda o, s, *args: o.log_density(s, *args) + 0.1},
        "log_density must be that of noise",
    ),
    (WEIGHTED, calibration.NoiseFloor, {"usual_cells": lambda o, s, a, X: np.nan_to_num(X)}, "usual_cells must have"),
]


def named(mutant: Any) -> str:
    model, capability, methods, _ = mutant
    return f"{type(model).__name__}-{capability.__name__}-{'-'.join(methods)}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=named)
def test_a_broken_engine_is_named(mutant: Any, rng: np.random.Generator) -> None:
    model, capability, methods, words = mutant
    with pytest.raises(AssertionError, match=rf"\A({words})"):
        CONTRACTS[capability](example(broken(model, capability, **methods), model, rng))


def test_every_capability_has_a_contract_and_a_mutant() -> None:
    modules = (calibration, chains, mean_field, particles, point, predictions, recursive)
    known = {
        value
        for module in modules
        for value in vars(module).values()
        if getattr(value, "_is_protocol", False) and value.__module__ == module.__name__
    }
    assert known == set(CONTRACTS)
    assert {capability for _, capability, _, _ in MUTANTS} == known
