"""Every kind of decay, and four rows on a line."""

import numpy as np

from thali import ConstantDecay, ExponentialDecay, LogisticDecay, WindowDecay

LINE = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
DECAYS = [
    ConstantDecay(),
    WindowDecay(1.0),
    ExponentialDecay(0.5),
    LogisticDecay(1.5, 2.0),
    lambda d: 2.0 / (1.0 + d),
]
DECAY_NAMES = ["constant", "window", "exponential", "logistic", "function"]
