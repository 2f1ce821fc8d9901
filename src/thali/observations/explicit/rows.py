"""The row variables that chains of a likelihood without engines of its own keep: codes, and the features themselves."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from thali.core.codebook import Codebook
from thali.core.observation import Engine
from thali.core.registry import stored
from thali.numerics.slice_sampling import slice_sample, slice_sample_positive
from thali.observations.explicit.codebook import ExplicitCodebook
from thali.observations.explicit.features import redraw_features
from thali.rng import make_generator

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.likelihood import Likelihood

Array = np.ndarray
Generator = np.random.Generator

_ROUNDS = 5  # in which features are fitted to codes that come without them


class ExplicitData(NamedTuple):
    """Checked data; a missing cell holds another value of its dim, so that every cell can be asked for."""

    X: Array
    seen: Array  # (n_rows, n_dims) whether a cell is observed

    @property
    def n_dims(self) -> int:
        return self.X.shape[1]


@stored("ExplicitRows")
class ExplicitRows(NamedTuple):
    """Row variables, and the features that go with them."""

    z: Array  # (n_rows, n_features) uint8
    codes: Array  # (n_rows, n_features)
    features: Array  # (n_features, n_dims)


class ExplicitChain(Engine):
    """ChainRows of any likelihood."""

    model: "Likelihood"

    def prepare(self, X: Array) -> ExplicitData:
        seen = ~np.isnan(X)
        first = X[seen.argmax(axis=0), np.arange(X.shape[1])]  # each dim has an observed cell
        return ExplicitData(np.where(seen, X, np.nan_to_num(first)), seen)

    def place(self, data: ExplicitData, codes: Array, X: Array) -> ExplicitRows:
        """Features are drawn given the codes, by the same random numbers every time."""
        rng = make_generator(0)
        dense = np.array(codes, dtype=float)
        features = self.model.draw_features(rng, dense.shape[1], data.n_dims)
        for _ in range(_ROUNDS):
            features = redraw_features(rng, self.model, data.X, data.seen, dense, features)
        return ExplicitRows((dense != 0).astype(np.uint8), dense, features)

    def completed(self, data: ExplicitData, local: ExplicitRows) -> Array:
        """Chains do not keep missing cells: they are zero."""
        return np.where(data.seen, data.X, 0.0)

    def codes(self, local: ExplicitRows) -> Array:
        return local.z if self.model.code_kind == "bits" else local.codes

    def check(self, data: ExplicitData, local: ExplicitRows) -> None:
        if not isinstance(local, ExplicitRows):
            raise ValueError("its row variables are those of another model")
        K = local.z.shape[1]
        shapes = {"codes": (local.codes, local.z.shape), "features": (local.features, (K, data.n_dims))}
        for name, (values, shape) in shapes.items():
            if values.shape != shape or values.dtype != np.float64 or not np.isfinite(values).all():
                raise ValueError(f"{name} does not fit its bits")
        if not np.array_equal(local.z, local.codes != 0):
            raise ValueError("its codes are not those of its bits")
        if not math.isfinite(self.log_evidence(data, local)):
            raise ValueError("the data are impossible in its state")

    def log_evidence(self, data: ExplicitData, local: ExplicitRows) -> float:
        """log p(X, codes, features | Z)."""
        model = self.model
        cells = np.where(data.seen, model.log_cells(data.X, local.codes, local.features), 0.0).sum()
        return float(cells + model.log_features(local.features).sum() + model.log_codes(local.codes))

    def resample(self, rng: Generator, spec: "Likelihood", data: ExplicitData, local: ExplicitRows) -> "Likelihood":
        """Each learned hyperparameter by a slice, given codes and features."""
        current = self.model
        for name, prior in spec.learned.items():
            target = _target(current, name, prior, data, local)
            low, high = prior.support
            value = float(getattr(current, name))
            if (low, high) == (0.0, math.inf):
                value = slice_sample_positive(target, value, rng)
            else:
                value = slice_sample(target, value, rng)
            current = current.updated(**{name: value})
        return current

    def codebook(self, data: ExplicitData, local: ExplicitRows) -> Codebook:
        used = local.z.any(axis=0)
        codes = local.codes[:, used]
        weights = None if self.model.code_kind == "bits" else codes[codes != 0]
        counts = local.z[:, used].sum(axis=0, dtype=np.int64)
        return ExplicitCodebook(local.features[used], counts, weights)


def _target(
    current: "Likelihood", name: str, prior: Any, data: ExplicitData, local: ExplicitRows
) -> Callable[[float], float]:
    """Log density of one hyperparameter given the row variables and the others, up to a constant."""
    low, high = prior.support

    def log_density(value: float) -> float:
        if not low < value < high:
            return -math.inf
        chain = ExplicitChain(current.updated(**{name: value}))
        density = prior.log_prob(value) + chain.log_evidence(data, local)
        return density if not math.isnan(density) else -math.inf

    return log_density
