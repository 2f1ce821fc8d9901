"""A sweep over all rows by several threads at once, each of which calls `sweep_rows` with the same arrays.

The work is cut into parts, of which a thread takes the next when it is free, in four phases: bits are copied and their
owners counted; rows of the first half are drawn; those of the second; statistics are summed. A phase begins when all
parts of the one before are done. Who does what changes no bit of the result.
"""

import numpy as np

from thali.kernels._jit import inlined, jit
from thali.kernels.atomics import fetch_add, wait_until
from thali.kernels.bits.parallel_rows import BLOCK, block_room, sum_chunk, update_block
from thali.kernels.row_streams import start_stream, uniform

CHUNK = 1024  # rows whose statistics are summed together
N_PHASES = 4
PHASE, N_COLUMNS, N_BORN, N_KEPT, TAKEN, DONE = 0, 1, 2, 3, 4, 4 + N_PHASES  # places in `shared`
N_SHARED = DONE + N_PHASES
FULL, FAILED = 100, 200  # shared[PHASE], at least, if there was no room for new columns; if a thread failed


@inlined
def _has_work(shared, phase, n_parts):
    """Whether a part of this phase is left to take; waits until the phase has begun."""
    wait_until(shared, PHASE, phase)
    return fetch_add(shared, PHASE, 0) < FULL and fetch_add(shared, TAKEN + phase, 0) < n_parts


@inlined
def _take_part(shared, phase):
    """The number of a part of this phase that nobody else does; beyond the last if all are taken."""
    return fetch_add(shared, TAKEN + phase, 1)


@inlined
def _ends_phase(shared, phase, n_parts):
    """Say that a part is done; whether all are."""
    return fetch_add(shared, DONE + phase, 1) == n_parts - 1


def _row_of_half(key, pair, half):
    """The row of a pair of neighbours that belongs to half 0 or 1: a coin decides. The last pair may lack a row."""
    return 2 * pair + int((start_stream(key, pair) >> np.uint64(63)) ^ np.uint64(half))


def _column_roles(outside, inside, is_infinite):
    """(free, fixed, own) columns in the update of a half, from the numbers of owners in the other half and in this one.

    Free: each row has them or not, as its data say; of a finite prior all are. Fixed: all owners, two or more, are of
    this half. Own: the one owner is of this half.
    """
    # eq: own.column-roles
    alone = (outside == 0) & is_infinite
    return np.flatnonzero(~alone), np.flatnonzero(alone & (inside > 1)), np.flatnonzero(alone & (inside == 1))


def _shuffle(columns, key, number):
    """Put the columns into a random order, that of stream `number`."""
    streams = np.full(1, start_stream(key, number), np.uint64)
    for i in range(columns.size):
        j = i + int(uniform(streams, 0) * (columns.size - i))
        columns[i], columns[j] = columns[j], columns[i]


@jit
def _add_parts(part_owners, n_columns, owners):
    """Owners of the first n_columns columns in all parts."""
    owners[:n_columns] = 0
    for part in range(part_owners.shape[0]):
        for k in range(n_columns):
            owners[k] += part_owners[part, k]


@jit
def _copy_bits(start, counts, key, shared, Z, part_owners, owners):
    """Phase 0: Z from `start`, and the owners of columns in both halves."""
    n_rows, K = start.shape
    n_parts = part_owners.shape[0]
    if not _has_work(shared, 0, n_parts):
        return
    part = _take_part(shared, 0)
    while part < n_parts:
        for n in range(2 * BLOCK * part, min(2 * BLOCK * (part + 1), n_rows)):
            for k in range(K):
                Z[n, k] = start[n, k]
            for k in range(K, Z.shape[1]):
                Z[n, k] = 0
        part_owners[part, :K] = 0
        for pair in range(BLOCK * part, BLOCK * (part + 1)):
            n = row_of_half(key, pair, 0)
            if n < n_rows:
                for k in range(K):
                    part_owners[part, k] += start[n, k]
        if _ends_phase(shared, 0, n_parts):
            _add_parts(part_owners, K, owners[0])
            for k in range(K):
                owners[1, k] = counts[k] - owners[0, k]
            fetch_add(shared, PHASE, 1)
        part = _take_part(shared, 0)


@jit
def _add_columns(half, shared, Z, A, owners, born, born_rows):
    """After the update of a half: columns that were born become columns of Z, in the order of their rows."""
    K, n_born = shared[N_COLUMNS], shared[N_BORN]
    order = np.argsort(born_rows[:n_born], kind="mergesort")
    for i in range(n_born):
        for d in range(A.shape[1]):
            A[K + i, d] = born[order[i], d]
        Z[born_rows[order[i]], K + i] = 1
        owners[half, K + i] = 1
        owners[1 - half, K + i] = 0
    shared[N_COLUMNS] = K + n_born
    shared[N_BORN] = 0


@jit
def _draw_half(
    half, X, offset, scale, missing_start, missing_dim, filled, A, odds, new_rate, noise_var, feature_var, keys, shared,
    Z, part_owners, owners, born, born_rows,
):  # fmt: skip
    """Phases 1 and 2: draw the rows of half 0 or 1."""
    n_rows, n_dims = X.shape
    phase, n_parts = 1 + half, part_owners.shape[0]
    if not _has_work(shared, phase, n_parts):
        return
    K, room = shared[N_COLUMNS], A.shape[0]
    free, fixed, own = column_roles(owners[1 - half, :K], owners[half, :K], new_rate > 0.0)
    shuffle(free, keys[0], n_rows + half)
    columns = np.concatenate((free, fixed))
    half_A = A[columns]
    features = half_A.T.copy()
    gram = np.dot(half_A, features)
    half_odds = odds[free]
    unit = 1.0 / scale
    work = block_room(columns.size, n_dims)
    bits = work[1]
    rows = np.empty(BLOCK, np.int64)
    n_new = np.empty(BLOCK, np.int64)
    part_born = np.empty((8, n_dims))
    part = _take_part(shared, phase)
    while part < n_parts:
        width = 0
        for pair in range(BLOCK * part, BLOCK * (part + 1)):
            n = row_of_half(keys[1], pair, half)
            if n < n_rows:
                rows[width] = n
                width += 1
        part_born, n_born = update_block(
            X, offset, scale, unit, missing_start, missing_dim, filled, Z, rows[:width], columns, free.size, own,
            half_A, features, gram, half_odds, new_rate, noise_var, feature_var, keys[0], room - K, work, n_new,
            part_born,
        )  # fmt: skip
        part_owners[part, :K] = 0
        for k in range(columns.size):
            total = 0.0
            for r in range(width):
                total += bits[k, r]
            part_owners[part, columns[k]] = int(total)
        if n_born > 0:
            place = fetch_add(shared, N_BORN, n_born)
            if K + place + n_born <= room:
                j = place
                for r in range(width):
                    for _ in range(n_new[r]):
                        for d in range(n_dims):
                            born[j, d] = part_born[j - place, d]
                        born_rows[j] = rows[r]
                        j += 1
        if _ends_phase(shared, phase, n_parts):
            if K + shared[N_BORN] > room:
                fetch_add(shared, PHASE, FULL - phase)
            else:
                _add_parts(part_owners, K, owners[half])
                _add_columns(half, shared, Z, A, owners, born, born_rows)
                fetch_add(shared, PHASE, 1)
        part = _take_part(shared, phase)


@jit
def _sum_rows(X, missing_start, missing_dim, filled, is_infinite, shared, Z, owners, kept, grams, crosses):
    """Phase 3: statistics of the columns that have an owner, or of all if they are finitely many."""
    n_parts = grams.shape[0]
    if not _has_work(shared, 3, n_parts):
        return
    K = shared[N_COLUMNS]
    columns = np.flatnonzero((owners[0, :K] + owners[1, :K] > 0) | (not is_infinite))
    J = columns.size
    part = _take_part(shared, 3)
    while part < n_parts:
        first, last = part * CHUNK, min((part + 1) * CHUNK, X.shape[0])
        sum_chunk(
            X, missing_start, missing_dim, filled, Z, columns, first, last, kept, grams[part, :J, :J],
            crosses[part, :J],
        )  # fmt: skip
        if _ends_phase(shared, 3, n_parts):
            shared[N_KEPT] = J
            fetch_add(shared, PHASE, 1)
        part = _take_part(shared, 3)


def _sweep_rows(
    X, offset, scale, missing_start, missing_dim, filled, start, counts, A, odds, new_rate, noise_var, feature_var,
    keys, shared, Z, part_owners, owners, born, born_rows, kept, grams, crosses, is_last,
):  # fmt: skip
    """Draw all rows, beginning with the bits `start`, of whose columns `counts` rows each are owners.

    A (room, D) are features and odds (room) log-odds of weights, those of columns not there yet as well. keys: of the
    streams of rows, and of the coins. Work arrays: shared (N_SHARED), zero but for N_COLUMNS; Z (N, room); part_owners
    (N / (2 BLOCK), room); owners (2, room); born (room, D); born_rows (room). Results: filled; kept, flat (N, columns);
    grams (N / CHUNK, room, room) and crosses (N / CHUNK, room, D), to be added up: all for shared[N_KEPT] columns. If
    shared[PHASE] is FULL, there is no room for shared[N_BORN] new columns. Returns when there is nothing left to take;
    to the thread that `is_last`, when all is done.
    """
    _copy_bits(start, counts, keys[1], shared, Z, part_owners, owners)
    for half in range(2):
        _draw_half(
            half, X, offset, scale, missing_start, missing_dim, filled, A, odds, new_rate, noise_var, feature_var, keys,
            shared, Z, part_owners, owners, born, born_rows,
        )  # fmt: skip
    _sum_rows(X, missing_start, missing_dim, filled, new_rate > 0.0, shared, Z, owners, kept, grams, crosses)
    if is_last:
        wait_until(shared, PHASE, N_PHASES)


row_of_half = inlined(_row_of_half)
column_roles = jit(_column_roles)
shuffle = jit(_shuffle)
sweep_rows = jit(_sweep_rows)
