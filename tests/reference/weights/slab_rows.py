"""Twin of thali.kernels.weights.slab_rows."""

from reference.weights.slabs import draw_slab, log_slab


def log_slabs(pulls, curve, rate, precision, log_norm, evidence):
    evidence[:] = [log_slab(pull, curve, rate, precision, log_norm) for pull in pulls]


def draw_slabs(bits, pulls, curve, scale, rate, precision, codes, rng):
    codes[:] = [
        scale * draw_slab(pull, curve, rate, precision, rng) if bit else 0.0
        for bit, pull in zip(bits, pulls, strict=True)
    ]
