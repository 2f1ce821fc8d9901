"""Posterior draws: what was sampled, label-invariant summaries of it, and the encoding of new rows."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit

from thali.core.binary import n_non_empty
from thali.core.codebook import Codebook
from thali.core.model import Model
from thali.core.observation import Observation
from thali.core.protocols.engines.predictions import Predictions
from thali.core.protocols.prior import NearRows
from thali.errors import InvalidDataError
from thali.posteriors.base import POOLED, Draw, Posterior, Predictor
from thali.posteriors.ragged import Ragged
from thali.posteriors.representative import Consensus, find_consensus
from thali.rng import make_generator

Array = np.ndarray

_SHARED_DRAWS = 1000  # at most so many make E[ZZ']


class Draws(Posterior):
    """Draws of several chains, all of the same length.

    `draws` maps names to (chain, draw) arrays of label-invariant quantities: `n_features` (in use by some row), `n_on`
    (ones in Z), `log_joint`, `free_energy`, and each learned hyperparameter (its mean over dims if each has its own).
    A learned offset is counted from the `origin` of the model, which data far from zero have.
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
            "n_features": _stack([n_non_empty(d.z) for d in flat], shape),
            "n_on": _stack([int(d.z.sum()) for d in flat], shape),
            "log_joint": _stack([d.log_joint for d in flat], shape),
            "free_energy": _stack([d.free_energy for d in flat], shape),
        }
        for name in flat[0].codebook.summaries():
            draws[name] = _stack([d.codebook.summaries()[name] for d in flat], shape)
        for name, values in hyper.items():
            short = name.partition(".")[2]
            draws[short] = values if values.ndim == 2 else values.mean(axis=2)
        codebooks = {name: Ragged.pack(getattr(d.codebook, name) for d in flat) for name in flat[0].codebook.arrays()}
        return cls(model, draws, hyper, Ragged.pack(d.z for d in flat), codebooks)

    # ---- one draw

    def _index(self, chain: int, draw: int) -> int:
        return range(self.n_chains)[chain] * self.n_draws + range(self.n_draws)[draw]

    def Z(self, chain: int, draw: int) -> Array:  # noqa: N802 (the matrix has this name)
        """Z of one draw, (n_rows, n_features) uint8; a finite prior's empty columns included."""
        return self.packed_z[self._index(chain, draw)]

    def bits(self, chain: int, draw: int) -> Array:
        """Z of one draw without empty columns: one column for each of its features."""
        z = self.Z(chain, draw)
        return z if z.shape[1] == self.draws["n_features"][chain, draw] else z[:, z.any(axis=0)]

    def codes(self, chain: int, draw: int) -> Array:
        """Codes of the fitted rows in one draw, (n_rows, n_features): its bits, or its weights where they are on."""
        engine = self.model.observation.engine(Predictions)
        return engine.codes(self.bits(chain, draw), self.codebook(chain, draw))

    def marks(self, chain: int, draw: int) -> Array:
        """What tells the features of one draw apart: the codes of all that own bits."""
        engine = self.model.observation.engine(Predictions)
        return engine.marks(self.bits(chain, draw), self.codebook(chain, draw))

    def codebook(self, chain: int, draw: int) -> Codebook:
        kind = self.model.observation.engine(Predictions).codebook_kind
        return kind(**{name: arrays[self._index(chain, draw)] for name, arrays in self.codebooks.items()})

    def concrete(self, chain: int, draw: int) -> Model:
        """The model with the hyperparameters of one draw."""
        parts = {}
        for part in ("prior", "observation"):
            spec = getattr(self.model, part)
            values = {name: self.hyper[f"{part}.{name}"][chain, draw] for name in spec.learned}
            values = {name: value if np.ndim(value) else float(value) for name, value in values.items()}
            parts[part] = spec.updated(**values) if values else spec
        return Model(**parts)

    def predictor(self, chain: int, draw: int, columns: Array | None = None) -> Predictor:
        """How one draw sees a new row; of its features only `columns`, the others then count as unknown.

        Unknown features, a finite prior's unused columns among them, are few and rare: as good as Poisson.
        """
        model, codebook = self.concrete(chain, draw), self.codebook(chain, draw)
        counts = codebook.counts
        columns = np.arange(len(counts)) if columns is None else columns
        if model.observation.owners == "dims":  # a new row brings no bits
            return Predictor(model.observation, codebook.columns(columns), np.zeros(len(columns)), 0.0)
        if isinstance(model.prior, NearRows):
            raise InvalidDataError(
                "New rows must say how far they are from the fitted ones, as transform(X, times=...), coordinates=... "
                "or distances=... (n_new, n_fitted). Got none of them."
            )
        log_odds = model.prior.log_odds(self.n_rows + 1)
        unknown = expit(log_odds[np.delete(counts, columns)]).sum()
        n_empty = self.packed_z.shapes[self._index(chain, draw), 1] - len(counts)
        if n_empty:
            unknown += n_empty * expit(log_odds[0])
        rate = model.prior.new_rate(self.n_rows + 1) + float(unknown)
        return Predictor(model.observation, codebook.columns(columns), log_odds[counts[columns]], rate)

    def fitted_draws(self, rows: Array, limit: int) -> Iterator[tuple[Observation, Array, Codebook]]:
        for chain, draw in self.spaced(limit):
            codes = self.codes(chain, draw)[rows]
            yield self.concrete(chain, draw).observation, codes, self.codebook(chain, draw).rows(rows)

    @property
    def n_rows(self) -> int:
        return self.n_owners if self.model.observation.owners == "rows" else int(self.codebooks["scores"].shapes[0, 1])

    @property
    def n_owners(self) -> int:
        """Rows of Z: those of X, or its dims."""
        return int(self.packed_z.shapes[0, 0])

    def is_finite(self) -> bool:
        return all(np.isfinite(values).all() for values in self.draws.values())

    # ---- summaries

    @property
    def k_posterior(self) -> dict[int, float]:
        """P(number of features = K), over all chains."""
        values, counts = np.unique(self.draws["n_features"], return_counts=True)
        return {int(k): float(c / counts.sum()) for k, c in zip(values, counts, strict=True)}

    def expected_shared(self) -> Array:
        """E[ZZ'] given the data, (n_owners, n_owners): how many features two rows share, features that come and go
        included."""
        total = np.zeros((self.n_owners, self.n_owners))
        for chain, draw in self.spaced(_SHARED_DRAWS):
            Z = self.Z(chain, draw).astype(float)
            total += Z @ Z.T
        return total / len(self.spaced(_SHARED_DRAWS))

    @cached_property
    def consensus(self) -> Consensus:
        """The features that persist, and the draw that shows them."""
        return find_consensus(self)

    @cached_property
    def persistent(self) -> Codebook:
        """As the representative draw has them."""
        return self.codebook(*self.representative).columns(self.consensus.columns)

    # ---- new rows

    @cached_property
    def encoder(self) -> Predictor:
        """The persistent features, as the representative draw has them."""
        return self.predictor(*self.representative, self.consensus.columns)

    def pooled(self) -> list[Predictor]:
        predictors = [self.predictor(chain, draw) for chain, draw in self.spaced(POOLED)]
        rng = make_generator(0)  # the same every time: a prediction is a function of the row alone
        return [p._replace(codebook=p.engine.definite(rng, p.codebook)) for p in predictors]


def _stack(values: Sequence[Any], shape: tuple[int, int]) -> Array:
    array = np.asarray(values)
    return array.reshape(shape + array.shape[1:])
