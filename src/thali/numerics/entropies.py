"""Entropies of Beta and Gamma distributions, elementwise."""

import numpy as np
from scipy.special import betaln, digamma, gammaln

Array = np.ndarray


def beta_entropy(a: Array, b: Array) -> Array:
    return betaln(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b)


def gamma_entropy(shape: Array | float, rate: Array | float) -> Array:
    return shape - np.log(rate) + gammaln(shape) + (1 - shape) * digamma(shape)
