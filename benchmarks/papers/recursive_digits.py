"""Features of odd digits in one pass: who shares them, and what a classifier confuses (Figure 7).

    python benchmarks/papers/recursive_digits.py [--data FOLDER] [--quick] [--rows 3000] [--noise 0.02] [--seeds 2]
                                                 [--picture PATH] [--json PATH]

Schaeffer, Du, Liu & Fiete (2022), Section 5.3. Odd digits of `mnist_10k.npz`, pooled to 14 x 14 with white at 1, in
random order. The paper gives neither hyperparameters nor the number of digits. Here alpha = 2, beta = 1, a fixed noise
variance (`--noise`: the number of features depends on it), and a feature variance of the mean square of a pixel. 1000
further digits are encoded after the pass: shares are means over pairs of different digits, of the features that either
has (`thali.metrics.shared_features`, relative). Beside it the confusion matrix of a classifier: scikit-learn's support
vector machine in place of the paper's convolutional network. It is given 300 digits only, since with many there are
hardly any mistakes to compare with. `agreement` is the rank correlation over the ten pairs of classes: shared features
against confusion in both ways; `by chance` is the share of the permutations of the classes that agree as well.

Methods: R-IBP from the first row and the paper's recipe, in one pass; mean field with all rows at once; PCA with 20
components, whose codes are on where they are above their mean. See benchmarks/README.md.
"""

import argparse
import itertools
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers.recursive_parts import (
    DIGITS,
    RECIPE,
    RIBP,
    Method,
    Problem,
    data_folder,
    fit,
    found_files,
    odd_digits,
    recursive_methods,
)
from benchmarks.quality.record import Record
from benchmarks.tables import machine, show_table
from thali import MeanField, StickBreakingIBP
from thali.metrics import shared_features

MASS, N_TEST, CLASSIFIED, N_SPLITS = 2.0, 1000, 300, 10
PAIRS = [(3, 5), (7, 9), (1, 3), (1, 5)]  # of which the paper speaks
Array = np.ndarray
Entry = dict[str, Any]


def confusion(X: Array, y: Array, n_given: int, n_splits: int) -> Array:
    """Shares (true class, told class) over random splits."""
    names, total = np.unique(y), 0.0
    for split in range(n_splits):
        order = np.random.default_rng([split, 7]).permutation(len(y))
        given, asked = order[:n_given], order[n_given:]
        told = SVC(C=10.0).fit(X[given], y[given]).predict(X[asked])
        table = (y[asked, None] == names).astype(float).T @ (told[:, None] == names).astype(float)
        total = total + table / table.sum(axis=1, keepdims=True)
    return np.asarray(total) / n_splits


def agreement(shared: Array, confused: Array) -> tuple[float, float]:
    """Rank correlation over pairs of classes, and the share of permutations of the classes with one as large."""
    n = len(shared)
    pairs = np.triu_indices(n, 1)
    both = confused + confused.T
    found = float(spearmanr(shared[pairs], both[pairs]).statistic)
    others = [
        spearmanr(shared[np.ix_(p, p)][pairs], both[pairs]).statistic
        for p in map(list, itertools.permutations(range(n)))
    ]
    return found, float(np.mean(np.array(others) >= found - 1e-12))


def contrast(shared: Array) -> float:
    """Mean share within classes by that between."""
    n = len(shared)
    return float(np.diag(shared).mean() / shared[~np.eye(n, dtype=bool)].mean())


def presences(problem: Problem, name: str, method: Method | None, seed: int) -> tuple[Array, float]:
    """P(test row has feature), and seconds."""
    start = time.perf_counter()
    if method is None:  # PCA
        k = 20
        pca = PCA(k, random_state=seed).fit(problem.train)
        return (pca.transform(problem.test) > 0).astype(float), time.perf_counter() - start
    model = fit(problem, method, seed)
    seconds = time.perf_counter() - start
    return model.presence(problem.test), seconds


def methods() -> dict[str, Method | None]:
    own = recursive_methods()
    mean_field = MeanField(n_restarts=1, moves=False)
    return {
        RIBP: own[RIBP],
        RECIPE: own[RECIPE],
        "mean field": Method(lambda p: (StickBreakingIBP(mass=p.mass, truncation=40), mean_field)),
        "PCA, 20 signs": None,
    }


def draw(path: Path, tables: dict[str, Array], names: list[str]) -> None:
    from thali.report import style
    from thali.report.figures import save

    figure = style.new_figure(3.0 * len(tables), 3.2)
    for axes, (title, table) in zip(np.ravel(figure.subplots(1, len(tables))), tables.items(), strict=True):
        shown = table if title != "confused" else np.where(np.eye(len(names), dtype=bool), np.nan, table)
        axes.imshow(shown, cmap="Greys")
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(names)), names)
        style.headline(axes, title)
    save(figure, path)
    print(f"\ndrawn: {path}")


def show_matrix(title: str, names: list[str], table: Array, form: str) -> None:
    rows = [[name, *(f"{value:{form}}" for value in line)] for name, line in zip(names, table, strict=True)]
    show_table(title, ["", *names], rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the file is (else THALI_DATA)")
    parser.add_argument("--quick", action="store_true", help="300 rows, 200 tested, one seed")
    parser.add_argument("--rows", type=int, default=3000, metavar="N", help="digits in the stream, at most 4000")
    parser.add_argument("--noise", type=float, default=0.02, metavar="VARIANCE")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="orders of the stream")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw the matrices there")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    there = found_files(data_folder(options.data), [DIGITS])
    if not there:
        return 0
    n_rows, n_test, n_seeds = (300, 200, 1) if options.quick else (min(options.rows, 4000), N_TEST, options.seeds)

    record = Record(options.json, {"rows": n_rows, "noise": options.noise, "test": n_test}, ("method", "seed"))
    record.about = {"machine": machine()}
    with threadpool_limits(1, "blas"):
        X, y = odd_digits(there[DIGITS], n_rows + n_test)
        names = [str(name) for name in np.unique(y)]
        test, label = X[:n_test], y[:n_test]
        confused = confusion(X, y, CLASSIFIED, 2 if options.quick else N_SPLITS)
        for seed in range(n_seeds):
            train = X[n_test:][np.random.default_rng(seed).permutation(n_rows)]
            level = float(np.mean(train**2))
            problem = Problem(train, test, MASS, 1.0, options.noise, level)
            for name, method in methods().items():
                if not record.has(name, seed):
                    presence, seconds = presences(problem, name, method, seed)
                    shared = shared_features(presence, label, relative=True)
                    rank, chance = agreement(shared, confused)
                    record.add({
                        "method": name, "seed": seed, "k": presence.shape[1],
                        "each": float(presence.sum(axis=1).mean()),
                        "seconds": seconds, "rank": rank, "chance": chance, "contrast": contrast(shared),
                        "shared": shared.tolist(),
                    })  # fmt: skip
    show_matrix(f"Told by a classifier that saw {CLASSIFIED} digits (true by row)", names, confused, ".3f")
    tables = {"confused": confused}
    for name in methods():
        mine = [e for e in record.entries if e["method"] == name]
        tables[name] = np.mean([e["shared"] for e in mine], axis=0)
        show_matrix(f"Share of features in common: {name}", names, tables[name], ".3f")
    heads = ["method", "K", "features of a digit", "s", "within / between", "agreement", "by chance"]
    cells = []
    for name in methods():
        mine = [e for e in record.entries if e["method"] == name]
        figures = (
            ("k", ".1f"),
            ("each", ".1f"),
            ("seconds", ".1f"),
            ("contrast", ".2f"),
            ("rank", ".2f"),
            ("chance", ".3f"),
        )
        cells.append([name, *(f"{np.mean([e[key] for e in mine]):{form}}" for key, form in figures)])
    show_table(f"{n_rows} odd digits", heads, cells)
    if options.picture is not None:
        draw(options.picture, tables, names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
