"""Binary models that lack engines for a search: they begin at bits that fit their statistics, and are sampled right."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from thali import IBP, CollapsedGibbs, LatentFeatures, LinearGaussian
from thali.core.model import Model
from thali.core.protocols.engines.chains import BitEntropy, ChainRows, ColumnMoves, ConditionalRows
from thali.inference.calibration.noise_floor import calibrate
from thali.rng import make_generator

SEARCHING = (ColumnMoves, BitEntropy, ConditionalRows)


@dataclass(frozen=True, eq=False)
class Plain(LinearGaussian):
    """It can be swept with its features integrated out, and no more."""

    engines = {kind: engine for kind, engine in LinearGaussian.engines.items() if kind not in SEARCHING}  # noqa: RUF012


@pytest.mark.parametrize("start", ["search", "spectral", "annealed", "empty"])
def test_bits_are_bits(start: str, rng: Any) -> None:
    Z = rng.integers(2, size=(40, 2))
    X = Z @ np.array([[4.0, 4, 0, 0], [0, 0, 4, -4]]) + 0.3 * rng.standard_normal((40, 4))
    X[1, 2] = np.nan
    model = calibrate(Model(IBP(), Plain()), X)
    data = model.observation.engine(ChainRows).prepare(X)
    state = CollapsedGibbs(start=start, n_warmup=10).init(make_generator(0), model, data, len(X))
    assert set(np.unique(state.local.z)) <= {0, 1}
    state.observation.engine(ChainRows).check(data, state.local)
    fit = LatentFeatures(
        Plain(), IBP(), CollapsedGibbs(start=start, n_warmup=60, n_draws=60), n_chains=1, random_state=0
    )
    assert fit.fit(X).n_components_ == 2
