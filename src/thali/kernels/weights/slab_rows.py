"""Weights of one feature in all rows, against what its other features leave of each row."""

from thali.kernels._jit import jit
from thali.kernels.weights.slabs import draw_slab, log_slab


def _log_slabs(pulls, curve, rate, precision, log_norm, evidence):
    """log p(row | it has the feature) - log p(row | it lacks it), the weight integrated out, into `evidence` (N)."""
    for n in range(pulls.size):
        evidence[n] = log_slab(pulls[n], curve, rate, precision, log_norm)


def _draw_slabs(bits, pulls, curve, scale, rate, precision, codes, rng):
    """Codes (N) of the rows that have the feature, zero for the others."""
    for n in range(pulls.size):
        codes[n] = scale * draw_slab(pulls[n], curve, rate, precision, rng) if bits[n] else 0.0


log_slabs = jit(_log_slabs)
draw_slabs = jit(_draw_slabs)
