"""A whole file of every kind that thali reads: small, and made by thali itself, numpy, scipy, gzip and pyarrow."""

import gzip
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from thali import (
    IBP,
    ICA,
    BetaBernoulli,
    BetaProcess,
    BPMeans,
    CollapsedGibbs,
    FactorAnalysis,
    Gibbs,
    LatentFeatures,
    LinearGaussian,
    MeanField,
    NormalOffset,
    ParticleFilter,
    PerDim,
    PoissonGamma,
    SliceSampler,
    SparseFactorAnalysis,
    StochasticMeanField,
)
from thali.storage import checkpoint

FEW = {"n_warmup": 2, "n_draws": 3}
OPTIMISE = MeanField(n_restarts=1, max_iter=5)
BLOCKS = StochasticMeanField(n_restarts=1, n_epochs=3, batch_size=5)
VECTORS = LinearGaussian(noise_var=PerDim(), offset=NormalOffset(), noise_floor=0.01)


def rows() -> np.ndarray:
    """12 x 3, a cell missing."""
    rng = np.random.default_rng(0)
    X = rng.integers(2, size=(12, 2)) @ np.array([[4.0, 4, 0], [0, 0, 4]]) + 0.3 * rng.standard_normal((12, 3))
    X[0, 1] = np.nan
    return X


def counts() -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.poisson(rng.integers(2, size=(12, 2)) @ np.array([[4.0, 4, 0], [0, 0, 4]]) + 0.1).astype(float)


FITS: dict[str, dict[str, Any]] = {
    "bits": {"inference": CollapsedGibbs(start="empty", **FEW)},
    "finite": {
        "observation": VECTORS,
        "prior": BetaBernoulli(n_features=3),
        "inference": CollapsedGibbs(start="empty", **FEW),
    },
    "weighted": {"observation": FactorAnalysis(noise_floor=0.0), "inference": Gibbs(**FEW)},
    "counts": {"observation": PoissonGamma(), "inference": Gibbs(**FEW)},
    "sparse-dims": {"observation": SparseFactorAnalysis(), "inference": Gibbs(**FEW)},
    "sparse-rows": {"observation": SparseFactorAnalysis(sparse="rows"), "inference": Gibbs(**FEW)},
    "mean-field": {"inference": OPTIMISE},
    "mean-field-weighted": {"observation": ICA(noise_floor=0.0), "inference": OPTIMISE},
    "mean-field-counts": {"observation": PoissonGamma(), "prior": BetaProcess(), "inference": OPTIMISE},
    "blocks": {"inference": BLOCKS},
    "blocks-counts": {"observation": PoissonGamma(), "inference": BLOCKS},
    "stream": {"inference": ParticleFilter(n_particles=5)},
    "point": {"inference": BPMeans(n_restarts=2)},
}


def make_fit(name: str, path: Path) -> None:
    parts, X = FITS[name], data_of(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LatentFeatures(n_chains=2, n_jobs=1, random_state=0, **parts)
        model = model.partial_fit(X) if name == "blocks-counts" else model.fit(X)
    model.save(path)


RUNS: dict[str, dict[str, Any]] = {
    "run": {"inference": CollapsedGibbs(start="empty", **FEW)},
    "run-finite": FITS["finite"],
    "run-weighted": FITS["weighted"],
    "run-independent": {"observation": ICA(noise_floor=0.0), "inference": Gibbs(**FEW)},
    "run-slice": {"prior": IBP(discount=0.25), "inference": SliceSampler(**FEW)},
    "run-counts": FITS["counts"],
    "run-counts-sparse": FITS["counts"],
}


def data_of(name: str) -> Any:
    """What a fit or a run of this name was fitted to."""
    if "counts" not in name:
        return rows()
    return sparse.csr_array(counts()) if "sparse" in name else counts()


def make_run(name: str, folder: Path) -> None:
    """The folder of a run that stands in the middle."""
    seen: list[dict[str, bytes]] = []
    keep, every, cost = checkpoint.Checkpoint.keep, checkpoint.EVERY, checkpoint._COST

    def watch(self: Any, chain: Any, is_last: bool) -> None:
        keep(self, chain, is_last)
        seen.append({file.name: file.read_bytes() for file in self.folder.glob("*.thali")})

    checkpoint.Checkpoint.keep, checkpoint.EVERY, checkpoint._COST = watch, 0.0, 0.0  # type: ignore[method-assign]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            LatentFeatures(
                n_chains=2, n_jobs=1, random_state=0, checkpoint=folder.with_suffix(".whole"), **RUNS[name]
            ).fit(data_of(name))
    finally:
        checkpoint.Checkpoint.keep, checkpoint.EVERY, checkpoint._COST = keep, every, cost  # type: ignore[method-assign]
    folder.mkdir()
    for file, content in seen[-4].items():
        (folder / file).write_bytes(content)


def _csv(separator: str) -> bytes:
    return pd.DataFrame(rows(), columns=list("abc")).to_csv(index=False, sep=separator).encode()


def _saved(save: Callable[[io.BytesIO], Any]) -> bytes:
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


def _sparse(kind: str) -> bytes:
    return _saved(lambda file: sparse.save_npz(file, sparse.csr_array(counts()).asformat(kind)))


TABLES: dict[str, Callable[[], bytes]] = {
    "plain.npy": lambda: _saved(lambda file: np.save(file, rows())),
    "plain.npz": lambda: _saved(lambda file: np.savez_compressed(file, X=rows(), names=np.array(["a", "b"]))),
    "csr.npz": lambda: _sparse("csr"),
    "csc.npz": lambda: _sparse("csc"),
    "coo.npz": lambda: _sparse("coo"),
    "bsr.npz": lambda: _sparse("bsr"),
    "dia.npz": lambda: _sparse("dia"),
    "text.csv": lambda: _csv(","),
    "text.tsv": lambda: _csv("\t"),
    "text.csv.gz": lambda: gzip.compress(_csv(","), mtime=0),
    "frame.parquet": lambda: _saved(
        lambda file: pd.DataFrame(rows(), columns=list("abc"), index=[f"r{i}" for i in range(12)]).to_parquet(file)
    ),
}


def make_all(folder: Path, fits: list[str], runs: list[str]) -> dict[str, Path]:
    """Whole files by the name of their kind; of fits and runs only those that are asked for."""
    found = {}
    for name in fits:
        found[name] = folder / f"{name}.thali"
        make_fit(name, found[name])
    for name in runs:
        found[name] = folder / name
        make_run(name, found[name])
    for name, content in TABLES.items():
        found[name] = folder / name
        found[name].write_bytes(content())
    return found
