"""Held-out prediction and the stability of K on real data, beside ordinary models and recorded figures.

    python benchmarks/quality/real_data.py [--data FOLDER] [--sets A,B] [--models binary,factors] [--seeds 3]
                                           [--chains 4] [--warmup N] [--draws N] [--choose-floor] [--choose-model]
                                           [--pictures FOLDER] [--json PATH]

10 % of the cells are hidden. A seed is one fit of several chains. Score: log predictive density per hidden cell, the
log of a mean of densities over the draws of one chain, or over those of all chains of a fit (pooled). The folder of the
data may also be given by THALI_DATA; a set that is not there is left out with a line that says so. See
benchmarks/README.md.
"""

import argparse
import functools
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.quality.chains import lacks
from benchmarks.quality.real_models import MODELS, Entry, baselines, choose_floor, choose_model, fit, measure, ordinary
from benchmarks.quality.real_sets import RECORDED, RECORDED_BASELINES, SETS, RealSet, load
from benchmarks.quality.record import Record, listed
from benchmarks.tables import machine, show_table
from thali import LatentFeatures

KEY = ("set", "model", "floor", "seed")


# --- what it says ---------------------------------------------------------------------------------


def summarise(entries: list[Entry]) -> dict[str, Any]:
    """The fits of one model to one data set at one floor."""
    entries = sorted(entries, key=lambda entry: entry["seed"])
    means = (
        "lpd", "lpd_error", "minus_fa", "minus_fa_error", "rmse", "noise_sd", "at_floor", "seconds", "cpu_seconds",
    )  # fmt: skip
    lists = ("k_raw", "k_common", "k_reported", "k_chains", "lpd_chains")
    return {
        **{name: entries[0][name] for name in ("set", "model", "floor")},
        "chains": len(entries[0]["lpd_chains"]),
        **{name: float(np.mean([entry[name] for entry in entries])) for name in means},
        **{name: [entry[name] for entry in entries] for name in lists},
        "lpd_seeds": [entry["lpd"] for entry in entries],
        "k_spread": float(np.ptp([e["k_raw"] for e in entries]) / np.mean([e["k_raw"] for e in entries])),
    }


def show(rows: list[dict[str, Any]], ordinary_rows: list[Entry]) -> None:
    heads = [
        "data / model", "floor", "chains", "LPD one chain", "LPD pooled", "minus FA", "RMSE pooled", "K", "spread",
        "K common", "K reported", "noise sd", "s per fit",
    ]  # fmt: skip
    cells = []
    for name in dict.fromkeys(row["set"] for row in [*rows, *ordinary_rows]):
        for base in (b for b in ordinary_rows if b["set"] == name):
            cells += _ordinary_lines(base)
        for row in (r for r in rows if r["set"] == name):
            cells += _model_lines(row)
    show_table("Hidden cells of real data: log predictive density, RMSE, and K for each seed", heads, cells)


def _ordinary_lines(base: Entry) -> list[list[str]]:
    then = RECORDED_BASELINES[base["model"]][base["set"]]
    noise = "" if base["noise_sd"] is None else f"{base['noise_sd']:.2f}"
    seconds = f"{base['seconds']:.1f}" if "seconds" in base else ""
    return [
        [
            f"{base['set']} / {base['model']}", "", "", "", f"{base['lpd']:.3f} ({base['lpd_error']:.3f})", "",
            f"{base['rmse']:.3f}", f"{base['k']}", "", "", "", noise, seconds,
        ],
        ["  recorded", "", "", "", f"{then.lpd:.3f}", "", f"{then.rmse:.3f}", f"{then.k}", "", "", "", "", ""],
    ]  # fmt: skip


def _model_lines(row: dict[str, Any]) -> list[list[str]]:
    then = RECORDED[row["model"]][row["set"]]
    return [
        [
            f"{row['set']} / {row['model']}", _floor(row["floor"]), f"{row['chains']}",
            f"{np.mean(row['lpd_chains']):.3f}", f"{row['lpd']:.3f} ({row['lpd_error']:.3f})",
            f"{row['minus_fa']:+.3f} ({row['minus_fa_error']:.3f})", f"{row['rmse']:.3f}", _per_seed(row["k_raw"]),
            f"{row['k_spread']:.0%}", _per_seed(row["k_common"]), _per_seed(row["k_reported"]),
            f"{row['noise_sd']:.2f}", f"{row['seconds']:.1f}",
        ],
        [
            "  recorded", _floor(then.floor), "3", f"{then.lpd:.3f}", f"{then.lpd_pooled:.3f}", "",
            f"{then.rmse_pooled:.3f}", _per_seed(then.k), "", _per_seed(then.k_common), "", f"{then.noise_sd:.2f}", "",
        ],
    ]  # fmt: skip


def show_choice(choices: list[Entry], rows: list[dict[str, Any]]) -> None:
    """What further hidden cells say, and what the hidden ones then give."""
    heads = ["data", "inner LPD binary", "inner LPD factors", "gain of factors", "chosen", "LPD of it", "of the other"]
    cells = []
    for one in choices:
        lpd = {row["model"]: f"{row['lpd']:.3f}" for row in rows if row["set"] == one["set"]}
        other = "binary" if one["chosen"] == "factors" else "factors"
        cells.append([
            one["set"], f"{one['inner_binary']:.3f}", f"{one['inner_factors']:.3f}",
            f"{one['gain']:+.3f} ({one['gain_error']:.3f})", one["chosen"], lpd.get(one["chosen"], "-"),
            lpd.get(other, "-"),
        ])  # fmt: skip
    show_table("Choice by held-out score: binary unless factors gain more than one standard error", heads, cells)


def _floor(value: float | None) -> str:
    return "of FA" if value is None else f"{value:g}"


def _per_seed(values: Any) -> str:
    return " / ".join(f"{value:.0f}" for value in values)


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


# --- the run --------------------------------------------------------------------------------------


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    names = list(MODELS)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the files are (else THALI_DATA)")
    parser.add_argument("--sets", type=lambda t: listed(t, SETS), default=SETS, metavar="A,B")
    parser.add_argument("--models", type=lambda t: listed(t, names), default=names, metavar="A,B")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="fits of each model and data set")
    parser.add_argument("--chains", type=int, metavar="N", help="of a fit, pooled, instead of the default")
    parser.add_argument("--warmup", type=int, metavar="N", help="sweeps to drop (else binary: 200, factors: default)")
    parser.add_argument("--draws", type=int, metavar="N", help="likewise")
    parser.add_argument("--start", metavar="NAME", help="how a chain begins, instead of the default")
    parser.add_argument("--floor", type=float, metavar="SHARE", help="of the binary model, instead of the recorded one")
    parser.add_argument(
        "--choose-floor", action="store_true", help="of the binary model, by hiding further cells, as recorded"
    )
    parser.add_argument(
        "--choose-model", action="store_true", help="binary or factors by hiding further cells, in a table of its own"
    )
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw the features of images there")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    folder = options.data or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)
    given = {"n_warmup": options.warmup, "n_draws": options.draws, "start": options.start}
    settings = {name: value for name, value in given.items() if value is not None}
    if lacks(settings):
        raise SystemExit("CollapsedGibbs has no setting start: leave --start out")
    record = Record(options.json, settings | {"n_chains": options.chains}, KEY)
    record.about = {"machine": machine()}
    compile_models(options.models)
    rows, ordinary_rows, choices = [], [], []
    for name in options.sets:
        data = load(name, folder)
        if isinstance(data, str):
            print(f"left out: {name} ({data})")
            continue
        if not record.has(name, "FA", None, None):
            for entry in baselines(data):
                record.add(entry)
        ordinary_rows += [e for e in record.entries if e["set"] == name and e["seed"] is None]
        binary_floor = RECORDED["binary"][name].floor if options.floor is None else options.floor
        tried = None
        if options.choose_floor:
            binary_floor, tried = choose_floor(data, settings)
        for model in options.models:
            floor = binary_floor if model == "binary" else None
            run_fits(record, data, model, floor, settings, options)
            made = [e for e in record.entries if (e["set"], e["model"], e["floor"]) == (name, model, floor)]
            if made:
                rows.append(summarise(made) | ({} if tried is None or model != "binary" else {"floors": tried}))
        if options.choose_model:
            if not record.has(name, "choice", binary_floor, 0):
                record.add(choose_model(data, binary_floor, settings, options.chains))
            choices += [e for e in record.entries if (e["set"], e["model"]) == (name, "choice")]
    show(rows, ordinary_rows)
    if choices:
        show_choice(choices, rows)
    record.write(summary=rows)
    return 0


def compile_models(names: list[str]) -> None:
    """On tiny data, so that no time of a fit includes it."""
    rng = np.random.default_rng(0)
    tiny = rng.standard_normal((20, 5))
    for name in names:
        fit(name, tiny, rng.random(tiny.shape) < 0.1, 0.1, 0, {"n_warmup": 3, "n_draws": 5}, 1)


def run_fits(
    record: Record, data: RealSet, model: str, floor: float | None, settings: dict[str, Any], options: Any
) -> None:
    """The fits that the record still lacks."""
    reference = functools.cache(lambda: ordinary(data, per_dim=True)[1].log_density)
    for seed in range(options.seeds):
        if record.has(data.name, model, floor, seed):
            continue
        entry, fitted = measure(data, model, floor, seed, settings, options.chains, reference())
        record.add(entry)
        found = f"LPD {entry['lpd']:.3f}, RMSE {entry['rmse']:.3f}, K {_per_seed(entry['k_chains'])}"
        print(f"{data.name} {model} seed {seed}: {entry['seconds']:.1f} s, {found}", flush=True)
        if options.pictures is not None and data.image_shape is not None and seed == 0:
            draw_features(fitted, data, options.pictures / f"{data.name}-{model}.png")


if __name__ == "__main__":
    sys.exit(main())
