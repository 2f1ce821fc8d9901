"""A fit to a `.thali` file and back."""

import os
import platform
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from thali import files
from thali.auto import Choice
from thali.errors import InvalidFileError
from thali.posterior import Draws
from thali.ragged import Ragged
from thali.spec_json import from_json, to_json


class SavedFit(NamedTuple):
    """All that a fitted estimator holds."""

    params: dict[str, Any]  # of the estimator
    posterior: Draws
    history: dict[str, np.ndarray]
    choice: Choice
    data_fingerprint: str
    n_dims: int
    dim_names: list[str]  # empty when X had none


def save(fit: SavedFit, path: str | os.PathLike[str]) -> None:
    params = dict(fit.params)
    if not isinstance(params["random_state"], int | np.integer | None):
        params["random_state"] = None  # a generator that has moved on would not reproduce the run
    meta = {
        "thali": version("thali"),
        "versions": {name: version(name) for name in ("numpy", "scipy", "numba", "scikit-learn")}
        | {"python": platform.python_version()},
        "params": {name: to_json(value) for name, value in params.items()},
        "model": to_json(fit.posterior.model),
        "inference": to_json(fit.choice.inference),
        "reason": fit.choice.reason,
        "data_fingerprint": fit.data_fingerprint,
        "n_dims": fit.n_dims,
        "dim_names": fit.dim_names,
    }
    arrays: dict[str, np.ndarray] = {}
    for prefix, group in (("draws", fit.posterior.draws), ("hyper", fit.posterior.hyper), ("history", fit.history)):
        arrays |= {f"{prefix}/{name}": values for name, values in group.items()}
    ragged = {"Z": fit.posterior.packed_z} | {f"codebook/{k}": v for k, v in fit.posterior.codebooks.items()}
    for name, packed in ragged.items():
        arrays |= {f"{name}.values": packed.values, f"{name}.shapes": packed.shapes}
    files.write(path, meta, arrays)


def load(path: str | os.PathLike[str]) -> SavedFit:
    """Nothing in the file is executed; a damaged one gives an InvalidFileError."""
    meta, arrays = files.read(path)
    try:
        books = [name.removesuffix(".shapes") for name in _group(arrays, "codebook/") if name.endswith(".shapes")]
        posterior = Draws(
            from_json(meta["model"]),
            _group(arrays, "draws/"),
            _group(arrays, "hyper/"),
            _ragged(arrays, "Z"),
            {name: _ragged(arrays, f"codebook/{name}") for name in books},
        )
        posterior.concrete(*posterior.representative)  # all hyperparameters are there
        if posterior.features(*posterior.representative).shape[1] != int(meta["n_dims"]):
            raise ValueError("the features do not have the dims that it says")
        return SavedFit(
            {name: from_json(value) for name, value in meta["params"].items()},
            posterior,
            _group(arrays, "history/"),
            Choice(from_json(meta["inference"]), meta["reason"]),
            meta["data_fingerprint"],
            int(meta["n_dims"]),
            list(meta["dim_names"]),
        )
    except InvalidFileError as error:
        raise InvalidFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise files.damaged(path, f"{type(error).__name__}: {error}") from error


def _group(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _ragged(arrays: dict[str, np.ndarray], name: str) -> Ragged:
    ragged = Ragged(arrays[f"{name}.values"], arrays[f"{name}.shapes"])
    if not ragged.is_sound():
        raise ValueError(f"{name} does not have the size that it says")
    return ragged
