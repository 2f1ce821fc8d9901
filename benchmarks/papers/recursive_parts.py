"""What the benchmarks of Schaeffer, Du, Liu & Fiete (2022) share: data, methods, and the score of a fit."""

import csv
import gzip
import itertools
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logit
from sklearn import decomposition
from sklearn.model_selection import cross_val_score

from thali import (
    IBP,
    BetaBernoulli,
    CollapsedGibbs,
    LatentFeatures,
    LinearGaussian,
    MeanField,
    ParticleFilter,
    RecursiveIBP,
    StickBreakingIBP,
    StochasticMeanField,
    StreamingMeanField,
)
from thali.core.protocols.engines.predictions import Predictions
from thali.observations.gaussian.codebook import GaussianCodebook

DIGITS, DIABETES = "mnist_10k.npz", "diabetes130.csv.gz"
LEUKAEMIA, OMNIGLOT = "gene_leukemia_golub.npz", "omniglot_small1.npz"
Array = np.ndarray
Entry = dict[str, Any]


class Problem(NamedTuple):
    """Rows to learn from in their order, rows to predict, and all hyperparameters."""

    train: Array
    test: Array
    mass: float
    concentration: float
    noise_var: float
    feature_var: float
    Z: Array | None = None  # of the training rows, where it is known
    features: Array | None = None

    def observation(self) -> LinearGaussian:
        return LinearGaussian(noise_var=self.noise_var, feature_var=self.feature_var)

    def ibp(self) -> IBP:
        return IBP(mass=self.mass, concentration=self.concentration)


class Method(NamedTuple):
    """How a method makes (prior, inference) from a problem; `streams` if it sees each row once."""

    make: Callable[[Problem], tuple[Any, Any]]
    streams: bool = False
    two_parameters: bool = False  # whether it knows a concentration other than 1


# --- methods --------------------------------------------------------------------------------------


def truncation(problem: Problem) -> int:
    """Twice the number of features that the rows have on average, as the authors' code."""
    return 2 * int(1 + problem.ibp().expected_features(len(problem.train)))


def finite(problem: Problem) -> BetaBernoulli:
    return BetaBernoulli(mass=problem.mass, n_features=truncation(problem))


def sticks(problem: Problem) -> StickBreakingIBP:
    return StickBreakingIBP(mass=problem.mass, truncation=truncation(problem))


RIBP, KEPT, RECIPE = "R-IBP", "R-IBP, 100 rows kept first", "R-IBP, the paper's recipe"


def recursive(**settings: Any) -> Method:
    return Method(lambda p: (p.ibp(), RecursiveIBP(**settings)), streams=True, two_parameters=True)


def recursive_methods() -> dict[str, Method]:
    return {
        RIBP: recursive(n_start=0),
        RECIPE: recursive(recipe="paper", births="poisson", n_inner=3),
    }


def batch_methods(n_sweeps: int = 200) -> dict[str, Method]:
    half = max(n_sweeps // 2, 1)
    plain = MeanField(n_restarts=1, start="random", moves=False)
    return {
        KEPT: recursive(),  # the default: features begin with a mean field of the first rows, which takes long
        "finite mean field": Method(lambda p: (finite(p), plain)),
        "infinite mean field": Method(lambda p: (sticks(p), plain)),
        "infinite mean field, with moves": Method(lambda p: (sticks(p), MeanField(n_restarts=1))),
        "stochastic mean field": Method(
            lambda p: (sticks(p), StochasticMeanField(method="robbins-monro", batch_size=50, n_restarts=1, moves=False))
        ),
        "collapsed Gibbs": Method(
            lambda p: (p.ibp(), CollapsedGibbs(n_warmup=half, n_draws=half)), two_parameters=True
        ),
        "particle filter": Method(
            lambda p: (p.ibp(), ParticleFilter(n_particles=50)), streams=True, two_parameters=True
        ),
    }


def stream_methods() -> dict[str, Method]:
    """One pass. The authors ran the streaming baselines with t0 = kappa = 0: at each row all that was known is
    forgotten; the smallest exponent says that here."""
    published = {"start": "uniform", "features": "independent", "n_inner": 20}
    declared = StreamingMeanField(batch_size=10, **published)
    as_run = StreamingMeanField(batch_size=1, forgetting=1e-12, delay=0.0, **published | {"n_inner": 5})
    return {
        "streaming finite, forgetting all": Method(lambda p: (finite(p), as_run), streams=True),
        "streaming infinite, forgetting all": Method(lambda p: (sticks(p), as_run), streams=True),
        "streaming finite, rho = 1": Method(lambda p: (finite(p), declared), streams=True),
        "streaming infinite, rho = 1": Method(lambda p: (sticks(p), declared), streams=True),
        "StreamingMeanField": Method(lambda p: (sticks(p), StreamingMeanField()), streams=True),
    }


def fit(problem: Problem, method: Method, seed: int, observation: Any = None, **settings: Any) -> LatentFeatures:
    """One chain or restart on one thread; warnings of short chains are left out."""
    prior, inference = method.make(problem)
    observation = problem.observation() if observation is None else observation
    settings = {"n_chains": 1, "n_jobs": 1, "verbose": False} | settings
    model = LatentFeatures(observation, prior, inference, random_state=seed, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(problem.train)


def measured(name: str, problem: Problem, method: Method, seed: int) -> Entry:
    """Seconds of the fit, features, and the mean log density of a test row."""
    start = time.perf_counter()
    model = fit(problem, method, seed)
    seconds = time.perf_counter() - start
    score = float(model.score(problem.test))
    return {"method": name, "seed": seed, "k": model.n_components_, "score": score, "seconds": seconds}


# --- references -----------------------------------------------------------------------------------


def log_rows(problem: Problem, features: Array, chance: Array, gram_inv: Array, rate: float) -> Array:
    """log p(x) of the test rows by the library's estimator: features N(features_d, noise_var gram_inv) in each dim,
    Poisson(rate) further ones."""
    book = GaussianCodebook(features, chance * len(problem.train), gram_inv)
    engine = problem.observation().engine(Predictions)
    return engine.encode(problem.test, book, logit(chance), rate).log_density


def truth_known(problem: Problem) -> float:
    """The score of who knows the features, and the training rows' bits."""
    assert problem.Z is not None
    assert problem.features is not None
    used = problem.Z.any(axis=0)
    rate = problem.concentration + len(problem.Z)
    none = np.zeros((int(used.sum()), int(used.sum())))
    chance = problem.Z[:, used].sum(axis=0) / rate
    return float(
        log_rows(problem, problem.features[used], chance, none, problem.ibp().new_rate(len(problem.Z) + 1)).mean()
    )


def ordinary(problem: Problem, seed: int) -> dict[str, Callable[[], tuple[float, int]]]:
    """(score, number of components) of scikit-learn's models, that number by cross-validation."""
    most = min(problem.train.shape[1] - 1, len(problem.train) // 2)
    grid = [k for k in (1, 2, 3, 5, 8, 12, 20, 30, 50, 80) if k <= most]

    def chosen(make: Callable[[int], Any]) -> tuple[float, int]:
        scores = [cross_val_score(make(k), problem.train, cv=5).mean() for k in grid]
        k = grid[int(np.argmax(scores))]
        return float(make(k).fit(problem.train).score(problem.test)), k

    return {
        "PCA, cross-validated": lambda: chosen(lambda k: decomposition.PCA(k, random_state=seed)),
        "FA, cross-validated": lambda: chosen(lambda k: decomposition.FactorAnalysis(k, random_state=seed)),
    }


# --- data -----------------------------------------------------------------------------------------


def synthetic(
    seed: int, n_train: int, n_test: int, n_dims: int, mass: float, concentration: float = 1.0,
    noise_var: float = 1.0, feature_var: float = 1.0,
) -> Problem:  # fmt: skip
    """Z ~ IBP, features and noise normal. The first rows are for training, the next ones, of the same restaurant, for
    testing."""
    rng = np.random.default_rng([seed, n_dims, round(100 * mass), round(100 * concentration), round(100 * noise_var)])
    Z = IBP(mass=mass, concentration=concentration).simulate(rng, n_train + n_test)
    A = np.sqrt(feature_var) * rng.standard_normal((Z.shape[1], n_dims))
    X = Z @ A + np.sqrt(noise_var) * rng.standard_normal((len(Z), n_dims))
    return Problem(X[:n_train], X[n_train:], mass, concentration, noise_var, feature_var, Z[:n_train], A)


def data_folder(given: Path | None) -> Path | None:
    return given or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)


def found_files(folder: Path | None, names: Sequence[str]) -> dict[str, Path]:
    """Those that are there; says which are not."""
    there = {} if folder is None else {name: folder / name for name in names if (folder / name).exists()}
    if len(there) < len(names):
        missing = ", ".join(name for name in names if name not in there)
        print(f"left out: give the folder of {missing} by --data or THALI_DATA")
    return there


def standardised(X: Array, n_train: int) -> Array:
    """Each dim by mean and standard deviation of the first rows; dims that are constant there are left out."""
    mean, sd = X[:n_train].mean(axis=0), X[:n_train].std(axis=0)
    return (X[:, sd > 1e-9] - mean[sd > 1e-9]) / sd[sd > 1e-9]


def odd_digits(path: Path, n_rows: int, seed: int = 5) -> tuple[Array, Array]:
    """Odd digits pooled to 14 x 14, in units of white, and their labels, in random order."""
    with np.load(path, allow_pickle=False) as file:
        X, y = file["X"] / 255.0, file["y"]
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(y % 2 == 1))[:n_rows]
    return X[rows].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196), y[rows]


def leukaemia(path: Path, n_genes: int) -> Array:
    """Samples in random order, log2 of intensities; the genes that vary most."""
    with np.load(path, allow_pickle=False) as file:
        X = np.log2(np.clip(file["X"].astype(float), 100, 16000))
    X = X[np.random.default_rng(5).permutation(len(X))]
    return X[:, np.sort(np.argsort(-X.var(axis=0), kind="stable")[:n_genes])]


def omniglot(path: Path, seed: int = 5) -> Array:
    """Characters of 28 x 28 pixels in units of ink, alphabet by alphabet and character by character."""
    with np.load(path, allow_pickle=False) as file:
        return file["X28"] / 255.0


NUMBERS = (
    "time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications", "number_outpatient",
    "number_emergency", "number_inpatient", "number_diagnoses",
)  # fmt: skip
ORDERED = {
    "max_glu_serum": ("None", "Norm", ">200", ">300"), "A1Cresult": ("None", "Norm", ">7", ">8"),
    "readmitted": ("NO", ">30", "<30"),
}  # fmt: skip
IDENTITIES = ("encounter_id", "patient_nbr", "weight", "diag_1", "diag_2", "diag_3")  # or nearly always unknown


def diabetes(path: Path, n_rows: int, rare: float = 0.02) -> Array:
    """The first stays of some patients in the file's order: of as many as n_rows among the first 4 n_rows lines.

    Counts and ordered levels are numbers; of other columns each level that a share `rare` of the rows has, and not
    nearly all, is a dim of zeros and ones.
    """
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(itertools.islice(csv.DictReader(file), 4 * n_rows))
    first: dict[str, dict[str, str]] = {}
    for row in rows:
        first.setdefault(row["patient_nbr"], row)
    stays = list(first.values())
    stays = [stays[i] for i in np.sort(np.random.default_rng(5).permutation(len(stays))[:n_rows])]
    columns = []
    for name in stays[0]:
        values = [row[name] for row in stays]
        if name in IDENTITIES:
            continue
        if name in NUMBERS:
            columns.append(np.log1p(np.array(values, dtype=float)))
        elif name == "age":
            columns.append(np.array([int(value[1:].partition("-")[0]) for value in values], dtype=float))
        elif name in ORDERED:
            columns.append(np.array([ORDERED[name].index(value) for value in values], dtype=float))
        else:
            levels, count = np.unique(values, return_counts=True)
            kept = [v for v, n in zip(levels, count, strict=True) if rare * n_rows <= n <= (1 - rare) * n_rows]
            kept = kept[1:] if len(levels) == 2 else kept  # the other one is its complement
            columns += [np.array([value == level for value in values], dtype=float) for level in kept]
    return np.stack(columns, axis=1)
