"""The only place where a seed becomes a random generator."""

import numbers
from typing import Any

import numpy as np

from thali.errors import InvalidParameterError

_LARGEST_POOL = 256  # words of a pool of seeds; numpy makes 4

Seed = Any  # None, an int, a numpy Generator or a (legacy) numpy RandomState


def make_generator(random_state: Seed) -> np.random.Generator:
    """A PCG64 generator from None (fresh entropy), an integer, a Generator (used as it is) or a RandomState."""
    if random_state is None:
        return np.random.default_rng()
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(int(random_state.randint(0, 2**31 - 1)))
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool) and int(random_state) >= 0:
        return np.random.default_rng(int(random_state))
    raise InvalidParameterError(
        "random_state must be None, a non-negative integer or a numpy Generator. "
        f"Got {random_state!r}. Pass an integer for a reproducible run."
    )


def spawn(rng: np.random.Generator, n: int) -> list[np.random.Generator]:
    """n independent streams. They depend on `rng` and on n only, never on how many workers use them."""
    return list(rng.spawn(n))


def freeze(rng: np.random.Generator) -> dict[str, Any]:
    """All that decides what `rng` will draw and spawn, as numbers."""
    bits = rng.bit_generator
    return {"bits": bits.state, "seeds": bits.seed_seq.state}  # type: ignore[attr-defined]


def thaw(state: dict[str, Any]) -> np.random.Generator:
    """The generator that `freeze` saw."""
    name, seeds = state["bits"]["bit_generator"], state["seeds"]
    if name not in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"):
        raise ValueError(f"{str(name)[:80]!r} is no bit generator")
    if not 0 < seeds["pool_size"] <= _LARGEST_POOL:  # mixing one takes the square of its size
        raise ValueError("the pool of its seeds is too large")
    bits = getattr(np.random, name)(np.random.SeedSequence(**seeds))
    bits.state = state["bits"]
    return np.random.Generator(bits)


# ---- streams of rows

_STEP = np.uint64(0x9E3779B97F4A7C15)


def row_uniforms(keys: np.ndarray, n: int) -> np.ndarray:
    """The first n numbers in [0, 1) of a stream for each of these 64-bit keys, (len(keys), n), whatever their company:
    splitmix64, as in `thali.kernels.row_streams`."""
    counters = (np.arange(n, dtype=np.uint64) + np.uint64(1)) * _STEP
    return (_mixed(_mixed(keys + _STEP)[:, None] + counters) >> np.uint64(11)) * 2.0**-53


def seeded_keys(keys: np.ndarray, seed: int) -> np.ndarray:
    """Keys of other streams for each seed."""
    return _mixed(keys ^ _mixed(np.array([seed % 2**64], dtype=np.uint64) + _STEP))


def _mixed(x: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit numbers that scatters neighbours."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
