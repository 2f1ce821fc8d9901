"""Genomes: which people share features, with a beta process and an IBP (Paisley et al. 2011, Section 5.2, Figure 5).

    python benchmarks/papers/paisley_genomes.py [--data FOLDER] [--quick] [--loci 377] [--seeds 2]
                                                [--picture PATH] [--json PATH]

HGDP-CEPH microsatellites (`hgdp_microsat.npz`, 1350 people of 7 regions). A cell is the sum of the two allele lengths
of a person at a locus, standardised by locus; 377 of the 678 loci, as many as in the paper, picked with a fixed seed.
The model is the paper's: weights N(0, 1), features N(0, 1e6), hard bits, at most 200 features and 50 rounds, noise
variance 1, which the paper sets and yet reports as learned, so there are lines for either. Unknown genotypes are at
their mean, but for the last lines. Both priors begin at the same codes, the most frequent feature last, as in the
paper: those of 60 passes with soft bits and a finite prior, since hard bits hardly leave a random start. `as it comes`
is the library's own fit with soft bits, learned variances and moves, and unknown genotypes left out.

Expected shared features of two people: the sum over features of the product of their probabilities to have it. Sharing
is the clearer the more of it is within regions: `within` and `between` are means over pairs of people, `neighbours` is
the share of the five people with the most similar bits (cosine) who are of the same region; in these, features that
nine of ten people have (`common`) are left out. The folder may also be given by THALI_DATA. See benchmarks/README.md.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.quality.record import Record
from benchmarks.tables import machine, show_table
from thali import (
    IBP,
    BetaBernoulli,
    BetaProcess,
    FactorAnalysis,
    Gamma,
    InverseGamma,
    LatentFeatures,
    MeanField,
    StickBreakingIBP,
)
from thali.core.model import Model
from thali.core.protocols.engines.mean_field import Family
from thali.inference.variational.ascent import ascend, begin, split_rows

FILE = "hgdp_microsat.npz"
TRUNCATION, ROUNDS, N_NEIGHBOURS = 200, 50, 5
FEATURE_VAR = 1e6
TOLERANCE, MOST_PASSES = 1e-5, 200
PRIORS = ("VB-IBP", "SB-BP")
KEY = ("fit", "prior", "seed")
FIGURES = ("features", "common", "ones", "noise_var", "within", "between", "neighbours", "bound", "passes", "seconds")
PRINTED = (
    "printed: about 130 features for either prior; SB-BP has fewer ones, the larger noise, and the clearer sharing"
)
Array = np.ndarray
Entry = dict[str, Any]


class People(NamedTuple):
    X: Array  # (n_people, n_loci), NaN where a genotype is unknown
    region: Array


def load(path: Path, n_loci: int) -> People:
    """People sorted by region and population."""
    with np.load(path, allow_pickle=False) as file:
        alleles, region, population = file["genotypes"].astype(float), file["region"], file["population"]
    loci = np.sort(np.random.default_rng(5).permutation(alleles.shape[1])[:n_loci])
    alleles = alleles[:, loci]
    length = np.where((alleles < 0).any(axis=2), np.nan, alleles.sum(axis=2))
    order = np.lexsort((population, region))
    X = (length - np.nanmean(length, axis=0)) / np.nanstd(length, axis=0)
    return People(X[order], region[order])


# --- sharing ---------------------------------------------------------------------------------------


def shared(z_prob: Array) -> Array:
    """Expected number of features that two people share, (n_people, n_people)."""
    z_prob = np.asarray(z_prob, dtype=float)
    return z_prob @ z_prob.T


def by_region(table: Array, region: Array) -> tuple[list[str], Array]:
    """Means over pairs of different people, by their regions."""
    names = sorted(set(region.tolist()))
    member = np.array([region == name for name in names], dtype=float)
    off = table - np.diag(np.diag(table))
    pairs = np.outer(member.sum(axis=1), member.sum(axis=1)) - np.diag(member.sum(axis=1))
    return names, member @ off @ member.T / pairs


def clearness(table: Array, region: Array) -> dict[str, float]:
    """Mean sharing of pairs within a region and of others, and how many nearest people are of the same region."""
    same = region[:, None] == region[None, :]
    other = ~np.eye(len(region), dtype=bool)
    size = np.sqrt(np.maximum(np.diag(table), 1e-12))
    near = np.where(other, table / size[:, None] / size[None, :], -np.inf)
    nearest = np.argpartition(-near, N_NEIGHBOURS, axis=1)[:, :N_NEIGHBOURS]
    return {
        "within": float(table[same & other].mean()),
        "between": float(table[~same].mean()),
        "neighbours": float((region[nearest] == region[:, None]).mean()),
    }


def principal(X: Array, region: Array, n: int = 10) -> float:
    """The same share of neighbours by the leading principal components: what there is to find."""
    filled = np.where(np.isnan(X), 0.0, X)
    scores = np.linalg.svd(filled, full_matrices=False)[0][:, :n] * np.linalg.svd(filled, compute_uv=False)[:n]
    squares = np.sum(scores**2, axis=1)
    distance = squares[:, None] + squares[None, :] - 2 * scores @ scores.T
    np.fill_diagonal(distance, np.inf)
    nearest = np.argpartition(distance, N_NEIGHBOURS, axis=1)[:, :N_NEIGHBOURS]
    return float((region[nearest] == region[:, None]).mean())


# --- fits ------------------------------------------------------------------------------------------


def model_of(noise: str) -> FactorAnalysis:
    noise_var = 1.0 if noise == "fixed" else InverseGamma(1.0, 0.1, relative=True)
    return FactorAnalysis(noise_var=noise_var, feature_var=FEATURE_VAR, offset=None, noise_floor=0.0)


def common_start(X: Array, noise: str, truncation: int, seed: int) -> Array:
    """Codes to begin with, the rarest feature first."""
    soft = MeanField(n_restarts=1, start="random", moves=False, max_iter=60, tol=TOLERANCE)
    model = LatentFeatures(model_of(noise), BetaBernoulli(n_features=truncation), soft, random_state=seed).fit(X)
    z = model.posterior_.z_prob
    codes = np.where(z > 0.5, model.posterior_.q.codes / np.maximum(z, 1e-12), 0.0)
    return codes[:, np.argsort((codes != 0).sum(axis=0), kind="stable")]


def prior_of(name: str, truncation: int) -> Any:
    if name == "VB-IBP":
        return StickBreakingIBP(truncation=truncation)
    return BetaProcess(concentration=Gamma(1.0, 1.0), truncation=truncation, rounds=ROUNDS, round_penalty="markov")


def hard_fit(X: Array, noise: str, prior: Any, codes: Array) -> tuple[Array, dict[str, float]]:
    """Bits after coordinate ascent with hard bits from these codes; the features keep their places."""
    problem = split_rows(Model(prior, model_of(noise).adapt(X)), X, Family(bits="hard"))
    state = begin(problem, prior.init_weights(len(X)), codes)
    bounds = [state.bound]
    while len(bounds) <= MOST_PASSES:
        state = ascend(problem, state)
        bounds.append(state.bound)
        if bounds[-1] - bounds[-2] < TOLERANCE * abs(bounds[-2]):
            break
    return np.concatenate([part.z_prob for part in state.local]), {
        "passes": len(bounds) - 1, "bound": state.bound, "noise_var": float(np.mean(state.q.observation.noise_var)),
    }  # fmt: skip


def own_fit(people: People, prior: Any, seed: int) -> tuple[Array, dict[str, float]]:
    """Everything as it comes, one restart."""
    model = LatentFeatures(FactorAnalysis(), prior, MeanField(n_restarts=1, tol=TOLERANCE), random_state=seed).fit(
        people.X
    )
    posterior = model.posterior_
    return posterior.z_prob, {
        "passes": int(model.history_["n_passes"][0]), "bound": float(posterior.bound),
        "noise_var": float(np.mean(posterior.q.model.observation.noise_var)),
    }  # fmt: skip


def described(z: Array, region: Array) -> dict[str, float]:
    common = z.mean(axis=0) > 0.9
    counts = {"features": int((z > 0.5).any(axis=0).sum()), "common": int(common.sum()), "ones": float(z.sum())}
    return {**counts, **clearness(shared(z[:, ~common]), region)}


# --- what it says ---------------------------------------------------------------------------------


def show(entries: list[Entry], reference: float) -> None:
    cells = []
    for key in dict.fromkeys((e["fit"], e["prior"]) for e in entries):
        runs = [e for e in entries if (e["fit"], e["prior"]) == key]
        mean = {name: float(np.mean([e[name] for e in runs])) for name in FIGURES}
        cells.append([
            f"{key[1]}, {key[0]}", f"{mean['features']:.0f}", f"{mean['common']:.1f}", f"{mean['ones']:.0f}",
            f"{mean['noise_var']:.3f}",
            f"{mean['within']:.2f}", f"{mean['between']:.2f}", f"{mean['within'] / mean['between']:.2f}",
            f"{mean['neighbours']:.3f}", f"{mean['bound']:.0f}", f"{mean['passes']:.0f}", f"{mean['seconds']:.1f}",
        ])  # fmt: skip
    heads = [
        "prior", "features", "common", "ones", "noise var", "within", "between", "ratio", "neighbours", "bound",
        "passes", "s",
    ]  # fmt: skip
    show_table("Shared features of people (Section 5.2)", heads, cells)
    print(f"\n  neighbours by ten principal components: {reference:.3f}\n  {PRINTED}")


def show_regions(title: str, names: list[str], table: Array) -> None:
    cells = [[name, *(f"{value:.2f}" for value in row)] for name, row in zip(names, table, strict=True)]
    show_table(title, ["region", *(name[:12] for name in names)], cells)


def draw(tables: dict[str, Array], region: Array, path: Path) -> None:
    """Figure 5: the shared features of all pairs, people sorted by region."""
    from thali.report import style
    from thali.report.figures import save

    figure = style.new_figure(4.4 * len(tables) + 0.8, 4.4)
    panels = np.atleast_1d(figure.subplots(1, len(tables)))
    names = sorted(set(region.tolist()))
    edges = np.searchsorted(region, names)
    centres = (edges + np.append(edges[1:], len(region))) / 2
    top = max(float(np.quantile(table, 0.995)) for table in tables.values())
    for axes, (title, table) in zip(panels, tables.items(), strict=True):
        image = axes.imshow(table, cmap=style.SEQUENTIAL, vmin=0, vmax=top, interpolation="nearest")
        for edge in edges[1:]:
            axes.axhline(edge - 0.5, color="white", linewidth=0.5)
            axes.axvline(edge - 0.5, color="white", linewidth=0.5)
        style.picture_axes(axes)
        style.headline(axes, title)
    panels[0].set_yticks(centres, [name.replace("_", " ").lower() for name in names], fontsize=7)
    style.colour_bar(figure, image, list(panels), "expected shared features", 3.6)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)
    print(f"drawn: {path}", flush=True)


# --- the run --------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the file is (else THALI_DATA)")
    parser.add_argument("--quick", action="store_true", help="200 loci, one seed, at most 50 features")
    parser.add_argument("--loci", type=int, default=377, metavar="N", help="of 678")
    parser.add_argument("--seeds", type=int, default=2, metavar="N")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw Figure 5 there (png, svg or pdf)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    folder = options.data or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)
    if folder is None or not (folder / FILE).exists():
        print(f"left out: give the folder of {FILE} by --data or THALI_DATA")
        return 0

    n_loci, n_seeds, truncation = (200, 1, 50) if options.quick else (options.loci, options.seeds, TRUNCATION)
    people = load(folder / FILE, n_loci)
    X = np.where(np.isnan(people.X), 0.0, people.X)
    record = Record(options.json, {"loci": n_loci}, KEY)
    record.about = {"machine": machine()}
    tables: dict[str, Array] = {}

    def add(fit: str, prior: str, seed: int, start: float, z: Array, found: dict[str, float]) -> None:
        seconds = round(time.perf_counter() - start, 2)
        record.add(
            {"fit": fit, "prior": prior, "seed": seed, "seconds": seconds, **found, **described(z, people.region)}
        )
        if seed == 0:
            tables[f"{prior}, {fit}"] = shared(z)

    with threadpool_limits(1, "blas"):
        hard_fit(X[::40, :20], "learned", prior_of("SB-BP", 5), common_start(X[::40, :20], "learned", 5, 0))  # compiles
        for seed in range(n_seeds):
            for noise in ("fixed", "learned"):
                name = f"noise {noise}"
                if record.has(name, "SB-BP", seed):
                    continue
                codes = common_start(X, noise, truncation, seed)
                for prior in PRIORS:
                    start = time.perf_counter()
                    add(name, prior, seed, start, *hard_fit(X, noise, prior_of(prior, truncation), codes))
            for prior, spec in (("VB-IBP", IBP()), ("SB-BP", BetaProcess())):
                if not record.has("as it comes", prior, seed):
                    start = time.perf_counter()
                    add("as it comes", prior, seed, start, *own_fit(people, spec, seed))
        show(record.entries, principal(people.X, people.region))
    for name, table in tables.items():
        show_regions(f"Expected shared features by region: {name}", *by_region(table, people.region))
    if options.picture is not None and tables:
        learned = {name: table for name, table in tables.items() if "learned" in name or "as it comes" in name}
        draw(learned, people.region, options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
