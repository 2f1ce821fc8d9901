"""Genomes: which people share features, with a beta process and an IBP (Paisley et al. 2011, Section 5.2, Figure 5).

    python benchmarks/papers/paisley_genomes.py [--data FOLDER] [--quick] [--loci 377] [--seeds 2]
                                                [--picture PATH] [--json PATH]

HGDP-CEPH microsatellites (`hgdp_microsat.npz`, 1350 people of 7 regions). A cell is the sum of the two allele lengths
of a person at a locus, standardised by locus; 377 of the 678 loci, as many as in the paper, picked with a fixed seed.
Unknown genotypes are missing cells. The model is the paper's: weights N(0, 1), features N(0, 1e6), hard bits, 200
features at most, noise variance 1, which the paper sets and yet reports as learned, so there is a table for either. Both
priors start at the same random bits, without moves. Expected shared features of two people: the sum over features of
the product of their probabilities to have it. Sharing is the clearer the more of it is within regions: `within` and
`between` are means over pairs of people, `neighbours` is the share of the five people who share most with a person,
beyond what their own numbers of features say (cosine), that are of the same region. The folder may also be given by
THALI_DATA. See benchmarks/README.md.
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
from thali import BetaProcess, FactorAnalysis, InverseGamma, LatentFeatures, MeanField, StickBreakingIBP

FILE = "hgdp_microsat.npz"
TRUNCATION, ROUNDS, N_NEIGHBOURS = 200, 50, 5
FEATURE_VAR = 1e6
PLAIN = {"n_restarts": 1, "start": "random", "moves": False, "tol": 1e-5}
KEY = ("noise", "bits", "prior", "seed")
PRINTED = "printed: about 130 features for either prior; SB-BP has fewer ones, the larger noise, and the clearer sharing"
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


def prior_of(name: str) -> Any:
    return BetaProcess(truncation=TRUNCATION, rounds=ROUNDS) if name == "SB-BP" else StickBreakingIBP(truncation=TRUNCATION)


def fit(people: People, noise: str, bits: str, prior: str, seed: int) -> LatentFeatures:
    noise_var = 1.0 if noise == "fixed" else InverseGamma(1.0, 0.1, relative=True)
    observation = FactorAnalysis(noise_var=noise_var, feature_var=FEATURE_VAR, offset=None, noise_floor=0.0)
    inference = MeanField(bits=bits, **PLAIN)
    return LatentFeatures(observation, prior_of(prior), inference, random_state=seed).fit(people.X)


def measure(people: People, noise: str, bits: str, prior: str, seed: int) -> tuple[Entry, Array]:
    start = time.perf_counter()
    model = fit(people, noise, bits, prior, seed)
    seconds = round(time.perf_counter() - start, 2)
    posterior = model.posterior_
    z = posterior.z_prob
    left = (people.X - posterior.expected_codes @ posterior.shared_codebook["features"])[~np.isnan(people.X)]
    entry = {
        "noise": noise, "bits": bits, "prior": prior, "seed": seed, "seconds": seconds,
        "passes": int(model.history_["n_passes"][0]), "bound": float(posterior.bound), "ones": float(z.sum()),
        "features": int((z > 0.5).any(axis=0).sum()), "left": float(np.mean(left**2)),
        "noise_var": float(np.mean(posterior.concrete_model.observation.noise_var)),
        **clearness(shared(z), people.region),
    }  # fmt: skip
    return entry, z


# --- what it says ---------------------------------------------------------------------------------


def show(entries: list[Entry], reference: float) -> None:
    cells = []
    for key in dict.fromkeys((e["noise"], e["bits"], e["prior"]) for e in entries):
        runs = [e for e in entries if (e["noise"], e["bits"], e["prior"]) == key]
        means = {name: float(np.mean([e[name] for e in runs])) for name in runs[0] if isinstance(runs[0][name], float | int)}
        ratio = means["within"] / means["between"] if means["between"] > 0 else np.nan
        cells.append([
            f"{key[2]}, noise {key[0]}, {key[1]} bits", f"{means['features']:.0f}", f"{means['ones']:.0f}",
            f"{means['noise_var']:.3f}", f"{means['left']:.3f}", f"{means['within']:.2f}", f"{means['between']:.2f}",
            f"{ratio:.2f}", f"{means['neighbours']:.3f}", f"{means['bound']:.0f}", f"{means['seconds']:.1f}",
        ])  # fmt: skip
    heads = [
        "prior", "features", "ones", "noise var", "squares left", "within", "between", "ratio", "neighbours", "bound", "s",
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
    parser.add_argument("--quick", action="store_true", help="100 loci, one seed, hard bits only")
    parser.add_argument("--loci", type=int, default=377, metavar="N", help="of 678")
    parser.add_argument("--seeds", type=int, default=2, metavar="N")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw Figure 5 there (png, svg or pdf)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    folder = options.data or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)
    if folder is None or not (folder / FILE).exists():
        print(f"left out: give the folder of {FILE} by --data or THALI_DATA")
        return 0

    n_loci, n_seeds = (100, 1) if options.quick else (options.loci, options.seeds)
    people = load(folder / FILE, n_loci)
    record = Record(options.json, {"loci": n_loci}, KEY)
    record.about = {"machine": machine()}
    tables: dict[str, Array] = {}
    with threadpool_limits(1, "blas"):
        fit(people._replace(X=people.X[::40, :20]), "learned", "hard", "SB-BP", 0)  # compiles, or loads from the cache
        for bits in ("hard",) if options.quick else ("hard", "soft"):
            for noise in ("fixed", "learned"):
                for prior in ("VB-IBP", "SB-BP"):
                    for seed in range(n_seeds):
                        if record.has(noise, bits, prior, seed):
                            continue
                        entry, z = measure(people, noise, bits, prior, seed)
                        record.add(entry)
                        if (noise, bits, seed) == ("learned", "hard", 0):
                            tables[prior] = shared(z)
        show(record.entries, principal(people.X, people.region))
    for prior, table in tables.items():
        names, means = by_region(table, people.region)
        show_regions(f"Expected shared features by region, {prior}, hard bits, noise learned", names, means)
    if options.picture is not None and tables:
        draw(tables, people.region, options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
