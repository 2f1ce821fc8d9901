"""Twin of `thali.kernels.intervals`: one cell after the other, each way of proposing a function of its own."""

import numpy as np


def draw_between(mean, sd, lower, upper, rng):
    return np.array([_one(*cell, rng) for cell in zip(mean, sd, lower, upper, strict=True)])


def _one(mean, sd, lower, upper, rng):
    low, high = (lower - mean) / sd, (upper - mean) / sd
    if low < -high:  # most of it lies below the mean
        return -_one(-mean, sd, -upper, -lower, rng)
    if low <= 0.4 and high - low > 1:
        value = _normal(low, high, rng)
    elif low <= 0.4 or (high - low) * low < 1:
        value = _uniform(low, high, rng)
    else:
        value = _exponential(low, high, rng)
    return np.clip(mean + sd * value, lower, upper)


def _normal(low, high, rng):
    while not low <= (value := rng.standard_normal()) <= high:
        pass
    return value


def _uniform(low, high, rng):
    densest = max(low, 0.0)
    while True:
        value = low + (high - low) * rng.random()
        if rng.random() < np.exp((densest**2 - value**2) / 2):
            return value


def _exponential(low, high, rng):
    rate = (low + np.sqrt(low**2 + 4)) / 2
    while True:
        value = low - np.log(1 - rng.random()) / rate
        if value <= high and rng.random() < np.exp(-((value - rate) ** 2) / 2):
            return value
