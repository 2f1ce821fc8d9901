"""Held-out prediction and the stability of K on real data, beside recorded figures for the same cells.

    python benchmarks/quality/real_data.py [--data FOLDER] [--sets A,B] [--seeds 3] [--warmup 200] [--draws 200]
                                           [--chains 4] [--choose-floor] [--pictures FOLDER] [--json PATH]

10 % of the cells are hidden. A seed is one fit of several chains. Score: log predictive density per hidden cell, the
log of a mean of densities over the draws of one chain, or over those of all chains of a fit (pooled). The folder of the
data may also be given by THALI_DATA; a set that is not there is left out with a line that says so. See
benchmarks/README.md.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.quality.chains import common_counts, lacks
from benchmarks.quality.real_sets import RECORDED, RealSet, column_means, load
from benchmarks.quality.record import Record, listed
from benchmarks.tables import machine, show_table
from thali import CollapsedGibbs, LatentFeatures, LinearGaussian, NormalOffset, PerDim

FLOORS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.03)
KEY = ("set", "floor", "seed")
Entry = dict[str, Any]


# --- one fit --------------------------------------------------------------------------------------


def fit(
    X: np.ndarray, hidden: np.ndarray, floor: float, seed: int, settings: dict[str, Any], n_chains: int = 1
) -> LatentFeatures:
    """The binary model: a learned offset, a noise level per dim above a share of the dim's variance."""
    observation = LinearGaussian(noise_var=PerDim(), offset=NormalOffset(), noise_floor=floor)
    model = LatentFeatures(observation, inference=CollapsedGibbs(**settings), n_chains=n_chains, random_state=seed)
    model.fit(np.where(hidden, np.nan, X))
    if model.interrupted_:  # half a fit is no figure
        raise KeyboardInterrupt
    return model


def predict(posterior: Any, X: np.ndarray, hidden: np.ndarray, chain: int) -> tuple[np.ndarray, np.ndarray]:
    """(log density, mean) of each hidden cell: mixtures over the draws of a chain, cell by cell.

    Given one draw, x_nd ~ N(offset_d + z_n features_d, noise_var_d (1 + z_n gram_inv z_n)), features integrated out.
    """
    rows, dims = np.nonzero(hidden)
    log_density = np.full(len(rows), -np.inf)
    mean = np.zeros(len(rows))
    n = posterior.n_draws
    for draw in range(n):
        where = chain, draw
        codebook = posterior.codebook(*where)
        observation = posterior.concrete(*where).observation
        Z = posterior.Z(*where)
        Z = Z[:, Z.any(axis=0)].astype(float)
        centre = observation.reconstruct(Z, codebook["features"])[rows, dims]
        spread = 1.0 + np.einsum("nk,nk->n", Z @ codebook["gram_inv"], Z)
        var = np.broadcast_to(observation.noise_var, X.shape[1])[dims] * spread[rows]
        one = -0.5 * np.log(2 * np.pi * var) - 0.5 * (X[rows, dims] - centre) ** 2 / var
        log_density = np.logaddexp(log_density, one)
        mean += centre / n
    return log_density - np.log(n), mean


def measure(
    data: RealSet, floor: float, seed: int, settings: dict[str, Any], n_chains: int, pictures: Path | None
) -> Entry:
    wall, cpu = time.perf_counter(), time.process_time()
    model = fit(data.X, data.hidden, floor, seed, settings, n_chains)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    posterior = model.posterior_
    of_chains = [predict(posterior, data.X, data.hidden, chain) for chain in range(n_chains)]
    log_density = np.logaddexp.reduce([one for one, _ in of_chains]) - np.log(n_chains)
    mean = np.mean([one for _, one in of_chains], axis=0)
    noise = posterior.hyper["observation.noise_var"]  # (chain, draw, dim)
    trace = model.history_["n_features"][0]
    entry = {
        "set": data.name,
        "floor": floor,
        "seed": seed,
        "seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        "lpd": float(log_density.mean()),
        "lpd_error": float(log_density.std() / np.sqrt(len(log_density))),
        "lpd_chains": [float(one.mean()) for one, _ in of_chains],
        "k_chains": [float(k) for k in posterior.draws["n_features"].mean(axis=1)],
        "lpd_of_library": model.heldout_score(data.X, data.hidden, by="cell"),  # the same by other code
        "rmse": rmse(mean, data),
        "k_raw": float(posterior.draws["n_features"].mean()),
        "k_common": float(common_counts(posterior).mean()),
        "k_reported": int(model.n_components_),
        "k_trace": [int(trace[i]) for i in np.linspace(0, len(trace) - 1, 9).astype(int)],
        "noise_sd": float(np.sqrt(noise.mean())),
        "at_floor": float((noise <= 1.1 * posterior.model.observation.floor(data.X.shape[1])).mean()),
        "feature_var": float(posterior.draws["feature_var"].mean()),
        "free_energy": [float(v) for v in posterior.draws["free_energy"].mean(axis=1)],
    }
    if pictures is not None and data.image_shape is not None:
        draw_features(model, data, pictures / f"{data.name}-seed-{seed}.png")
    return entry


def rmse(mean: Any, data: RealSet) -> float:
    return float(np.sqrt(np.mean((data.X[data.hidden] - np.asarray(mean)) ** 2)))


def draw_features(model: LatentFeatures, data: RealSet, path: Path) -> None:
    """The features that persist as tiles; dims that were left out are zero."""
    from thali.report.figures import feature_images, save

    assert data.image_shape is not None
    tiles = np.zeros((model.n_components_, len(data.kept)))
    tiles[:, data.kept] = model.components_
    shares = model.posterior_.consensus.presence.mean(axis=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(feature_images(tiles, data.image_shape, shares, max_features=64), path)
    print(f"features drawn: {path}", flush=True)


def choose_floor(data: RealSet, settings: dict[str, Any]) -> tuple[float, list[dict[str, float]]]:
    """The share with the best density of further hidden cells: downwards, one chain each, until it falls."""
    tried: list[dict[str, float]] = []
    for floor in FLOORS:
        model = fit(data.X, data.hidden | data.inner, floor, 0, settings)
        log_density, _ = predict(model.posterior_, data.X, data.inner, 0)
        error = float(log_density.std() / np.sqrt(len(log_density)))
        k = float(model.posterior_.draws["n_features"].mean())
        tried.append({"floor": floor, "lpd": float(log_density.mean()), "error": error, "k": k})
        print(f"{data.name}: floor {floor:g}, inner LPD {tried[-1]['lpd']:.3f} (error {error:.3f}), K {k:.1f}")
        if len(tried) > 1 and tried[-1]["lpd"] < tried[-2]["lpd"]:
            break
    return max(tried, key=lambda one: one["lpd"])["floor"], tried


# --- what it says ---------------------------------------------------------------------------------


def summarise(data: RealSet, entries: list[Entry]) -> dict[str, Any]:
    """The fits of one data set at one floor."""
    entries = sorted(entries, key=lambda entry: entry["seed"])
    means = ("lpd", "lpd_error", "rmse", "noise_sd", "at_floor", "seconds", "cpu_seconds")
    lists = ("k_raw", "k_common", "k_reported", "k_chains", "lpd_chains")
    return {
        "set": data.name,
        "floor": entries[0]["floor"],
        "chains": len(entries[0]["lpd_chains"]),
        **{name: float(np.mean([entry[name] for entry in entries])) for name in means},
        **{name: [entry[name] for entry in entries] for name in lists},
        "lpd_seeds": [entry["lpd"] for entry in entries],
        "k_spread": float(np.ptp([e["k_raw"] for e in entries]) / np.mean([e["k_raw"] for e in entries])),
        "baseline": column_means(data.X, data.hidden),
    }


def show(rows: list[dict[str, Any]]) -> None:
    heads = [
        "data", "floor", "chains", "LPD one chain", "LPD pooled", "RMSE pooled", "K", "spread", "K common",
        "K reported", "noise sd", "s per fit",
    ]  # fmt: skip
    cells = []
    for row in rows:
        cells.append([
            row["set"], f"{row['floor']:g}", f"{row['chains']}", f"{np.mean(row['lpd_chains']):.3f}",
            f"{row['lpd']:.3f} ({row['lpd_error']:.3f})", f"{row['rmse']:.3f}", _per_seed(row["k_raw"]),
            f"{row['k_spread']:.0%}", _per_seed(row["k_common"]), _per_seed(row["k_reported"]),
            f"{row['noise_sd']:.2f}", f"{row['seconds']:.1f}",
        ])  # fmt: skip
        then = RECORDED[row["set"]]
        cells.append([
            "  recorded", f"{then.floor:g}", "3", f"{then.lpd:.3f}", f"{then.lpd_pooled:.3f}",
            f"{then.rmse_pooled:.3f}", _per_seed(then.k), "", _per_seed(then.k_common), "", f"{then.noise_sd:.2f}", "",
        ])  # fmt: skip
        base = row["baseline"]
        means = [f"{base['lpd']:.3f}", "", f"{base['rmse']:.3f}"]
        cells.append(["  column means", "", "", *means, "", "", "", "", "", ""])
    show_table("Hidden cells of real data: log predictive density, RMSE, and K for each seed", heads, cells)


def _per_seed(values: Any) -> str:
    return " / ".join(f"{value:.0f}" for value in values)


# --- the run --------------------------------------------------------------------------------------


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the files are (else THALI_DATA)")
    parser.add_argument("--sets", type=lambda t: listed(t, list(RECORDED)), default=list(RECORDED), metavar="A,B")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="fits of each data set")
    parser.add_argument("--chains", type=int, default=4, metavar="N", help="of a fit, pooled")
    parser.add_argument("--warmup", type=int, default=200, metavar="N", help="sweeps to drop")
    parser.add_argument("--draws", type=int, default=200, metavar="N")
    parser.add_argument("--start", metavar="NAME", help="how a chain begins, instead of the default")
    parser.add_argument("--floor", type=float, metavar="SHARE", help="instead of the recorded ones")
    parser.add_argument(
        "--choose-floor", action="store_true", help="by hiding further cells, as the recorded ones were"
    )
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw the features of the digits there")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    folder = options.data or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)
    settings: dict[str, Any] = {"n_warmup": options.warmup, "n_draws": options.draws}
    if options.start is not None:
        settings["start"] = options.start
        if lacks(settings):
            raise SystemExit("CollapsedGibbs has no setting start: leave --start out")
    record = Record(options.json, settings | {"n_chains": options.chains}, KEY)
    record.about = {"machine": machine()}
    rng = np.random.default_rng(0)
    tiny, short = rng.standard_normal((20, 5)), settings | {"n_warmup": 3, "n_draws": 5}
    fit(tiny, rng.random(tiny.shape) < 0.1, 0.1, 0, short)  # compiles, or loads from the cache
    rows = []
    for name in options.sets:
        data = load(name, folder)
        if isinstance(data, str):
            print(f"left out: {name} ({data})")
            continue
        floor = RECORDED[name].floor if options.floor is None else options.floor
        tried = None
        if options.choose_floor:
            floor, tried = choose_floor(data, settings)
        for seed in range(options.seeds):
            if record.has(name, floor, seed):
                continue
            entry = measure(data, floor, seed, settings, options.chains, options.pictures if seed == 0 else None)
            record.add(entry)
            found = f"LPD {entry['lpd']:.3f}, RMSE {entry['rmse']:.3f}, K {_per_seed(entry['k_chains'])}"
            print(f"{name} seed {seed}: {entry['seconds']:.1f} s, {found}", flush=True)
        chosen = [e for e in record.entries if (e["set"], e["floor"]) == (name, floor)]
        rows.append(summarise(data, chosen) | ({} if tried is None else {"floors": tried}))
    show(rows)
    record.write(summary=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
