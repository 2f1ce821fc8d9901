"""The contract of inferences, by their shape: chains, restarts, rows that come once, blocks that come again."""

from typing import Any

import numpy as np

from thali.core.model import Model, check_composition
from thali.core.protocols.inference import Blockwise, Forgetful, Iterative, Optimiser, Streaming
from thali.inference.calibration.noise_floor import calibrate
from thali.testing.contracts.blocks import check_blocks
from thali.testing.contracts.forgetful import check_forgetful
from thali.testing.contracts.optimiser import check_optimiser
from thali.testing.contracts.sampler import check_sampler
from thali.testing.contracts.stream import check_stream
from thali.testing.contracts.telling import contract, same

Array = np.ndarray

_SHAPES = {
    "chains": (Iterative, check_sampler),
    "restarts": (Optimiser, check_optimiser),
    "rows": (Streaming, check_stream),
    "blocks": (Blockwise, check_blocks),
}


def check_inference(
    inference: Any, model: Model, X: Array, rng: np.random.Generator, *, n_steps: int = 500, max_features: int = 8
) -> None:
    """An inference of any shape on tiny data: pure, reproducible, sound in files, and right where that can be known.

    A sampler needs a concrete model and is compared with enumeration; X must say something, since a sampler that is
    blind to a part of it, or to all, would have to fail this very check. The objective of an optimiser must never rise
    and the bound of one by blocks never fall, nor exceed the evidence; a stream must not depend on how rows are
    batched, and its estimate of the evidence must have the right mean. An AssertionError begins with the contract that
    is broken.

    n_steps: of each chain, or replicates of a stream. max_features: up to which an infinite prior is enumerated.
    """
    with contract("An inference must declare its shape, and have the methods of it."):
        shape = getattr(inference, "shape", None)
        assert shape in _SHAPES, f"It is {shape!r}, which is none of {', '.join(_SHAPES)}."
        protocol, check = _SHAPES[shape]
        if shape == "rows" and not getattr(inference, "keeps_rows", True):
            protocol, check = Forgetful, check_forgetful
        lacking = _lacking(inference, protocol)
        assert not lacking, f"{type(inference).__name__} lacks {', '.join(lacking)} of {protocol.__name__}."
    check_composition(model.prior, model.observation, inference)
    before = X.copy()
    check(inference, model, calibrate(model, X), X, rng, n_steps, max_features)
    with contract("An inference must leave X as it was."):
        assert same(X, before), "It changed a cell."


def _lacking(inference: Any, protocol: type) -> list[str]:
    """Members of the protocol that it has not."""
    members = {name for kind in protocol.__mro__ for name in {*vars(kind), *getattr(kind, "__annotations__", {})}}
    return sorted(name for name in members if not name.startswith("_") and not hasattr(inference, name))
