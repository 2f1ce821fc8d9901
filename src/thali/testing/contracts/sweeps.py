"""The contracts of sweeps: they change nothing that they are given, and leave the model's own distribution as it is.

The second is tried with independent bits, which need no prior: bits, codes and X are drawn from the model, one sweep
follows, and what bits and data say of each other must be the same on average as before.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from thali.core.odds import RowOdds
from thali.core.protocols.engines.chains import (
    AuxiliaryRows,
    ChainRows,
    CollapsedRows,
    ConditionalRows,
    GroupedRows,
    ImportanceRows,
    ParallelRows,
    ProposedRows,
    SliceRows,
)
from thali.testing.contracts.example import BITS, Example
from thali.testing.contracts.telling import contract, same, unchanged
from thali.testing.zscores import z_limit, z_scores

Array = np.ndarray
Sweep = Callable[[Any, np.random.Generator, Any, Any, RowOdds], Any]  # (observation, rng, data, local, odds) -> local

_CHANCE = 0.4  # of a bit
_FEWEST = 200  # replicates
_CANDIDATES = 3
_PROPOSAL = (2.0, 0.2)


def check_collapsed_rows(example: Example) -> None:
    for group in (1, 2):

        def sweep(model: Any, rng: Any, data: Any, local: Any, odds: RowOdds, group: int = group) -> Any:
            return model.engine(CollapsedRows).sweep(rng, data, local, odds, group)[0]

        _check_sweep(example, f"CollapsedRows.sweep with group={group}", sweep)


def check_conditional_rows(example: Example) -> None:
    _check_sweep(
        example,
        "conditional_sweep",
        lambda model, rng, data, local, odds: model.engine(ConditionalRows).conditional_sweep(rng, data, local, odds),
    )


def check_proposed_rows(example: Example) -> None:
    _check_sweep(
        example,
        "proposed_sweep",
        lambda model, rng, data, local, odds: model.engine(ProposedRows).proposed_sweep(
            rng, data, local, odds, *_PROPOSAL
        ),
    )


def check_importance_rows(example: Example) -> None:
    _check_sweep(
        example,
        "importance_sweep",
        lambda model, rng, data, local, odds: model.engine(ImportanceRows).importance_sweep(
            rng, data, local, odds, _CANDIDATES
        ),
    )


def check_parallel_rows(example: Example) -> None:
    def sweep(model: Any, rng: np.random.Generator, data: Any, local: Any, odds: RowOdds, n_threads: int = 1) -> Any:
        rate = float(odds.new_rate)
        engine = model.engine(ParallelRows)
        return engine.parallel_sweep(rng, data, local, lambda counts: np.full(len(counts), _CHANCE), rate, n_threads)

    _check_sweep(example, "parallel_sweep", sweep)
    with contract("parallel_sweep must give the same bits on any number of threads."):
        data, local = example.placed()
        once, again = copy.deepcopy(example.rng), copy.deepcopy(example.rng)
        one = sweep(example.observation, once, data, local, _infinite(), 1)
        assert same(one, sweep(example.observation, again, data, local, _infinite(), 2)), "They differ."


def _independent(n_rows: int) -> RowOdds:
    return RowOdds(np.full(n_rows, math.log(_CHANCE / (1.0 - _CHANCE))), 0.0)


def _infinite() -> RowOdds:
    """Those of an Indian buffet with a dish for every two customers."""
    n = len(BITS)
    with np.errstate(divide="ignore"):
        return RowOdds(np.log(np.arange(n)) - np.log(n - np.arange(n)), 2.0 / n)


def _check_sweep(example: Example, name: str, sweep: Sweep) -> None:
    rows, model = example.observation.engine(ChainRows), example.observation
    for odds, X in ((_independent(len(BITS)), example.holes), (_infinite(), example.X)):
        with contract(f"{name} must leave its arguments as they were and give the same for the same stream."):
            data, local = example.placed(X)
            again = copy.deepcopy(example.rng)
            with unchanged(X=X, local=local):
                new = sweep(model, example.rng, data, local, odds)
            data, local = example.placed(X)
            assert same(new, sweep(model, again, data, local, odds)), "The same stream gave another result."
        with contract(f"{name} must give row variables that check accepts."):
            _check_sound(rows, data, new)
            if odds.infinite:
                assert new.z.any(axis=0).all(), "A column of an infinite prior is empty."
            else:
                assert new.z.shape == BITS.shape, f"The finite prior's columns became {new.z.shape[1]}."
    _check_invariance(example, name, sweep)


def _check_sound(rows: Any, data: Any, local: Any) -> None:
    assert local.z.dtype == np.uint8, f"z has dtype {local.z.dtype}."
    assert local.z.max(initial=0) <= 1, "z has other values than 0 and 1."
    rows.check(data, local)


def check_slice_rows(example: Example) -> None:
    engine, rows = example.observation.engine(SliceRows), example.observation.engine(ChainRows)
    with contract("weighted_sweep must leave its arguments as they were, and bits whose weight is below the level."):
        data, local = example.placed(example.holes)
        used, unused = np.array([0.5, 0.4]), np.array([0.3, 0.2])
        for level, fresh in ((0.0, unused), (0.1, unused), (0.6, unused[:0])):
            again = copy.deepcopy(example.rng)
            with unchanged(X=example.holes, local=local, used=used, unused=fresh):
                new = engine.weighted_sweep(example.rng, data, local, used, fresh, level)
            assert same(new, engine.weighted_sweep(again, data, local, used, fresh, level)), (
                "A stream gave two results."
            )
            _check_sound(rows, data, new)
            assert new.z.any(axis=0).all(), "A column that no row has was kept."
            assert level < 0.5 or np.array_equal(new.z, BITS), "Bits below the level changed."


def check_grouped_rows(example: Example) -> None:
    engine, rows = example.observation.engine(GroupedRows), example.observation.engine(ChainRows)
    kinds, sizes = np.array([0, 1, 0, 1]), np.array([0.5, 0.4, 0.3])
    chances = np.vstack([np.full(3, 1e-300), np.full(3, 1.0 - 1e-15)])
    on = np.zeros(len(kinds))
    with contract("grouped_sweep must leave its arguments as they were, and give each row the chances of its kind."):
        data, local = example.placed(example.holes)
        for _ in range(5):
            again = copy.deepcopy(example.rng)
            with unchanged(X=example.holes, local=local, chances=chances, kinds=kinds, sizes=sizes):
                new, kept = engine.grouped_sweep(example.rng, data, local, chances, kinds, sizes, 0.0)
            assert same(new, engine.grouped_sweep(again, data, local, chances, kinds, sizes, 0.0)[0]), (
                "A stream gave two results."
            )
            _check_sound(rows, data, new)
            assert kept.shape == sizes.shape, f"The mask of kept columns has shape {kept.shape}."
            assert kept.sum() == new.z.shape[1], "Other columns are kept than it says."
            assert new.z.any(axis=0).all(), "A column that no row has was kept."
            on += new.z.sum(axis=1)
        assert not on[kinds == 0].any(), "A row has what rows of its kind can hardly have."
        assert on[kinds == 1].all(), "A row lacks what rows of its kind can hardly lack."
    with contract("weighted_sweep must be grouped_sweep with one kind of row."):
        twin = copy.deepcopy(example.rng)
        weighted = example.observation.engine(SliceRows).weighted_sweep(example.rng, data, local, sizes[:2], sizes[2:])
        one, _ = engine.grouped_sweep(twin, data, local, sizes[None], np.zeros(4, np.int64), sizes, 0.0)
        assert same(weighted, one), "They differ."


def _check_invariance(example: Example, name: str, sweep: Sweep) -> None:
    model, rng = example.observation, example.rng
    rows, (n_rows, n_features) = model.engine(ChainRows), BITS.shape
    n = max(example.n_draws // 20, _FEWEST)
    before, after = [], []
    with contract(f"{name} must leave the joint distribution of bits and data as it is."):
        for _ in range(n):
            Z = (rng.random((n_rows, n_features)) < _CHANCE).astype(np.uint8)
            data, local, X = drawn_rows(model, rng, Z, example.n_dims, example.origin)
            before.append(_statistics(rows, data, local, X))
            after.append(_statistics(rows, data, sweep(model, rng, data, local, _independent(n_rows)), X))
        change = np.array(after) - np.array(before)
        z = z_scores(change, np.zeros(change.shape[1]))
        worst = int(np.argmax(np.abs(z)))
        assert abs(z[worst]) <= z_limit(len(z)), f"{_STATISTICS[worst]} changed by z = {z[worst]:.1f} in {n} sweeps."


def drawn_rows(
    model: Any, rng: np.random.Generator, Z: Array, n_dims: int, origin: Any = 0.0
) -> tuple[Any, Any, Array]:
    """(data, row variables, X) from the model given bits."""
    rows = model.engine(ChainRows)
    if model.has(AuxiliaryRows):
        X, local = model.engine(AuxiliaryRows).simulate_local(rng, Z, n_dims)
        return rows.prepare(model.check_data(X)), local, X
    codes = model.draw_codes(rng, Z)
    X = model.simulate(rng, Z, codes=codes, n_dims=n_dims)
    data = rows.prepare(model.check_data(X))
    return data, rows.place(data, codes, X - origin), X


_STATISTICS = ("the number of ones", "that of the first row", "that two rows share", "ones by size", "the log evidence")


def _statistics(rows: Any, data: Any, local: Any, X: Array) -> list[float]:
    z = local.z.astype(float)
    return [z.sum(), z[0].sum(), z[0] @ z[1], z.sum(axis=1) @ np.tanh(X.sum(axis=1)), rows.log_evidence(data, local)]
