"""Posterior draws: what was sampled, label-invariant summaries of it, and the encoding of new rows.

Features have no order, so only quantities that do not depend on their labels are averaged over draws. One draw, the
representative, serves as the codebook in which new rows are encoded.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from thali.model import Model
from thali.ragged import Ragged

Array = np.ndarray

_POOLED = 16  # draws over which predictive densities are averaged


class Draw(NamedTuple):
    """One posterior draw."""

    z: Array
    log_joint: float
    prior: Any  # concrete
    observation: Any  # concrete
    codebook: dict[str, Array]


class Draws:
    """Draws of several chains, all of the same length.

    `draws` maps names to (chain, draw) arrays of label-invariant quantities: `n_features` (in use by some row), `n_on`
    (ones in Z), `log_joint`, and each learned hyperparameter (the mean over dims where there is one per dim).
    """

    def __init__(
        self, model: Model, draws: dict[str, Array], hyper: dict[str, Array], Z: Ragged, codebooks: dict[str, Ragged]
    ) -> None:
        self.model, self.draws, self.hyper, self.packed_z, self.codebooks = model, draws, hyper, Z, codebooks
        self.n_chains, self.n_draws = draws["n_features"].shape

    @classmethod
    def from_chains(cls, model: Model, chains: Sequence[Sequence[Draw]]) -> "Draws":
        """`model` is the spec that was fitted, adapted to the data."""
        flat = [draw for chain in chains for draw in chain]
        shape = (len(chains), len(chains[0]))
        hyper = {
            f"{part}.{name}": _stack([getattr(getattr(d, part), name) for d in flat], shape)
            for part in ("prior", "observation")
            for name in getattr(model, part).learned
        }
        draws = {
            "n_features": _stack([int(d.z.any(axis=0).sum()) for d in flat], shape),
            "n_on": _stack([int(d.z.sum()) for d in flat], shape),
            "log_joint": _stack([d.log_joint for d in flat], shape),
        }
        for name, values in hyper.items():
            short = name.partition(".")[2]
            draws[short] = values if values.ndim == 2 else values.mean(axis=2)
        codebooks = {name: Ragged.pack(d.codebook[name] for d in flat) for name in flat[0].codebook}
        return cls(model, draws, hyper, Ragged.pack(d.z for d in flat), codebooks)

    # ---- one draw

    def _index(self, chain: int, draw: int) -> int:
        return range(self.n_chains)[chain] * self.n_draws + range(self.n_draws)[draw]

    def Z(self, chain: int, draw: int) -> Array:  # noqa: N802 (the matrix has this name)
        """Z of one draw, (n_rows, n_features) uint8; a finite prior's empty columns included."""
        return self.packed_z[self._index(chain, draw)]

    def features(self, chain: int, draw: int) -> Array:
        """Posterior mean of the features in use given Z of that draw, (n_features, n_dims)."""
        return self.codebook(chain, draw)["features"]

    def codebook(self, chain: int, draw: int) -> dict[str, Array]:
        return {name: arrays[self._index(chain, draw)] for name, arrays in self.codebooks.items()}

    def concrete(self, chain: int, draw: int) -> Model:
        """The model with the hyperparameters of one draw."""
        parts = {}
        for part in ("prior", "observation"):
            spec = getattr(self.model, part)
            values = {name: self.hyper[f"{part}.{name}"][chain, draw] for name in spec.learned}
            parts[part] = spec.replace(**{n: v if np.ndim(v) else float(v) for n, v in values.items()})
        return Model(**parts)

    @property
    def n_rows(self) -> int:
        return int(self.packed_z.shapes[0, 0])

    # ---- summaries

    @property
    def k_posterior(self) -> dict[int, float]:
        """P(number of features = K), over all chains."""
        values, counts = np.unique(self.draws["n_features"], return_counts=True)
        return {int(k): float(c / counts.sum()) for k, c in zip(values, counts, strict=True)}

    @property
    def representative(self) -> tuple[int, int]:
        """(chain, draw): of the draws with the most probable K, the one with the highest log joint."""
        k = self.draws["n_features"]
        mode = max(self.k_posterior, key=lambda key: self.k_posterior[key])
        best = np.where(k == mode, self.draws["log_joint"], -np.inf)
        chain, draw = np.unravel_index(int(np.argmax(best)), best.shape)
        return int(chain), int(draw)

    # ---- new rows

    def encode(self, X: Array, chain: int, draw: int) -> tuple[Array, Array]:
        """(presence, log predictive density) of each row of X on its own, given one draw."""
        model = self.concrete(chain, draw)
        codebook = self.codebook(chain, draw)
        log_odds = model.prior.log_odds(self.n_rows + 1)
        n_empty = self.packed_z.shapes[self._index(chain, draw), 1] - len(codebook["counts"])
        rate = model.prior.new_rate(self.n_rows + 1)
        if n_empty:  # a finite prior's unused columns: few and rare, as good as Poisson
            rate += float(n_empty) / (1.0 + math.exp(-log_odds[0]))
        return model.observation.encode(X, codebook, log_odds[codebook["counts"]], rate)

    def log_density(self, X: Array) -> Array:
        """log p(x_n | data) of new rows: the mean density over evenly spaced draws of all chains."""
        flat = np.unique(np.linspace(0, self.n_chains * self.n_draws - 1, _POOLED).round().astype(int))
        parts = np.stack([self.encode(X, *divmod(int(i), self.n_draws))[1] for i in flat])
        return np.logaddexp.reduce(parts, axis=0) - math.log(len(flat))


def _stack(values: Sequence[Any], shape: tuple[int, int]) -> Array:
    array = np.asarray(values)
    return array.reshape(shape + array.shape[1:])
