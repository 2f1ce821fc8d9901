"""Faces: uncollapsed Gibbs against variational inference (Doshi-Velez et al. 2009, Table 1).

    python benchmarks/papers/doshi_velez_faces.py [--data FOLDER] [--quick] [--restarts 3] [--sizes 5,10,25]
                                                  [--picture PATH] [--json PATH] [--no-speed]

721 faces of 14 people (`faces_yaleb_32x32.npz`, picked and shuffled with a fixed seed), 32 x 32 grey values, the mean
of each dim taken off. In the last half of the rows a third of the dims is hidden. All methods of the first table know
the same variances, set from that of the data: noise v / 16, features v / 4, v being the mean variance of a dim; those
of the second table learn them. The samplers start at a random Z and make 200 sweeps, of which the second half counts;
the variational methods start at random bits, without moves, and keep the best bound. A time is that of one restart.
The report had another selection of faces and does not give its units: compare the order, not the level. A last line is
the time of a whole fit of all faces. The folder may also be given by THALI_DATA. See benchmarks/README.md.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers.heldout_cells import (
    Entry,
    HiddenCells,
    column_means,
    factor_analysis,
    hide_a_third,
    log_mean_rows,
    measured,
    nmf,
)
from benchmarks.quality.record import Record
from benchmarks.tables import against, machine, show_table
from thali import BetaBernoulli, BetaProcess, Gibbs, LatentFeatures, LinearGaussian, MeanField, StickBreakingIBP
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.core.protocols.engines.predictions import Predictions
from thali.running.shapes.chains import iterate

FILE, N_PEOPLE, N_FACES, SIDE = "faces_yaleb_32x32.npz", 14, 721, 32
NOISE_SHARE, FEATURE_SHARE = 1 / 16, 1 / 4  # of the mean variance of a dim
N_SWEEPS, EVERY = 200, 5  # of a sampler, and between two states that are scored
RANKS = (10, 25, 50, 100)  # of the ordinary models
WHOLE_FIT = 60.0  # seconds that a fit of all faces may take
KEY = ("method", "size", "restart")
PRINTED = {  # seconds and 1e6 nats in the report's Table 1
    ("finite Gibbs", 5): (464.19, -2.250), ("finite Gibbs", 10): (940.47, -2.246),
    ("finite Gibbs", 25): (2973.7, -2.247),
    ("finite variational", 5): (163.24, -1.066), ("finite variational", 10): (767.1, -0.908),
    ("finite variational", 25): (10072, -0.746),
    ("infinite variational", 5): (176.62, -1.051), ("infinite variational", 10): (632.53, -0.914),
    ("infinite variational", 25): (19061, -0.750),
}  # fmt: skip
Array = np.ndarray


def load(path: Path) -> tuple[Array, Array]:
    with np.load(path, allow_pickle=False) as file:
        return file["X"].astype(float), file["subject"]


def some_faces(X: Array, subject: Array, n_faces: int) -> HiddenCells:
    chosen = np.random.default_rng(5).permutation(np.flatnonzero(subject <= N_PEOPLE))[:n_faces]
    return hide_a_third(X[chosen])


def centred(cells: HiddenCells) -> tuple[HiddenCells, float]:
    """Without the mean of each dim, and the mean variance of a dim: from what is not hidden."""
    seen = cells.seen
    return cells._replace(X=cells.X - np.nanmean(seen, axis=0)), float(np.nanvar(seen, axis=0).mean())


# --- methods: (scores of the test rows, K) ---------------------------------------------------------


def gibbs(prior: Any, observation: Any, cells: HiddenCells, seed: int) -> tuple[Array, float]:
    """Uncollapsed Gibbs from a random Z: a mixture of the states of the second half. The features are integrated out
    of a state's prediction."""
    X, model, inference = cells.seen, Model(prior, observation.adapt(cells.seen)), Gibbs(moves=0.0)
    rng = np.random.default_rng([seed, 11])
    data = model.observation.engine(ChainRows).prepare(X)
    first = Model(prior.draw(rng), model.observation.draw(rng, X.shape[1]))
    Z = first.prior.simulate(rng, len(X))
    begin = inference.at(first.prior, first.observation, data, Z, np.where(cells.hidden, 0.0, X))
    late, used = [], []
    for sweep, (state, info) in enumerate(iterate(rng, inference, model, data, len(X), state=begin), start=1):
        if sweep > N_SWEEPS // 2 and sweep % EVERY == 0:
            z = state.local.z[:, state.local.z.any(axis=0)].astype(float)
            log_cells = state.observation.engine(Predictions).log_cells(
                cells.X, z, state.observation.engine(ChainRows).codebook(data, state.local)
            )
            late.append(np.sum(log_cells, axis=1, where=cells.hidden)[cells.test_rows])
            used.append(info.n_features)
        if sweep == N_SWEEPS:
            return log_mean_rows(late), float(np.mean(used))
    raise AssertionError


def mean_field(
    prior: Any, observation: Any, cells: HiddenCells, seed: int, **settings: Any
) -> tuple[tuple[Array, int], LatentFeatures]:
    """One restart from random bits unless the settings say otherwise."""
    plain = {"n_restarts": 1, "start": "random", "moves": False, "annealing": 4.0}
    model = LatentFeatures(observation, prior, MeanField(**plain | settings), random_state=seed).fit(cells.seen)
    score = model.heldout_score(cells.X, cells.hidden) * cells.n_hidden
    return (np.array([score]), model.n_components_), model


def methods(size: int, *, known: bool, last: bool) -> dict[str, Callable[[Any, HiddenCells, int], tuple[Array, Any]]]:
    mass = size / 4  # as for the report's synthetic data
    finite, sticks = BetaBernoulli(mass=mass, n_features=size), StickBreakingIBP(mass=mass, truncation=size)
    rounds = BetaProcess(mass=mass, truncation=size)

    def variational(prior: Any, **settings: Any) -> Callable[[Any, HiddenCells, int], tuple[Array, Any]]:
        return lambda observation, cells, seed: mean_field(prior, observation, cells, seed, **settings)[0]

    found = {
        "finite Gibbs": lambda observation, cells, seed: gibbs(finite, observation, cells, seed),
        "finite variational": variational(finite),
        "infinite variational": variational(sticks),
        "beta process": variational(rounds),
    }
    if known:
        found["finite variational, q(A) independent"] = variational(finite, features="independent")
    if known and last:
        found["finite variational, spectral start, moves"] = variational(finite, start="spectral", moves=True)
    return found


# --- what it says ---------------------------------------------------------------------------------


def ordinary(cells: HiddenCells, *, quick: bool) -> dict[str, Callable[[], tuple[Array, int]]]:
    ranks = RANKS[:2] if quick else RANKS
    return {
        "column means": lambda: column_means(cells),
        "FA, K validated": lambda: factor_analysis(cells, per_dim=True, grid=ranks),
        "PCA, K validated": lambda: factor_analysis(cells, per_dim=False, grid=ranks),
        "NMF, K validated": lambda: nmf(cells, grid=ranks),
    }


def show(title: str, entries: list[Entry]) -> None:
    cells = []
    for key in dict.fromkeys((e["method"], e["size"]) for e in entries):
        runs = [e for e in entries if (e["method"], e["size"]) == key]
        then = PRINTED.get(key)
        per_cell = [e["per_cell"] for e in runs]
        spread = f" +- {np.std(per_cell):.3f}" if len(runs) > 1 else ""
        cells.append([
            f"{key[0]}" + ("" if key[1] is None else f", {key[1]}"), f"{np.mean([e['k'] for e in runs]):.0f}",
            f"{np.mean([e['seconds'] for e in runs]):.1f}", f"{np.mean([e['tll'] for e in runs]) / 1e6:.4f}",
            f"{np.mean(per_cell):.3f}{spread}", *(("", "") if then is None else (f"{then[0]:.0f}", f"{then[1]:.3f}")),
        ])  # fmt: skip
    show_table(title, ["method", "K used", "s", "TLL / 1e6", "per hidden cell", "printed s", "printed TLL"], cells)


def speed(X: Array, size: int, *, moves: bool) -> Entry:
    """A fit of all faces, complete, with learned variances: 5 restarts to a share of 1e-6, given up in time."""
    inference = MeanField(n_restarts=5, tol=1e-6, moves=moves)
    model = LatentFeatures(
        LinearGaussian(), StickBreakingIBP(truncation=size), inference, random_state=0, max_time=5 * WHOLE_FIT
    )
    start = time.perf_counter()
    model.fit(X - X.mean(axis=0))
    seconds = round(time.perf_counter() - start, 2)
    passes, settled = int(np.sum(model.history_["n_passes"])), int(np.sum(model.history_["settled"]))
    return {"moves": moves, "seconds": seconds, "passes": passes, "settled": settled, "k": model.n_components_}


def draw(cells: HiddenCells, variance: float, path: Path) -> None:
    """The features of the largest infinite fit as pictures."""
    from thali.report.figures import feature_images, save

    observation = LinearGaussian(noise_var=NOISE_SHARE * variance, feature_var=FEATURE_SHARE * variance)
    prior = StickBreakingIBP(mass=25 / 4, truncation=25)
    _, model = mean_field(prior, observation, cells, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    shares = model.presence(cells.seen).mean(axis=0)
    save(feature_images(model.components_, (SIDE, SIDE), shares), path)
    print(f"drawn: {path}", flush=True)


# --- the run --------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the file is (else THALI_DATA)")
    parser.add_argument("--quick", action="store_true", help="300 faces, one restart, small ranks, no whole fit")
    parser.add_argument("--restarts", type=int, default=3, metavar="N")
    parser.add_argument("--sizes", type=lambda t: [int(k) for k in t.split(",")], default=[5, 10, 25], metavar="A,B")
    parser.add_argument("--no-speed", action="store_true", help="without the fit of all faces")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw the features there (png, svg or pdf)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    folder = options.data or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)
    if folder is None or not (folder / FILE).exists():
        print(f"left out: give the folder of {FILE} by --data or THALI_DATA")
        return 0

    X, subject = load(folder / FILE)
    n_faces, restarts = (300, 1) if options.quick else (N_FACES, options.restarts)
    raw = some_faces(X, subject, n_faces)
    cells, variance = centred(raw)
    record = Record(options.json, {"faces": n_faces}, ("part", *KEY))
    record.about = {"machine": machine()}
    known = LinearGaussian(noise_var=NOISE_SHARE * variance, feature_var=FEATURE_SHARE * variance)
    parts = [("known", known, options.sizes), ("learned", LinearGaussian(), options.sizes[-1:])]
    with threadpool_limits(1, "blas"):
        compile_methods()
        for restart in range(restarts):
            for part, observation, sizes in parts:
                for size in sizes:
                    for name, method in methods(size, known=part == "known", last=size == sizes[-1]).items():
                        if not record.has(part, name, size, restart):
                            line = partial(method, observation, cells, restart)
                            entry = measured(name, line, cells.n_hidden)
                            record.add({"part": part, "size": size, "restart": restart, **entry})
        for name, line in ordinary(raw, quick=options.quick).items():
            if not record.has("ordinary", name, None, 0):
                entry = measured(name, line, cells.n_hidden)
                record.add({"part": "ordinary", "size": None, "restart": 0, **entry})
    mine = {part: [e for e in record.entries if e["part"] == part] for part in ("ordinary", "known", "learned")}
    about = f"{n_faces} faces, {cells.n_hidden} hidden cells"
    show(f"Faces, the same variances for all ({about}; Table 1)", mine["ordinary"] + mine["known"])
    show(f"Faces, variances learned ({about})", mine["learned"])
    if not options.quick and not options.no_speed:
        found = [speed(X, options.sizes[-1], moves=moves) for moves in (False, True)]
        record.write(whole_fit=found)
        for one in found:
            seconds = against(one["seconds"], WHOLE_FIT, at_most=True)
            words = f"{one['passes']} passes, {one['settled']} of 5 restarts settled, K {one['k']}"
            how = "with moves" if one["moves"] else "without moves"
            print(f"\n  all {len(X)} faces, truncation {options.sizes[-1]}, {how}, to 1e-6: {seconds} s ({words})")
    if options.picture is not None:
        draw(cells, variance, options.picture)
    return 0


def compile_methods() -> None:
    """On tiny data, so that no time includes it."""
    rng = np.random.default_rng(0)
    tiny = hide_a_third(rng.integers(0, 2, (40, 2)) @ (3 * rng.standard_normal((2, 8))) + rng.standard_normal((40, 8)))
    for method in methods(3, known=True, last=True).values():
        for observation in (LinearGaussian(noise_var=0.5, feature_var=1.0), LinearGaussian()):
            method(observation, tiny, 0)


if __name__ == "__main__":
    sys.exit(main())
