"""Random numbers for rows that are drawn in parallel: a stream for each row, from a key and the number of the row.

A stream is splitmix64 (Steele, Lea & Flood 2014), a counter and a mixing function. It depends on nothing but key and
row, so that the same bits come out in whatever order and on however many threads the rows are drawn. Two of N streams
of L numbers overlap with probability of about N^2 L / 2^64.
"""

import math

import numpy as np

from thali.kernels._jit import inlined

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def _mixed(x):
    """A bijection of 64-bit numbers that scatters neighbours."""
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


def _start_stream(key, row):
    """The beginning of the row's numbers, to be kept in an array of 64-bit numbers with other rows' streams."""
    return mixed(np.uint64(key) + (np.uint64(row) + np.uint64(1)) * _STEP)


def _uniform(streams, i):
    """The next number in [0, 1) of streams[i]."""
    streams[i] += _STEP
    return (mixed(streams[i]) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


def _normal(streams, i):
    """The next standard normal number of streams[i] (Box & Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(streams, i)))
    return radius * math.cos(2.0 * math.pi * uniform(streams, i))


mixed = inlined(_mixed)
start_stream = inlined(_start_stream)
uniform = inlined(_uniform)
normal = inlined(_normal)
