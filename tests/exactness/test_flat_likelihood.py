"""With a flat likelihood the sampler must keep the prior: E[K], E[ones] and P(K) of the IBP are known."""

import math

import numpy as np
import pytest

from thali import IBP, CollapsedGibbs, LinearGaussian
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.testing import z_limit
from thali.testing.zscores import z_scores

N_ROWS, MASS = 20, 2.0


def prior_run(rng, prior, n_chains, n_steps):
    """Per chain: E[K], E[ones], P(K = k) for k around the mean. Chains start in the prior, so there is no warm-up."""
    model = Model(prior, LinearGaussian(noise_var=1e12, feature_var=1.0))
    X = rng.standard_normal((N_ROWS, 3))
    inference = CollapsedGibbs(moves=1.0)
    rows = []
    for stream in rng.spawn(n_chains):
        data = model.observation.engine(ChainRows).prepare(X)
        Z = model.prior.simulate(stream, N_ROWS)
        state = inference.at(model.prior, model.observation, data, Z, X)
        values = []
        for _ in range(n_steps):
            state, info = inference.step(stream, state, model, data)
            values.append([info.n_features, state.local.z.sum(), *(info.n_features == np.arange(3, 12))])
        rows.append(np.mean(values, axis=0))
    return np.array(rows)


def expected():
    rate = MASS * sum(1 / i for i in range(1, N_ROWS + 1))
    return np.array(
        [rate, N_ROWS * MASS, *(math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in range(3, 12))]
    )


@pytest.mark.slow
def test_flat_likelihood_keeps_the_prior(rng):
    z = z_scores(prior_run(rng, IBP(mass=MASS), 60, 150), expected())
    assert np.abs(z).max() <= z_limit(len(z)), z


@pytest.mark.slow
def test_flat_likelihood_keeps_the_prior_long(rng):
    z = z_scores(prior_run(rng, IBP(mass=MASS), 150, 800), expected())
    assert np.abs(z).max() <= z_limit(len(z)), z


class WrongRate(IBP):
    """The rate of half as many rows, at the size of the test only: the chains still start in the prior."""

    def new_rate(self, n_rows):
        return super().new_rate(n_rows // 2 if n_rows == N_ROWS else n_rows)


@pytest.mark.slow
def test_wrong_new_feature_rate_fails(rng):
    z = z_scores(prior_run(rng, WrongRate(mass=MASS), 60, 150), expected())
    assert np.abs(z).max() > z_limit(len(z)), z
