"""Whether what a file says fits together. Kernels do not look before they read, so this is asked when a file is loaded.

Every check raises a ValueError, which the reader of the file turns into an InvalidFileError.
"""

from typing import Any

import numpy as np

from thali.core.codebook import DIMS, FEATURES, ONES, PAIR, ROWS
from thali.core.model import lacking
from thali.core.observation import Observation
from thali.core.protocols.engines.chains import ChainRows
from thali.core.protocols.engines.predictions import Predictions
from thali.core.spec import Spec
from thali.files import limits
from thali.posteriors.approximation import Factors
from thali.posteriors.base import Posterior
from thali.posteriors.draws import Draws
from thali.posteriors.ragged import Ragged
from thali.posteriors.variational import Variational
from thali.storage.spec_json import to_json

Array = np.ndarray

_PARTS = ("prior", "observation", "inference")
_SETTING = bool | int | float | str | None
_BITS = 2**23  # unpacked at a time


def check_about(about: Any) -> None:
    """The parts fit together, words are words, and settings are settings."""
    wrong = lacking(about.model.prior, about.model.observation, about.choice.inference)
    names = about.dim_names
    texts = (about.choice.reason, about.data_fingerprint, *names)
    if wrong or not all(isinstance(text, str) for text in texts) or not isinstance(names, list):
        raise ValueError("; ".join(wrong) or "its words are none")
    if type(about.n_dims) is not int or about.n_dims < 1 or len(names) not in (0, about.n_dims):
        raise ValueError("its words do not fit its dims")
    for name, value in about.params.items():
        kind = _SETTING if name not in _PARTS else Spec | str if name == "inference" else Spec | None
        if not isinstance(value, kind):
            raise ValueError(f"{name} is no setting")


def table_of_pairs(posterior: Posterior) -> int:
    """Bytes of a table of all pairs of features, which are compared with each other."""
    if isinstance(posterior, Draws):
        n_features = int(posterior.packed_z.shapes[:, 1].max(initial=0))
    elif isinstance(posterior, Variational):
        n_features = posterior.z_prob.shape[1]
    else:
        n_features = len(posterior.features(0, 0))
    return limits.DOUBLE * n_features**2


def check_history(history: dict[str, Array], posterior: Posterior, about: Any) -> None:
    """Traces of numbers: one row for each chain, restart or pass, and as many columns in all of them."""
    traces = [values for values in history.values() if values.ndim == 2]
    flat = [values for values in history.values() if values.ndim == 1]
    lengths = {values.shape for values in traces}
    if len(traces) + len(flat) < len(history) or not traces or len(lengths) > 1 or 0 in traces[0].shape:
        raise ValueError("its history has gaps")
    n_runs = len(traces[0])
    if not all(len(values) in (1, n_runs) for values in flat):
        raise ValueError("its history has gaps")
    by_chains = isinstance(posterior, Draws) and not hasattr(about.choice.inference, "n_restarts")
    if by_chains and n_runs != posterior.n_chains:
        raise ValueError("its history is that of other chains")


def check_draws(posterior: Draws, n_dims: int) -> None:
    """All arrays of a posterior have the sizes that follow from each other, and finite numbers in their domains."""
    draws, Z, books = posterior.draws, posterior.packed_z, posterior.codebooks
    n_features = draws["n_features"]
    k = n_features.ravel()
    observation = posterior.model.observation
    n_rows = posterior.n_rows
    n_owners = n_rows if observation.owners == "rows" else n_dims
    lengths = {
        FEATURES: k,
        DIMS: np.full_like(k, n_dims),
        ROWS: np.full_like(k, n_rows),
        PAIR: np.full_like(k, 2),
        ONES: draws["n_on"].ravel(),
    }
    kind = observation.engine(Predictions).codebook_kind
    axes = kind.axes
    names = [name for name in axes if not (ONES in axes[name] and posterior.codes_are_bits)]
    shapes = {name: np.column_stack([lengths[what] for what in axes[name]]) for name in names}
    sound = {
        "draws": all(values.shape == n_features.shape and _are_numbers(values) for values in draws.values()),
        "n_features": k.size > 0 and k.dtype.kind == "i",
        "Z": Z.is_binary and len(Z) == k.size and (Z.shapes[:, 0] == n_owners).all() and n_rows > 0,
        "codebook": books.keys() == shapes.keys()
        and all(np.array_equal(books[name].shapes, shapes[name]) for name in shapes)
        and all(_are_numbers(books[name].values) for name in books)
        and all((books[name].values > 0).all() for name in kind.positive)
        and all(books[name].values.dtype == np.float64 for name in shapes.keys() - {"counts", "weights", "scales"}),
    }
    if not all(sound.values()):
        raise ValueError(f"{next(name for name in sound if not sound[name])} does not fit the rest")
    _check_counts(Z, books["counts"])
    n_columns = posterior.model.prior.n_features
    if n_columns is not None and (Z.shapes[:, 1] != n_columns).any():
        raise ValueError("Z does not have the columns of its prior")
    for part in ("prior", "observation"):
        spec = getattr(posterior.model, part)
        for end in (np.min, np.max):  # domains are intervals
            edge = {}
            for name in spec.learned:
                values = posterior.hyper[f"{part}.{name}"]
                if values.shape[:2] != n_features.shape or values.dtype != np.float64:
                    raise ValueError(f"{part}.{name} does not fit the draws")
                extreme = end(values, axis=(0, 1))
                edge[name] = extreme if extreme.ndim else float(extreme)
            check_concrete(spec.replace(**edge), n_dims)


def _check_counts(Z: Ragged, counts: Ragged) -> None:
    """The columns that are not empty have as many ones as it says; draws of one size are looked at together."""
    stored = (Z.shapes.prod(axis=1) + 7) // 8
    start = np.cumsum(stored) - stored
    where = np.cumsum(counts.shapes[:, 0]) - counts.shapes[:, 0]
    for n_columns in np.unique(Z.shapes[:, 1]):
        same = np.flatnonzero(Z.shapes[:, 1] == n_columns)
        n_rows = int(Z.shapes[same[0], 0])
        at_once = max(_BITS // max(n_rows * int(n_columns), 1), 1)
        for some in np.split(same, range(at_once, len(same), at_once)):
            packed = Z.values[start[some][:, None] + np.arange(stored[some[0]])]
            bits = np.unpackbits(packed, axis=1, count=n_rows * int(n_columns)).reshape(len(some), n_rows, -1)
            found = bits.sum(axis=1, dtype=np.int64)
            told = np.repeat(where[some], counts.shapes[some, 0]) + _steps(counts.shapes[some, 0])
            if not np.array_equal((found > 0).sum(axis=1), counts.shapes[some, 0]) or not np.array_equal(
                found[found > 0], counts.values[told]
            ):
                raise ValueError("Z does not have the features that it says")


def _steps(lengths: Array) -> Array:
    """0, 1, ... anew for each length."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def check_variational(posterior: Variational, about: Any) -> None:
    """The factors of rows, features and weights belong to as many rows, features and dims, and have finite numbers."""
    factors, n_dims = posterior.factors, about.n_dims
    if not isinstance(factors, Factors) or type(posterior.model.prior) is not type(about.model.prior):
        raise ValueError("its factors are none of a variational fit")
    z_prob = factors.local.z_prob
    observation = factors.q.observation
    if type(observation) is not type(about.model.observation):
        raise ValueError("its observation model is another than that of the fit")
    check_concrete(observation, n_dims)
    n_rows, n_features = z_prob.shape
    book = posterior.q.codebook
    sound = {
        "n_rows": posterior.n_rows > 0,
        "rows": all(len(field) == n_rows and np.isfinite(field).all() for field in factors.local),
        "z_prob": bool(((z_prob >= 0) & (z_prob <= 1)).all()),
        "weights": len(posterior.model.prior.expected_weights(factors.weights)) >= n_features,
        "bound": isinstance(factors.bound, float) and np.isfinite(factors.bound),
    }
    book.check(n_features, n_dims)
    if not all(sound.values()):
        raise ValueError(f"{next(name for name in sound if not sound[name])} does not fit the rest")
    posterior.q.engine.check(factors.q, factors.local)


def check_concrete(spec: Any, n_dims: int) -> None:
    """A part of a model with numbers for all hyperparameters, as many as there are dims where each has its own."""
    spec.require_concrete("load")
    if isinstance(spec, Observation):
        spec.check_data(np.zeros((1, n_dims)))


def check_state(state: Any, about: Any, X: Any) -> None:
    """The state of a chain is one that it can have on these data: the sampler and the observation model judge."""
    for part in ("prior", "observation"):
        spec, asked = getattr(state, part), getattr(about.model, part)
        same = type(spec) is type(asked) and all(
            to_json(value) == to_json(getattr(spec, name))
            for name, value in asked.get_params(deep=False).items()
            if name not in asked.learned
        )
        if not same:
            raise ValueError(f"its {part} is another than that of the run")
        check_concrete(spec, X.shape[1])
    n_owners = state.observation.n_owners(X.shape)
    about.choice.inference.check_sound(state, state.observation.engine(ChainRows).prepare(X), n_owners)


def _are_numbers(values: Array) -> bool:
    return values.dtype.kind in "if" and bool(np.isfinite(values).all())
