"""Whether draws of a number are those of a density: frequencies of values, or of the bins that other draws suggest."""

import itertools
from collections.abc import Callable

import numpy as np

from thali.testing.zscores import z_limit

Array = np.ndarray

_BINS, _NODES = 10, 40  # of which the first and the last have no end, and are left out
_RARE = 20  # expected hits below which a frequency has no normal error


def check_law(draws: Array, log_density: Callable[[Array], Array]) -> None:
    """Draws (n,) of one number against its log density, a function of many values."""
    assert np.isfinite(draws).all(), "A draw is not finite."
    if (draws == np.floor(draws)).all():
        _check_whole_numbers(draws, log_density)
    else:
        _check_bins(draws, log_density)


def is_binary(log_density: Callable[[Array], Array]) -> bool:
    """Whether zero and one are all that there can be: of counts, with a one that is not rare, a two is possible."""
    none, one = np.exp(log_density(np.array([0.0, 1.0])))
    return bool(abs(none + one - 1.0) <= 1e-9 and one > 1e-3)


def _check_whole_numbers(draws: Array, log_density: Callable[[Array], Array]) -> None:
    most = int(draws.max())
    values = np.arange(min(int(draws.min()), 0), 2 if is_binary(log_density) else 2 * most + 50)
    chance = np.exp(log_density(values.astype(float)))
    total = float(chance.sum())
    assert abs(total - 1.0) <= 10.0 / len(draws), (  # which may lie beyond the largest of so many draws
        f"Its probabilities sum to {total:.6g} over {values[0]}, ..., {values[-1]}."
    )
    hits = np.array([np.sum(draws == value) for value in values])
    _check_frequencies(hits, chance, len(draws), [f"the value {value}" for value in values])


def _check_bins(draws: Array, log_density: Callable[[Array], Array]) -> None:
    positive = bool((draws > 0).all())  # which may span many orders of magnitude
    scaled = np.log(draws) if positive else draws
    first, second = scaled[::2], scaled[1::2]
    edges = np.unique(np.quantile(first, np.arange(1, _BINS) / _BINS))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = 0.5 * np.diff(edges)[:, None]
    places = half * nodes + 0.5 * (edges[1:] + edges[:-1])[:, None]
    values = np.exp(places) if positive else places
    density = np.exp(log_density(values.ravel()).reshape(places.shape)) * (values if positive else 1.0)
    chance = np.sum(half * weights * density, axis=1)
    hits = np.histogram(second, edges)[0]
    ends = np.exp(edges) if positive else edges
    names = [f"values from {a:.3g} to {b:.3g}" for a, b in itertools.pairwise(ends)]
    names += [f"values from {ends[0]:.3g} to {b:.3g}" for b in ends[2:]]  # many small gaps show in their sums
    hits, chance = (np.concatenate([parts, np.cumsum(parts)[1:]]) for parts in (hits, chance))
    _check_frequencies(hits, chance, len(second), names)


def _check_frequencies(hits: Array, chance: Array, n: int, names: list[str]) -> None:
    error = np.sqrt(np.maximum(n * chance * (1.0 - np.minimum(chance, 1.0)), 1e-12))
    often = (n * chance >= _RARE) & (n * (1.0 - chance) >= _RARE)
    impossible = (n * chance < 1e-3) & (hits > 0)
    assert not impossible.any(), f"It draws {names[int(np.argmax(impossible))]}, which its density rules out."
    wrong = chance > 1.0 + 1e-9
    assert not wrong.any(), f"Its density gives {names[int(np.argmax(wrong))]} the probability {chance.max():.3g}."
    z = np.where(often, (hits - n * chance) / error, 0.0)
    worst = int(np.argmax(np.abs(z)))
    assert abs(z[worst]) <= z_limit(int(often.sum())), (
        f"It draws {names[worst]} {hits[worst]} times in {n}, its density says {n * chance[worst]:.1f} "
        f"(z = {z[worst]:.1f})."
    )
