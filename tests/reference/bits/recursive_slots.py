"""Twin of thali.kernels.bits.recursive_slots."""

import numpy as np
from scipy.special import expit

from reference.bits.row_births import row_births

LEAST, MOST, NONE, CANDIDATES, COMONOTONE = 1e-300, 1 - 1e-12, 1e-3, 4, 2


def as_chance(odds):
    return expit(odds)


def as_log_odds(q):
    q = np.clip(q, LEAST, MOST)
    return np.log(q) - np.log1p(-q)


def drop_slot(k, K, slots):
    rest = np.delete(np.arange(K), k)
    for name in slots._fields:
        values = getattr(slots, name)
        kept = values[np.ix_(rest, rest)] if name == "together" else values[rest]
        if name != "number":
            values[:K] = 0
        if name == "together":
            values[: K - 1, : K - 1] = kept
        else:
            values[: K - 1] = kept


def lose_weight(slots, totals, K, keep, ridge):
    for total in (totals.weight, totals.error, totals.n_cells):
        total *= keep
    fewer = keep * slots.rows[:K]
    slots.mean[:K] *= keep * (ridge + slots.rows[:K]) / (ridge + fewer)
    slots.rows[:K] = fewer
    for values in (slots.counts, slots.exists, slots.age):
        values[:K] *= keep
    slots.together[:K, :K] *= keep


def row_odds(slots, K, before, law, q, log_odds, births, below, order, tails):
    n = K + CANDIDATES
    births = np.zeros(n)
    row_births(law.births, slots.exists, K, CANDIDATES, law.mass * law.concentration / before, births, 0, 0, 0)
    q[:n] = np.clip(births + np.append(slots.counts[:K], np.zeros(CANDIDATES)) / before, 0, 1)
    log_odds[:n] = as_log_odds(q[:n])


def open_slots(slots, K, n_all):
    for values in (slots.mean, slots.rows, slots.counts, slots.exists, slots.age):
        values[K:n_all] = 0
    slots.number[K:n_all], slots.told[K:n_all] = -1, False
    slots.together[K:n_all, :n_all] = slots.together[:n_all, K:n_all] = 0


def existence(law, exists, count, p, q, before):
    if law.births != COMONOTONE:
        return 1 - (1 - exists) * (1 - p)
    rest = np.where(q < 1, (exists - count / before) / np.where(q < 1, 1 - q, 1.0), 1.0)
    return np.clip(np.maximum(p + (1 - p) * rest, (count + p) / (before + 1)), 0, 1)


def keep_record(row, K, n_all, b, log_odds, slots, totals, record):
    n = K + CANDIDATES
    record.n_known[row], record.log_odds[row, :n] = K, log_odds[:n]
    record.bits[row, :n] = np.append(b[:n_all], np.zeros(n - n_all))
    new = b[K:n_all] >= NONE
    record.number[row, :n] = np.append(slots.number[:K], np.full(CANDIDATES, -1))
    record.number[row, K:n_all][new] = int(totals.n_born[0]) + np.arange(new.sum())


def settle_row(b, q, K, n_all, before, slots, totals, law, fade, notes, n_notes):
    n, b, q = n_all, b[:n_all], q[:n_all]
    slots.exists[:n] = existence(law, slots.exists[:n], slots.counts[:n], b, q, before)
    slots.counts[:n] += b
    slots.age[:n] += 1
    slots.together[:n, :n] += np.outer(b, b) - np.diag(b * b - b)
    for k in [k for k in range(n - 1, K - 1, -1) if b[k] < NONE]:
        drop_slot(k, n, slots)
        n -= 1
    now = totals.n_rows[0]
    for k in range(K, n):
        slots.number[k] = totals.n_born[0]
        totals.n_born[0] += 1
    n, n_notes = fade_out(n, slots, law, fade, now, notes, n_notes)
    totals.n_rows[0] += 1
    totals.weight[0] += 1
    return n, n_notes


def fade_out(K, slots, law, fade, now, notes, n_notes):
    for k in range(K):
        if slots.exists[k] >= 0.5 and not slots.told[k]:
            slots.told[k] = True
            notes[n_notes] = now, 0, slots.number[k], slots.exists[k]
            n_notes += 1
    for k in range(K - 1, -1, -1):
        part = slots.counts[k] / (law.concentration + slots.age[k])
        if part < fade or slots.exists[k] < fade:
            if slots.told[k]:
                notes[n_notes] = now, 1, slots.number[k], part
                n_notes += 1
            drop_slot(k, K, slots)
            K -= 1
    return K, n_notes
