"""Sparse factors of gene expression: known regulators found again, hidden cells predicted (Knowles & Ghahramani 2011).

    python benchmarks/papers/nsfa_genes.py [--data FOLDER] [--quick] [--genes 500] [--seeds 2] [--json PATH]

Samples are rows, genes are dims that own sparse loadings (`sparse="dims"`), each with a noise level; all in units of
each gene's standard deviation. Nothing else is given to `SparseFactorAnalysis`.

Links (`gene_ecoli_kao.npz`: 23 arrays of 100 genes, 16 regulators, 140 known links): each method gives every pair of a
factor and a gene a strength: P(loading is not zero), or its size. Factors are matched with regulators one to one, by
the largest sum of cosines of strengths with known links, and a regulator without a factor has strength 0 everywhere.
`area` is that under the precision-recall curve of all 1600 pairs, `by regulator` the mean of the regulators' own;
`shuffled` is the area with the genes of the known links in random order, matched anew: what matching alone gives.
Thresholds of dense factors (scikit-learn's FactorAnalysis, as it is and rotated by varimax) are the points of their
curve. The methods of scikit-learn are told that there are 16.

Hidden cells: a tenth of the cells of breast cancer (`gene_breast_nsfa.npz`, 251 x 226; the name is inferred), leukaemia
(`gene_leukemia_golub.npz`, 72 samples, log2 of intensities from 100 to 16000, the `--genes` genes that vary most) and
E. coli, the same for all methods. PCA, FactorAnalysis and SparsePCA (scikit-learn) refill the missing cells by their
reconstruction for some rounds; rank and noise by a further hidden tenth. `FA by EM` integrates them out. `log score` is
the mean log density of a hidden cell, `RMSE` is in standard deviations of a gene. The folder may also be given by
THALI_DATA. See benchmarks/README.md.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm
from sklearn import decomposition
from sklearn.metrics import average_precision_score
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers.heldout_cells import HiddenCells
from benchmarks.quality.record import Record
from benchmarks.tables import machine, show_table
from thali import BetaBernoulli, FactorAnalysis, Gibbs, LatentFeatures, SparseFactorAnalysis
from thali.inference.calibration.factor_em import fill, log_cells, validated_factors

FILES = {"ecoli": "gene_ecoli_kao.npz", "breast": "gene_breast_nsfa.npz", "leukaemia": "gene_leukemia_golub.npz"}
RANKS = (2, 5, 10, 20, 40)
N_ROUNDS, N_SHUFFLED, SHARE = 10, 20, 0.1
ALPHA = 1.0  # of SparsePCA, scikit-learn's default
Array = np.ndarray
Entry = dict[str, Any]
Predicted = tuple[Array, float, float]  # means of all cells, mean log density of the hidden ones, K


def load(path: Path, n_genes: int) -> Array:
    """Samples by genes, on a scale on which noise is about the same for all levels."""
    with np.load(path, allow_pickle=False) as file:
        X = file["X"].astype(float)
    if path.name == FILES["leukaemia"]:
        X = np.log2(np.clip(X, 100, 16000))
    chosen = np.sort(np.argsort(-X.var(axis=0), kind="stable")[:n_genes])
    return X[:, chosen]


def sampled(X: Array, seed: int, n_sweeps: int, **settings: Any) -> LatentFeatures:
    """A fit of one of thali's models, half of the sweeps warm-up."""
    inference = Gibbs(n_warmup=n_sweeps // 2, n_draws=n_sweeps // 2)
    settings = {"observation": SparseFactorAnalysis(), "inference": inference} | settings
    n_chains = 2 if n_sweeps >= 100 else 1  # a quick look
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains say so
        return LatentFeatures(**settings, n_chains=n_chains, n_jobs=1, random_state=seed, verbose=False).fit(X)


def sparse_pca(rank: int, seed: int = 0) -> Any:
    return decomposition.SparsePCA(rank, alpha=ALPHA, method="cd", max_iter=100, tol=1e-4, random_state=seed)


# --- links ------------------------------------------------------------------------------------------


def loadings_of(model: Any, X: Array) -> Array:
    """Loadings of genes on factors of variance one, (n_factors, n_genes)."""
    return model.components_ * model.transform(X).std(axis=0)[:, None]


def link_strengths(X: Array, n_regulators: int, seed: int, n_sweeps: int) -> dict[str, Callable[[], Array]]:
    """Each method's strengths (n_factors, n_genes) of the links."""
    dense = partial(decomposition.FactorAnalysis, n_regulators, random_state=seed)

    def probable(model: LatentFeatures) -> Array:
        return model.loadings_presence_ + 1e-6 * np.abs(model.components_)  # size decides between equals

    return {
        "FactorAnalysis": lambda: np.abs(loadings_of(dense().fit(X), X)),
        "FactorAnalysis, varimax": lambda: np.abs(loadings_of(dense(rotation="varimax").fit(X), X)),
        "SparsePCA": lambda: np.abs(loadings_of(sparse_pca(n_regulators, seed).fit(X), X)),
        "SparseFactorAnalysis, K found": lambda: probable(sampled(X, seed, n_sweeps)),
        "SparseFactorAnalysis, 16 at most": lambda: probable(
            sampled(X, seed, n_sweeps, prior=BetaBernoulli(n_features=n_regulators))
        ),
    }


def matched(strength: Array, known: Array) -> Array:
    """Strengths (n_genes, n_regulators) of the factor that goes with each regulator, 0 where there is none."""
    size = np.linalg.norm(strength, axis=1, keepdims=True)
    cosine = (strength / np.maximum(size, 1e-12)) @ (known / np.linalg.norm(known, axis=0))
    factor, regulator = linear_sum_assignment(cosine, maximize=True)
    table = np.zeros(known.shape)
    table[:, regulator] = strength[factor].T
    return table


def areas(strength: Array, known: Array) -> tuple[float, float]:
    """Areas under the precision-recall curve: of all links, and the mean of those of the regulators."""
    table = matched(strength, known)
    each = [average_precision_score(links, found) for links, found in zip(known.T, table.T, strict=True)]
    return float(average_precision_score(known.ravel(), table.ravel())), float(np.mean(each))


def links(path: Path, seed: int, n_sweeps: int, record: Record) -> None:
    with np.load(path, allow_pickle=False) as file:
        X, known = file["X"].astype(float), (file["connectivity"] != 0).astype(float)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rng = np.random.default_rng(5)
    orders = [rng.permutation(len(known)) for _ in range(N_SHUFFLED)]
    for name, method in link_strengths(X, known.shape[1], seed, n_sweeps).items():
        if not record.has("links", name, seed):
            start = time.perf_counter()
            strength = method()
            seconds = round(time.perf_counter() - start, 2)
            area, each = areas(strength, known)
            shuffled = float(np.mean([areas(strength, known[order])[0] for order in orders]))
            record.add({
                "set": "links", "method": name, "seed": seed, "k": len(strength), "area": area, "each": each,
                "shuffled": shuffled, "seconds": seconds,
            })  # fmt: skip


# --- hidden cells -----------------------------------------------------------------------------------


def hide(X: Array) -> HiddenCells:
    """A tenth of the cells, the same for all methods; in units of what is left of each gene."""
    hidden = np.random.default_rng(77).random(X.shape) < SHARE
    seen = np.where(hidden, np.nan, X)
    return HiddenCells((X - np.nanmean(seen, axis=0)) / np.nanstd(seen, axis=0), hidden)


def refilled(make: Callable[[int], Any], rank: int, X: Array, n_rounds: int) -> Array:
    """The reconstruction of X by `make(rank)`, missing cells filled by it again and again."""
    missing = np.isnan(X)
    filled = np.where(missing, 0.0, X)
    for _ in range(n_rounds):
        model = make(rank).fit(filled)
        codes = model.transform(filled)
        product = codes @ model.components_ + model.mean_
        filled = np.where(missing, product, X)
    return product


def by_reconstruction(make: Callable[[int], Any], cells: HiddenCells, ranks: tuple[int, ...], n: int) -> Predicted:
    """With the rank and the noise that a further hidden tenth asks for."""
    inner = (np.random.default_rng(78).random(cells.X.shape) < SHARE) & ~cells.hidden
    best, noise_var = ranks[0], np.inf
    for rank in (rank for rank in ranks if rank < min(cells.X.shape)):
        left = np.mean((cells.X - refilled(make, rank, np.where(inner, np.nan, cells.seen), n))[inner] ** 2)
        if left < noise_var:
            best, noise_var = rank, float(left)
    mean = refilled(make, best, cells.seen, n)
    return mean, float(norm.logpdf(cells.X, mean, np.sqrt(noise_var))[cells.hidden].mean()), best


def by_em(cells: HiddenCells, ranks: tuple[int, ...]) -> Predicted:
    """Factor analysis by EM, each hidden cell given the seen ones of its row."""
    ranks = tuple(rank for rank in ranks if rank < min(cells.X.shape))
    fit = validated_factors(np.random.default_rng(0), cells.seen, grid=ranks)
    score = log_cells(fit, cells.X, ~cells.hidden)[cells.hidden].mean()
    return fill(fit, cells.seen), float(score), len(fit.loadings)


def by_thali(cells: HiddenCells, observation: Any, seed: int, n_sweeps: int) -> Predicted:
    model = sampled(cells.seen, seed, n_sweeps, observation=observation)
    score = model.heldout_score(cells.X, cells.hidden, by="cell")
    return model.impute(cells.seen), score, float(np.mean(model.posterior_.draws["n_features"]))


def predictions(cells: HiddenCells, seed: int, n_sweeps: int, *, quick: bool) -> dict[str, Callable[[], Predicted]]:
    ranks, n_rounds = (RANKS[:2], 2) if quick else (RANKS, N_ROUNDS)
    zero = np.zeros(cells.X.shape)
    return {
        "means of genes": lambda: (zero, float(norm.logpdf(cells.X[cells.hidden]).mean()), 0),
        "PCA": lambda: by_reconstruction(decomposition.PCA, cells, ranks, n_rounds),
        "FactorAnalysis": lambda: by_reconstruction(decomposition.FactorAnalysis, cells, ranks, n_rounds),
        "SparsePCA": lambda: by_reconstruction(sparse_pca, cells, ranks, n_rounds),
        "FA by EM": lambda: by_em(cells, ranks),
        "thali FactorAnalysis": lambda: by_thali(cells, FactorAnalysis(), seed, n_sweeps),
        "thali SparseFactorAnalysis": lambda: by_thali(cells, SparseFactorAnalysis(), seed, n_sweeps),
    }


def hidden_cells(name: str, X: Array, seed: int, n_sweeps: int, record: Record, *, quick: bool) -> None:
    cells = hide(X)
    for method, predict in predictions(cells, seed, n_sweeps, quick=quick).items():
        if not record.has(name, method, seed):
            start = time.perf_counter()
            mean, score, k = predict()
            seconds = round(time.perf_counter() - start, 2)
            rmse = float(np.sqrt(np.mean((cells.X - mean)[cells.hidden] ** 2)))
            record.add({
                "set": name, "method": method, "seed": seed, "k": k, "score": score, "rmse": rmse, "seconds": seconds,
            })  # fmt: skip


# --- the run ----------------------------------------------------------------------------------------


def show(title: str, columns: dict[str, str], entries: list[Entry]) -> None:
    """Means over seeds."""
    cells = []
    for method in dict.fromkeys(e["method"] for e in entries):
        runs = [e for e in entries if e["method"] == method]
        cells.append([method, *(f"{np.mean([e[name] for e in runs]):{form}}" for name, form in columns.items())])
    heads = {"k": "K", "each": "by regulator", "score": "log score", "rmse": "RMSE", "seconds": "s"}
    show_table(title, ["method", *(heads.get(name, name) for name in columns)], cells)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the files are (else THALI_DATA)")
    parser.add_argument("--quick", action="store_true", help="40 genes, 40 sweeps, two ranks, few rounds, one seed")
    parser.add_argument("--genes", type=int, default=500, metavar="N", help="at most so many, those that vary most")
    parser.add_argument("--seeds", type=int, default=2, metavar="N")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    folder = options.data or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)
    there = {} if folder is None else {name: folder / file for name, file in FILES.items() if (folder / file).exists()}
    if len(there) < len(FILES):
        names = ", ".join(file for name, file in FILES.items() if name not in there)
        print(f"left out: give the folder of {names} by --data or THALI_DATA")

    n_genes, n_sweeps, n_seeds = (40, 40, 1) if options.quick else (options.genes, 2000, options.seeds)
    record = Record(options.json, {"genes": n_genes, "sweeps": n_sweeps}, ("set", "method", "seed"))
    record.about = {"machine": machine()}
    with threadpool_limits(1, "blas"):
        for seed in range(n_seeds):
            if "ecoli" in there:
                links(there["ecoli"], seed, n_sweeps, record)
            for name, path in there.items():
                hidden_cells(name, load(path, n_genes), seed, n_sweeps, record, quick=options.quick)
    columns = {"k": ".1f", "area": ".3f", "each": ".3f", "shuffled": ".3f", "seconds": ".1f"}
    if "ecoli" in there:
        mine = [e for e in record.entries if e["set"] == "links"]
        show("Known links of E. coli (0.0875 of all pairs)", columns, mine)
    for name in there:
        mine = [e for e in record.entries if e["set"] == name]
        show(f"Hidden cells: {name}", {"k": ".1f", "score": ".3f", "rmse": ".3f", "seconds": ".1f"}, mine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
