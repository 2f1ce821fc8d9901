"""Rows per second of RecursiveIBP: against NumPy, and along a long stream, with the memory that it takes.

    .venv/bin/python benchmarks/speed/recursive.py                           # a minute
    .venv/bin/python benchmarks/speed/recursive.py --rows 10000000 --dims 20 # a long stream
    .venv/bin/python benchmarks/speed/recursive.py --found 200000            # features, variances known and learned

Times are those of the process. `numpy` is the filter below: the same passes with one variance a feature, in vectors
over dims; where it ends is compared with the kernel. `twin` is that of the tests, where each feature has a whole
covariance, which costs D^3. Targets against NumPy: 200, 150 and 40 times at 10, 100 and 784 dims.
"""

import argparse
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

import thali
from thali.kernels.bits.recursive_rows import filter_rows
from thali.kernels.bits.recursive_slots import Law, Plan, Slots, Totals
from thali.kernels.bits.row_births import ANCHORED

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from reference.bits import recursive_rows as twin

NOISE, MASS = 0.25, 1.5


def rows(rng: np.random.Generator, A: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    Z = rng.random((n, len(A))) < MASS / len(A)
    return Z @ A + np.sqrt(NOISE) * rng.standard_normal((n, A.shape[1])), Z


def known(A: np.ndarray, room: int) -> tuple[Slots, Totals]:
    """A filter that knows these features from a hundred rows."""
    K, n_dims = A.shape
    slots = Slots(
        np.zeros((room, n_dims)), np.zeros((room, 1)), np.zeros(room), np.zeros(room), np.zeros(room),
        np.zeros(room, np.int64), np.zeros((room, room)), np.zeros(room, bool),
    )  # fmt: skip
    slots.mean[:K], slots.rows[:K], slots.counts[:K] = A, 100 * MASS / K, 100 * MASS / K
    slots.exists[:K], slots.age[:K], slots.number[:K] = 1.0, 100.0, np.arange(K)
    totals = Totals(*(np.array([float(value)]) for value in (100, 100, 0, 0, 0, K)))
    return slots, totals


def filter_by_numpy(X: np.ndarray, at: int, K: int, slots: Slots, totals: Totals, law: Law, plan: Plan, _: object):
    """What the kernel does where no cell is missing, births are anchored and there may be no more features."""
    ridge, noise = law.noise / law.feature, law.noise
    n_dims = X.shape[1]
    for x in X[at:]:
        before = law.concentration + totals.weight[0]
        q = slots.counts[:K] / before
        odds = np.log(q) - np.log1p(-q)
        old, weight = slots.mean[:K], ridge + slots.rows[:K, 0]
        mean, spread, square = old.copy(), n_dims / weight, (old * old).sum(axis=1)

        def scan(order, b, r, mean, spread, square, odds=odds):
            change = 0.0
            for k in order:
                fit = (mean[k] @ r + (b[k] - 0.5) * square[k]) / noise
                p = 1.0 / (1.0 + np.exp(min(-(odds[k] + fit - 0.5 * spread[k]), 700.0)))
                step = p - b[k]
                r -= step * mean[k]
                b[k] = p
                change = max(change, abs(step))
            return change

        best = -np.inf
        for start in (q.copy(), np.zeros(K)):
            r = x - start @ mean
            for s in range(plan.n_inner):
                if scan(range(K - 1, -1, -1) if s % 2 else range(K), start, r, mean, spread, square) < plan.tol:
                    break
            error = r @ r + start @ (noise * spread) + (start * (1 - start)) @ square
            inside = np.clip(start, 1e-300, 1 - 1e-16)
            value = start @ odds - np.log1p(np.exp(odds)).sum() - 0.5 * error / noise
            value -= (inside * np.log(inside) + (1 - inside) * np.log1p(-inside)).sum()
            if value > best:
                best, b, rest = value, start, r
        for s in range(plan.n_inner):
            order = range(K - 1, -1, -1) if s % 2 else range(K)
            change = scan(order, b, rest, mean, spread, square)
            for k in order:
                rest += b[k] * mean[k]
                mean[k] = old[k] + b[k] / (weight[k] + b[k]) * (rest - old[k])
                rest -= b[k] * mean[k]
                square[k] = mean[k] @ mean[k]
                spread[k] = n_dims / (weight[k] + b[k])
            if change < plan.tol:
                break
        slots.mean[:K] = mean
        slots.rows[:K, 0] += b
        slots.counts[:K] += b
        slots.together[:K, :K] += np.outer(b, b) + np.diag(b * (1 - b))
        totals.weight[0] += 1.0
        totals.n_rows[0] += 1.0


def against_numpy() -> None:
    law = Law(MASS, 1.0, ANCHORED, NOISE, 1.0)
    plan = Plan(10, 0.0, 1.0, 0.0, 10, True, 0.0)  # ten sweeps of ten features, no more
    print("dims   kernel rows/s   numpy rows/s   ratio   target   twin rows/s   ratio   largest difference of a mean")
    for n_dims, target in ((10, 200), (100, 150), (784, 40)):
        rng = np.random.default_rng(0)
        A = rng.standard_normal((10, n_dims))
        X, _ = rows(rng, A, 4000)
        n_few = 200
        speed, means = [], []
        methods = ((filter_rows, 4000), (filter_by_numpy, n_few), (twin.filter_rows, 2 if n_dims > 100 else 20))
        for filtered, n in methods:
            filtered(X[:2], 0, 10, *known(A, 16), law, plan, np.zeros((100, 4)))
            slots, totals = known(A, 16)
            begin = time.process_time()
            filtered(X[:n], 0, 10, slots, totals, law, plan, np.zeros((100, 4)))
            speed.append(n / (time.process_time() - begin))
            slots, totals = known(A, 16)
            if filtered is not twin.filter_rows:
                filtered(X[:n_few], 0, 10, slots, totals, law, plan, np.zeros((100, 4)))
                means.append(slots.mean)
        kernel, plain, whole = speed
        print(
            f"{n_dims:4d} {kernel:15.0f} {plain:14.1f} {kernel / plain:7.0f} {target:8d} {whole:13.1f} "
            f"{kernel / whole:7.0f}   {np.abs(means[0] - means[1]).max():.1e}",
            flush=True,
        )


def resident() -> float:
    """Memory of this process now, in MB; not a number where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def along_a_stream(n_rows: int, n_dims: int, batch: int) -> None:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((8, n_dims))
    model = thali.LatentFeatures(
        thali.LinearGaussian(noise_var=NOISE, feature_var=1.0),
        thali.IBP(mass=MASS),
        thali.RecursiveIBP(),
        verbose=False,
    )
    batch = min(batch, max(n_rows // 100, 1))
    print(f"\n{n_rows} rows x {n_dims} dims by partial_fit of {batch}; us/row: of the rows since the line before")
    print("     rows      K   us/row   MB now   peak MB")
    spent, done, last = 0.0, 0, 0
    marks = [max(int(share * n_rows), 1) for share in (0.01, *(0.1 * i for i in range(1, 10)), 1.0)]
    while done < n_rows:
        X, _ = rows(rng, A, min(batch, n_rows - done))
        begin = time.process_time()
        model.partial_fit(X)
        spent += time.process_time() - begin
        done += len(X)
        if any(done - len(X) < mark <= done for mark in marks):
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            each = 1e6 * spent / (done - last)
            print(f"{done:9d} {model.n_components_:6d} {each:8.2f} {resident():8.1f} {peak:9.1f}", flush=True)
            spent, last = 0.0, done


def found(n_rows: int, n_sets: int) -> None:
    print(f"\n{n_rows} rows x 10 dims from 5 features, mass {MASS}: K, and the cosine of the worst feature")
    for seed in range(n_sets):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((5, 10))
        X, _ = rows(rng, A, n_rows)
        for words, observation, prior in (
            ("known", thali.LinearGaussian(noise_var=NOISE, feature_var=1.0), thali.IBP(mass=MASS)),
            ("learned", thali.LinearGaussian(), thali.IBP()),
        ):
            model = thali.LatentFeatures(observation, prior, thali.RecursiveIBP(), verbose=False).fit(X)
            M = model.components_
            cosine = A @ M.T / np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(M, axis=1))
            noise = model.history_["noise_var"][0, -1]
            print(
                f"set {seed} {words:8s} K {len(M)}  worst {cosine.max(axis=1).min():.3f}  noise {noise:.3f}", flush=True
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dims", type=int, default=20)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--found", type=int, default=0, help="rows of the test of what is found; 0: none")
    parser.add_argument("--sets", type=int, default=6)
    given = parser.parse_args()
    if given.found:
        found(given.found, given.sets)
    else:
        against_numpy()
        along_a_stream(given.rows, given.dims, given.batch)
