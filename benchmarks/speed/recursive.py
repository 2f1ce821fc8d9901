"""Rows per second of RecursiveIBP: against its NumPy twin, and along a long stream, with the memory that it takes.

    .venv/bin/python benchmarks/speed/recursive.py                           # a minute
    .venv/bin/python benchmarks/speed/recursive.py --rows 10000000 --dims 20 # a long stream
    .venv/bin/python benchmarks/speed/recursive.py --found 200000            # features, variances known and learned

Times are those of the process. Targets against NumPy: 200, 150 and 40 times at 10, 100 and 784 dims.
"""

import argparse
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


def against_numpy() -> None:
    law = Law(MASS, 1.0, ANCHORED, NOISE, 1.0)
    plan = Plan(10, 0.0, 1.0, 0.0, 10, True, 0.0)  # ten sweeps of ten features, no more
    print("dims   kernel rows/s   numpy rows/s   ratio   target")
    for n_dims, target in ((10, 200), (100, 150), (784, 40)):
        rng = np.random.default_rng(0)
        A = rng.standard_normal((10, n_dims))
        X, _ = rows(rng, A, 2000)
        speed = []
        for filtered, n in ((filter_rows, 2000), (twin.filter_rows, 5 if n_dims > 100 else 20)):
            filtered(X[:2], 0, 10, *known(A, 16), law, plan, np.zeros((100, 4)))
            slots, totals = known(A, 16)
            begin = time.process_time()
            filtered(X[:n], 0, 10, slots, totals, law, plan, np.zeros((100, 4)))
            speed.append(n / (time.process_time() - begin))
        print(f"{n_dims:4d} {speed[0]:15.0f} {speed[1]:14.1f} {speed[0] / speed[1]:7.0f} {target:8d}", flush=True)


def along_a_stream(n_rows: int, n_dims: int, batch: int) -> None:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((8, n_dims))
    model = thali.LatentFeatures(
        thali.LinearGaussian(noise_var=NOISE, feature_var=1.0),
        thali.IBP(mass=MASS),
        thali.RecursiveIBP(),
        verbose=False,
    )
    print(f"\n{n_rows} rows x {n_dims} dims by partial_fit of {batch}\n     rows      K   us/row   peak MB")
    spent, done, last = 0.0, 0, 0
    marks = {max(int(share * n_rows), 1) for share in (0.01, 0.1, 0.25, 0.5, 0.75, 1.0)}
    while done < n_rows:
        X, _ = rows(rng, A, min(batch, n_rows - done))
        begin = time.process_time()
        model.partial_fit(X)
        spent += time.process_time() - begin
        done += len(X)
        if any(done - len(X) < mark <= done for mark in marks):
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            each = 1e6 * spent / (done - last)
            print(f"{done:9d} {model.n_components_:6d} {each:8.2f} {peak:9.0f}", flush=True)
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
