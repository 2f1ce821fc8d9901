"""What a recursive filter knows of its features, and what each row does to it, whatever the model of cells is."""

import math
from typing import NamedTuple

import numpy as np

from thali.kernels._jit import jit
from thali.kernels.bits.row_births import COMONOTONE, row_births

_LEAST, _MOST = 1e-300, 1.0 - 1e-12  # prior probabilities
NONE = 1e-3  # probability below which a new feature is none
CANDIDATES = 4  # new features of a row
THERE = 0.5  # P(it has appeared) from which a feature is told

BORN, FADED = 0, 1


class Slots(NamedTuple):
    """What is known of the features; there is room for more than are in use."""

    mean: np.ndarray  # (room, n_dims)
    rows: np.ndarray  # (room, 1 or n_dims) expected rows with the feature; of each dim once a cell was missing
    counts: np.ndarray  # (room,) expected rows with the feature, whether or not cells are missing
    exists: np.ndarray  # (room,) P(it has appeared)
    age: np.ndarray  # (room,) rows since it was born, discounted
    number: np.ndarray  # (room,) in order of birth
    together: np.ndarray  # (room, room) expected rows with both features
    told: np.ndarray  # (room,) bool: whether its birth was; until then it may be none


class Totals(NamedTuple):
    """Of all rows, discounted but for the first and the last two; arrays of one number each, changed in place."""

    n_rows: np.ndarray
    weight: np.ndarray  # of the rows: their number, discounted
    error: np.ndarray  # E[squared residual]
    n_cells: np.ndarray
    bound: np.ndarray  # sum of the rows' bounds of log p(row | rows before)
    n_born: np.ndarray


class Law(NamedTuple):
    """The prior and the variances."""

    mass: float
    concentration: float
    births: int  # of `row_births`
    noise: float
    feature: float


class Plan(NamedTuple):
    """How a row is fitted."""

    n_inner: int
    tol: float
    keep: float  # what a row leaves of the weight of those before it
    fade: float  # share of the rows below which a feature is dropped
    most: int  # features
    seeks: bool  # whether new features begin at the residual; else all begin at the prior
    ossify: float  # 1: average with the features before, by counts


class Record(NamedTuple):
    """What rows were taken for, for who takes them up once more; arrays without a row keep nothing."""

    bits: np.ndarray  # (n_rows, room) probabilities of the features, as they were numbered at the row
    log_odds: np.ndarray  # (n_rows, room) of their prior, and of new features behind them
    number: np.ndarray  # (n_rows, room) of the features; -1: none
    n_known: np.ndarray  # (n_rows,) features before the row


def _keep_record(row, K, n_all, b, log_odds, slots, totals, record):
    """What a row was taken for, before its counts are settled: its last n_all - K features are new."""
    fresh = int(totals.n_born[0])
    record.n_known[row] = K
    for k in range(K + CANDIDATES):
        record.bits[row, k] = b[k] if k < n_all else 0.0
        record.log_odds[row, k] = log_odds[k]
        record.number[row, k] = slots.number[k] if k < K else -1
        if K <= k < n_all and b[k] >= NONE:
            record.number[row, k] = fresh
            fresh += 1


def _chance(odds):
    if odds >= 0.0:
        return 1.0 / (1.0 + math.exp(-odds))
    e = math.exp(odds)
    return e / (1.0 + e)


def _log_odds(q):
    q = min(max(q, _LEAST), _MOST)
    return math.log(q) - math.log1p(-q)


def _drop_slot(k, K, slots):
    """Those behind it move up."""
    for j in range(k, K - 1):
        for d in range(slots.mean.shape[1]):
            slots.mean[j, d] = slots.mean[j + 1, d]
        for d in range(slots.rows.shape[1]):
            slots.rows[j, d] = slots.rows[j + 1, d]
        slots.counts[j] = slots.counts[j + 1]
        slots.exists[j] = slots.exists[j + 1]
        slots.age[j] = slots.age[j + 1]
        slots.number[j] = slots.number[j + 1]
        slots.told[j] = slots.told[j + 1]
    for i in range(K):
        for j in range(k, K - 1):
            slots.together[i, j] = slots.together[i, j + 1]
    for i in range(k, K - 1):
        for j in range(K):
            slots.together[i, j] = slots.together[i + 1, j]
    for j in range(K):
        slots.together[K - 1, j] = slots.together[j, K - 1] = 0.0
    slots.counts[K - 1] = slots.exists[K - 1] = slots.age[K - 1] = 0.0
    slots.told[K - 1] = False
    for d in range(slots.mean.shape[1]):
        slots.mean[K - 1, d] = 0.0
    for d in range(slots.rows.shape[1]):
        slots.rows[K - 1, d] = 0.0


def _lose_weight(slots, totals, K, keep, ridge):
    """What came before counts for less by the factor `keep`: means go towards zero, where their prior is."""
    totals.weight[0] *= keep
    totals.error[0] *= keep
    totals.n_cells[0] *= keep
    W = slots.rows.shape[1]
    for k in range(K):
        slots.counts[k] *= keep
        slots.exists[k] *= keep
        slots.age[k] *= keep
        for d in range(slots.mean.shape[1]):
            rows = slots.rows[k, d if W > 1 else 0]
            slots.mean[k, d] *= (keep * (ridge + rows)) / (ridge + keep * rows)
        for d in range(W):
            slots.rows[k, d] *= keep
        for j in range(K):
            slots.together[k, j] *= keep


def _row_odds(slots, K, before, law, q, log_odds, births, below, order, tails):
    """P(the next row has feature k) and its log-odds, for the known features and CANDIDATES new ones.

    before: concentration + rows so far. The last four are room for as many numbers.
    """
    rate = law.mass * law.concentration / before
    row_births(law.births, slots.exists, K, CANDIDATES, rate, births, below, order, tails)
    for k in range(K + CANDIDATES):
        # eq: S22.filter-prior
        q[k] = min(max(births[k] + (slots.counts[k] / before if k < K else 0.0), 0.0), 1.0)
        log_odds[k] = as_log_odds(q[k])


def _open_slots(slots, K, n_all):
    """Room for new features K .. n_all - 1, which have no number yet."""
    for k in range(K, n_all):
        for d in range(slots.mean.shape[1]):
            slots.mean[k, d] = 0.0
        for d in range(slots.rows.shape[1]):
            slots.rows[k, d] = 0.0
        for j in range(n_all):
            slots.together[k, j] = slots.together[j, k] = 0.0
        slots.counts[k] = slots.exists[k] = slots.age[k] = 0.0
        slots.number[k], slots.told[k] = -1, False


def _settle_row(b, q, K, n_all, before, slots, totals, law, fade, notes, n_notes):
    """Counts after a row with the probabilities b, the last n_all - K of them of new features; features that did not
    hold, or fade, are dropped. Returns (number of features, number of notes).
    """
    for k in range(n_all):
        p, count, exists = b[k], slots.counts[k], slots.exists[k]
        slots.counts[k], slots.exists[k] = count + p, existence(law, exists, count, p, q[k], before)
        slots.age[k] += 1.0
        for j in range(n_all):
            slots.together[k, j] += p * b[j] if j != k else p
    for k in range(n_all - 1, K - 1, -1):
        if b[k] < NONE:
            drop_slot(k, n_all, slots)
            n_all -= 1
    now = totals.n_rows[0]
    for k in range(K, n_all):
        slots.number[k] = int(totals.n_born[0])
        totals.n_born[0] += 1.0
    n_all, n_notes = fade_out(n_all, slots, law, fade, now, notes, n_notes)
    totals.n_rows[0] += 1.0
    totals.weight[0] += 1.0
    return n_all, n_notes


def _fade_out(K, slots, law, fade, now, notes, n_notes):
    """Drop the features that have too few of the rows, once the new ones that are likely are told. Returns (number of
    features, number of notes)."""
    for k in range(K):
        if slots.exists[k] >= THERE and not slots.told[k]:
            slots.told[k] = True
            notes[n_notes, 0], notes[n_notes, 1] = now, BORN
            notes[n_notes, 2], notes[n_notes, 3] = slots.number[k], slots.exists[k]
            n_notes += 1
    for k in range(K - 1, -1, -1):
        # eq: own.fading
        part = slots.counts[k] / (law.concentration + slots.age[k])
        if part < fade or slots.exists[k] < fade:
            if slots.told[k]:
                notes[n_notes, 0], notes[n_notes, 1] = now, FADED
                notes[n_notes, 2], notes[n_notes, 3] = slots.number[k], part
                n_notes += 1
            drop_slot(k, K, slots)
            K -= 1
    return K, n_notes


def _existence(law, exists, count, p, q, before):
    """P(a feature has appeared), after a row that has it with chance p; count: expected rows before that have it."""
    if law.births == COMONOTONE:
        taken = count / before
        # eq: own.existence
        rest = (exists - taken) / (1.0 - q) if q < 1.0 else 1.0
        exists = p + (1.0 - p) * rest
        return min(max(exists, (count + p) / (before + 1.0), 0.0), 1.0)
    # eq: S22.existence
    return 1.0 - (1.0 - exists) * (1.0 - p)


as_chance = jit(_chance)
as_log_odds = jit(_log_odds)
drop_slot = jit(_drop_slot)
lose_weight = jit(_lose_weight)
row_odds = jit(_row_odds)
open_slots = jit(_open_slots)
keep_record = jit(_keep_record)
fade_out = jit(_fade_out)
existence = jit(_existence)
settle_row = jit(_settle_row)
