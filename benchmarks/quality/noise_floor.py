"""Is the noise of `FactorAnalysis()` calibrated, and does it mind units and odd cells?

    python benchmarks/quality/noise_floor.py [--sets 6] [--rows 150] [--dims 15] [--factors 4] [--attacks A,B]
        [--chains 2] [--warmup 150] [--draws 150] [--json PATH]

Clean data with a known noise: do 90 % intervals of the noise cover it? Then the same data after an attack: one
dim or all of them in other units, odd rows, odd cells. Compared with the clean fit of the same set: the number of
features, the floor of each dim in units of the noise, and the log density of the cells of new rows after the change of
units. Attacks: units (each dim times 10^U(-3, 3)), powers-of-two, one dim times 100 to 1e6; one row 24 noise sd higher,
one or two rows of 30 N(0, 1); cells 24 or 1000 noise sd higher. Noise with 3 degrees of freedom has a line of its own.
See benchmarks/README.md.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.quality.record import Record, listed
from benchmarks.tables import machine, show_table
from thali import FactorAnalysis, Gibbs, LatentFeatures

NOISE_VAR = 0.36
N_NEW = 20  # rows whose density is compared
KEY = ("set", "attack")
Array = np.ndarray
Entry = dict[str, Any]


class Attacked(NamedTuple):
    """Data, and what each dim was multiplied by."""

    X: Array
    units: Array


def clean(seed: int, n_rows: int, n_dims: int, n_factors: int, tails: str = "normal") -> tuple[Array, Array]:
    """(rows to fit, new rows): each row has half of the factors, weights and features are standard normal."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n_factors, n_dims))
    n = n_rows + N_NEW
    codes = (rng.random((n, n_factors)) < 0.5) * rng.standard_normal((n, n_factors))
    noise = rng.standard_normal((n, n_dims)) if tails == "normal" else rng.standard_t(3, (n, n_dims)) / np.sqrt(3)
    X = codes @ features + np.sqrt(NOISE_VAR) * noise
    return X[:n_rows], X[n_rows:]


def _units(X: Array, units: Array) -> Attacked:
    return Attacked(X * units, units)


def _one_dim(times: float) -> Callable[[np.random.Generator, Array], Attacked]:
    return lambda rng, X: _units(X, np.where(np.arange(X.shape[1]) == 3, times, 1.0))


def _odd(change: Callable[[np.random.Generator, Array], None]) -> Callable[[np.random.Generator, Array], Attacked]:
    def attack(rng: np.random.Generator, X: Array) -> Attacked:
        X = X.copy()
        change(rng, X)
        return _units(X, np.ones(X.shape[1]))

    return attack


def _shifted_row(rng: np.random.Generator, X: Array) -> None:
    X[7] += 24 * np.sqrt(NOISE_VAR)


def _wild_rows(n: int) -> Callable[[np.random.Generator, Array], None]:
    def change(rng: np.random.Generator, X: Array) -> None:
        X[7 : 7 + n] = 30 * rng.standard_normal((n, X.shape[1]))

    return change


def _odd_cells(n: int, size: float) -> Callable[[np.random.Generator, Array], None]:
    def change(rng: np.random.Generator, X: Array) -> None:
        for i in range(n):
            X[7 + 4 * i, 2 + 5 * i] += size * np.sqrt(NOISE_VAR)

    return change


ATTACKS: dict[str, Callable[[np.random.Generator, Array], Attacked]] = {
    "none": _odd(lambda rng, X: None),
    "units": lambda rng, X: _units(X, 10.0 ** rng.uniform(-3, 3, X.shape[1])),
    "powers-of-two": lambda rng, X: _units(X, 2.0 ** rng.integers(-10, 11, X.shape[1])),
    "dim-x100": _one_dim(1e2),
    "dim-x1000": _one_dim(1e3),
    "dim-x1e6": _one_dim(1e6),
    "row+24sd": _odd(_shifted_row),
    "wild-row": _odd(_wild_rows(1)),
    "two-wild-rows": _odd(_wild_rows(2)),
    "cell+24sd": _odd(_odd_cells(1, 24.0)),
    "two-cells+24sd": _odd(_odd_cells(2, 24.0)),
    "cell+1000sd": _odd(_odd_cells(1, 1e3)),
}
ALL = [*ATTACKS, "t3-noise"]


def measure(seed: int, attack: str, options: argparse.Namespace) -> Entry:
    """One fit."""
    tails = "t3" if attack == "t3-noise" else "normal"
    X, new = clean(seed, options.rows, options.dims, options.factors, tails)
    attacked = ATTACKS.get(attack, ATTACKS["none"])(np.random.default_rng([seed, 1]), X)
    inference = Gibbs(n_warmup=options.warmup, n_draws=options.draws)
    start = time.process_time()
    model = LatentFeatures(FactorAnalysis(), inference=inference, n_chains=options.chains, random_state=0, verbose=0)
    posterior = model.fit(attacked.X).posterior_
    noise = posterior.hyper["observation.noise_var"].reshape(-1, options.dims) / attacked.units**2
    low, high = np.quantile(noise, [0.05, 0.95], axis=0)
    density = model.score_samples(new * attacked.units) + np.log(attacked.units).sum()
    return {
        "set": seed,
        "attack": attack,
        "seconds": round(time.process_time() - start, 2),
        "k": int(model.n_components_),
        "k_mean": float(posterior.draws["n_features"].mean()),
        "covered": float(((low < NOISE_VAR) & (high > NOISE_VAR)).mean()),
        "noise": float(noise.mean() / NOISE_VAR),
        "floor": [float(v) for v in posterior.model.observation.floor(options.dims) / attacked.units**2 / NOISE_VAR],
        "density": float(density.mean() / options.dims),
    }


def summarise(attack: str, entries: list[Entry], plain: dict[int, Entry]) -> list[str]:
    """One line: all sets after one attack, beside the same sets without."""
    covered, noise = (float(np.mean([e[name] for e in entries])) for name in ("covered", "noise"))
    floors = np.array([e["floor"] for e in entries])
    line = [attack, " ".join(str(e["k"]) for e in entries), f"{np.mean([e['k_mean'] for e in entries]):.1f}"]
    line += [f"{covered:.3f}", f"{noise:.3f}", f"{np.median(floors):.2f}", f"{np.mean(floors > 1):.3f}"]
    if attack not in ("none", "t3-noise") and all(e["set"] in plain for e in entries):
        ratio = floors / np.array([plain[e["set"]]["floor"] for e in entries])
        shift = [e["density"] - plain[e["set"]]["density"] for e in entries]
        return [*line, f"{ratio.min():.2f} - {ratio.max():.2f}", f"{np.abs(shift).max():.2g}"]
    return [*line, "", ""]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, usual in (("sets", 6), ("rows", 150), ("dims", 15), ("factors", 4)):
        parser.add_argument(f"--{name}", type=int, default=usual, metavar="N")
    for name, usual in (("chains", 2), ("warmup", 150), ("draws", 150)):
        parser.add_argument(f"--{name}", type=int, default=usual, metavar="N")
    parser.add_argument("--attacks", type=lambda t: listed(t, ALL), default=ALL, metavar="A,B")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    names = ("rows", "dims", "factors", "chains", "warmup", "draws")
    record = Record(options.json, {name: getattr(options, name) for name in names}, KEY)
    record.about = {"machine": machine()}
    rows = []
    for attack in options.attacks:
        for seed in range(options.sets):
            if not record.has(seed, attack):
                record.add(measure(seed, attack, options))
        made = [e for e in record.entries if e["attack"] == attack and e["set"] < options.sets]
        plain = {e["set"]: e for e in record.entries if e["attack"] == "none"}
        rows.append(summarise(attack, made, plain))
        print(" | ".join(rows[-1]), flush=True)
    heads = ["attack", "k by set", "in use", "covered", "E[noise]", "floor", "above", "floor / clean", "density"]
    show_table("90 % intervals of the noise, and what attacks change; noise and floors by the truth", heads, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
