"""Where inference of a Poisson-gamma model begins: a Bayesian matrix factorisation of its counts."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from thali.core.observation import Engine
from thali.core.protocols.engines.mean_field import Family
from thali.errors import InvalidParameterError
from thali.observations.poisson.data import CountData
from thali.observations.poisson.mean_field import PoissonMeanField
from thali.observations.poisson.rows import CountRows, PoissonChain

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.poisson_gamma import PoissonGamma

Array = np.ndarray
Generator = np.random.Generator

_ROUNDS = 30  # of mean field
_STARTING = 12  # features, if the prior does not say how many there are


class PoissonStart(Engine):
    """StartRows and OwnStart of a Poisson-gamma model."""

    model: "PoissonGamma"

    def matrix(self, data: CountData) -> tuple[Array, bool]:
        return data.dense(), False

    def units(self, n_dims: int) -> Array | None:
        return None

    def tempered(self, factor: float) -> "PoissonGamma":
        """As it is: counts have no noise level."""
        return self.model

    def begin(self, data: CountData, codes: Array, matrix: Any = None) -> tuple["PoissonGamma", CountRows]:
        """Signs of codes do not count. A row with counts has some feature: the one most rows have, if none is given."""
        if self.model.leak == 1.0:
            raise InvalidParameterError("PoissonGamma(leak=1) has no bits to sample. Leave leak out, or use MeanField.")
        codes = np.abs(np.asarray(codes, dtype=float))
        bare = (codes.sum(axis=1) == 0) & (np.diff(data.start) > 0)
        if bare.any():
            codes = codes if codes.shape[1] else np.zeros((len(data), 1))
            usual = codes[codes > 0].mean() if codes.any() else 1.0
            codes[bare, np.argmax((codes > 0).sum(axis=0))] = usual
        current = self.model
        if "weight_rate" in self.model.learned:
            w = codes[codes > 0]
            current = self.model.replace(
                weight_rate=float(self.model.weight_shape * max(w.size, 1) / max(w.sum(), 1e-9))
            )
        return current, PoissonChain(self.model).place(data, codes, matrix)

    def start_codes(
        self, rng: np.random.Generator, data: CountData, n_features: int | None, is_over: Callable[[], bool]
    ) -> Array:
        """Codes of a Bayesian matrix factorisation (mean field without bits), whose weak ones are zero."""
        K = min(_STARTING, len(data)) if n_features is None else n_features
        engine = PoissonMeanField(self.model.replace(leak=1.0))
        q = engine.init_features(data, K, Family())
        local = engine.init_rows(data, rng.random((len(data), K)) ** 2)
        for i in range(_ROUNDS):
            local, sums = engine.update_rows(data, q, local, np.zeros(K), int(i > 0))
            q = engine.update_features(q, sums, learn=i > _ROUNDS // 3)
            if is_over():
                break
        codes = engine.expected_codes(local)
        made = local.w_shape - self.model.weight_shape
        return np.where(made > 0.5, codes, 0.0)
