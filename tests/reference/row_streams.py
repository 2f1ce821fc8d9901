"""Twin of thali.kernels.row_streams, with whole numbers of any size."""

import numpy as np

STEP = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def mixed(x):
    x = int(x)
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def start_stream(key, row):
    return mixed((int(key) + (int(row) + 1) * STEP) & MASK)


def uniform(streams, i):
    streams[i] = (int(streams[i]) + STEP) & MASK
    return (mixed(streams[i]) >> 11) / 2**53


def normal(streams, i):
    return np.sqrt(-2 * np.log(1 - uniform(streams, i))) * np.cos(2 * np.pi * uniform(streams, i))
