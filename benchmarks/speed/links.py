"""How long does a sweep over linked features take, and how does that grow with the number of rows?

    python benchmarks/speed/links.py [--quick] [--json PATH]

K about 10 features, each on for a stretch of rows. One step of `DistanceDependentGibbs` is new links of all features,
births and deaths by row, and the hyperparameters, with the decay fixed. Medians of seven steps after one that compiles,
in seconds of processor time of one core. "growth" is the power of N between a line and the one before. The target is
one second at 1000 rows of 64 dims.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.tables import against, machine, show_table
from thali import DistanceDependentGibbs, DistanceDependentIBP, ExponentialDecay, LinearGaussian, WindowDecay
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.inference.calibration.noise_floor import calibrate
from thali.numerics.blas import one_blas_thread

Entry = dict[str, Any]
N_FEATURES, N_DIMS, N_STEPS, TARGET = 10, 64, 7, 1.0
KINDS: dict[str, tuple[Any, bool, tuple[int, ...]]] = {
    "exponential": (ExponentialDecay(0.05), False, (250, 500, 1000, 2000)),
    "exponential, sequential": (ExponentialDecay(0.05), True, (250, 500, 1000, 2000)),
    "window of 10": (WindowDecay(10.0), False, (250, 500, 1000, 2000, 5000)),
    "window of 10, sequential": (WindowDecay(10.0), True, (250, 500, 1000, 2000, 5000)),
}


def stretches(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    Z = np.zeros((n_rows, N_FEATURES), dtype=np.uint8)
    for k in range(N_FEATURES):
        first = int(rng.integers(0, 3 * n_rows // 4))
        Z[first : first + n_rows // 4, k] = 1
    return Z @ rng.normal(size=(N_FEATURES, N_DIMS)) + rng.normal(size=(n_rows, N_DIMS)), Z


@one_blas_thread()
def seconds_per_step(decay: Any, sequential: bool, n_rows: int) -> Entry:
    X, Z = stretches(n_rows)
    times = np.arange(float(n_rows))
    prior = DistanceDependentIBP.from_times(times, decay, sequential=sequential)
    model = calibrate(Model(prior, LinearGaussian()), X)
    inference, rng = DistanceDependentGibbs(n_warmup=0, start=Z), np.random.default_rng(1)
    data = model.observation.engine(ChainRows).prepare(X)
    state = inference.init(rng, model, data, n_rows)
    seconds, sizes = [], []
    for step in range(N_STEPS + 1):
        begin = time.process_time()
        state, info = inference.step(rng, state, model, data)
        if step > 0:
            seconds.append(time.process_time() - begin)
            sizes.append(info.n_features)
    return {"rows": n_rows, "seconds": float(np.median(seconds)), "features": float(np.mean(sizes))}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    options = parser.parse_args(arguments)
    about = machine()
    print(f"{about['cpu']}, {about['cores']} cores, load {about['load']}")
    report: Entry = {"machine": about}
    rows = []
    for kind, (decay, sequential, sizes) in KINDS.items():
        found: list[Entry] = []
        seconds_per_step(decay, sequential, 50)  # compiles
        for n_rows in sizes[:2] if options.quick else sizes:
            found.append(seconds_per_step(decay, sequential, n_rows))
            growth = ""
            if len(found) > 1:
                a, b = found[-2:]
                growth = f"{math.log(b['seconds'] / a['seconds']) / math.log(b['rows'] / a['rows']):.2f}"
            target = TARGET if n_rows == 1000 else None
            rows.append([kind, str(n_rows), f"{found[-1]['features']:.0f}",
                         against(found[-1]["seconds"], target, at_most=True), growth])  # fmt: skip
        report[kind] = found
    show_table(f"Seconds for a step, {N_DIMS} dims", ["decay", "rows", "features", "seconds", "growth"], rows)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
