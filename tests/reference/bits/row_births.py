"""Twin of thali.kernels.bits.row_births: by `thali.priors.recursion`."""

import numpy as np
from scipy.stats import poisson

from thali.priors.recursion import BIRTHS, Running, birth_probs


def upper_tails(rate, tails):
    tails[:] = poisson.sf(np.arange(len(tails)), rate)
    return len(tails)


def row_births(kind, exists, K, n_more, rate, births, below, order, tails):
    births[: K + n_more] = birth_probs(Running(0, np.zeros(K), exists[:K]), rate, BIRTHS[kind], K + n_more)
