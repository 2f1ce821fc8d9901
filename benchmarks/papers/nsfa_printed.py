"""What the report on NSFA prints, for comparison only: its sampler and its test score; and scores that are right.

Y = G F + noise, where rows own sparse loadings G and a noise level (`sparse="rows"`): the report's D objects are rows,
its N variables are columns. Section and equation numbers are those of the report by Biron Lattes on Knowles &
Ghahramani (2011).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import multivariate_normal, norm

from thali import IBP, Gamma, Gibbs, PerDim, PerFeature, SparseFactorAnalysis
from thali.core.model import Model
from thali.core.odds import row_odds
from thali.core.protocols.engines.chains import ChainRows
from thali.core.protocols.engines.predictions import Predictions
from thali.kernels.weights.own_factors import draw_own_values, independent_own
from thali.observations.gaussian.variances import draw_truncated_inverse_gamma
from thali.observations.sparse.rows import LoadingRows

PROPOSAL = (10.0, 0.1)  # (lambda, pi) of Eq. 20
_ONE = Gamma(1.0, 1.0)
FULL = Model(  # "full NSFA", all parameters of Gamma priors 1
    IBP(mass=_ONE),
    SparseFactorAnalysis("rows", PerDim(1.0, _ONE), PerFeature(1.0, _ONE), offset=None, noise_floor=1e-6, scale=1.0),
)
Array = np.ndarray
Generator = np.random.Generator


# --- the printed sampler ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PrintedAlgorithm(Gibbs):
    """Algorithm 1. The posterior is not its stationary law: factors that a row alone has are dropped, and new ones are
    then accepted as if there had been none (Eq. 18 and 22); factors born in a sweep are passed over by the rows that
    follow (K is counted once, before the loop over rows); factors are visited in memory order. Complete data only."""

    def sweep(self, rng: Generator, prior: Any, observation: Any, data: Any, local: Any) -> tuple[LoadingRows, float]:
        log_odds, new_rate = row_odds(rng, prior, local.z).table()
        levels = observation.laws.draw_levels(rng, local.precisions, local.noise)
        law = observation.laws.precision(levels[0])
        Y, V, F, precisions, noise = data.Y, local.v.copy(), local.factors, local.precisions, local.noise
        n_before = V.shape[1]
        for n in range(len(Y)):
            _redraw_loadings(rng, V, n, n_before, Y[n], F, precisions, noise[n], log_odds)
            left = Y[n] - V[n] @ F
            most = int(16 + 8 * self.proposal[0] * new_rate)
            own = np.zeros((most, 2))  # loading and precision
            n_own = independent_own(
                own, 0, most, left @ left, left.size, noise[n], new_rate, law, self.proposal, rng
            )  # from none, always
            values = np.zeros((n_own, left.size))
            draw_own_values(own, n_own, left, np.ones(left.size, bool), noise[n], values, 0, rng)
            V, F = np.hstack([V, np.zeros((len(V), n_own))]), np.vstack([F, values])
            V[n, V.shape[1] - n_own :] = own[:n_own, 0]
            precisions = np.concatenate([precisions, own[:n_own, 1]])
        used = V.any(axis=0)
        V, F, precisions = V[:, used], F[used], precisions[used]
        if law[0] > 0:  # Eq. 30
            squares = np.sum(V * V, axis=0)
            precisions = rng.standard_gamma(law[0] + 0.5 * (V != 0).sum(axis=0)) / (law[1] + 0.5 * squares)
        if observation.laws.learns_noise:  # Eq. 32
            shape, rate, floor = observation.laws.noise(levels[1])
            squares = np.sum((Y - V @ F) ** 2, axis=1)
            noise = draw_truncated_inverse_gamma(
                rng, shape + 0.5 * Y.shape[1], rate + 0.5 * squares, np.full(len(Y), floor)
            )
        return LoadingRows((V != 0).astype(np.uint8), V, F, precisions, noise, levels), 0.0


def _redraw_loadings(
    rng: Generator, V: Array, n: int, n_before: int, y: Array, F: Array, precisions: Array, noise_var: float,
    log_odds: Array,
) -> None:  # fmt: skip
    """Bits and loadings of row n (Eq. 18 and 19), V in place. What no other row has is dropped: its odds are 0."""
    gram, r = F @ F.T, F @ (y - V[n] @ F)
    others = (V != 0).sum(axis=0) - (V[n] != 0)
    for k in range(n_before):
        curve = gram[k, k] / noise_var + precisions[k]
        pull = (r[k] + V[n, k] * gram[k, k]) / noise_var
        delta = log_odds[others[k]] + 0.5 * np.log(precisions[k] / curve) + 0.5 * pull**2 / curve
        heads = rng.random() < np.exp(-np.logaddexp(0.0, -delta))
        new = (pull + np.sqrt(curve) * rng.standard_normal()) / curve if heads else 0.0
        r -= (new - V[n, k]) * gram[k]
        V[n, k] = new


# --- scores of one state ----------------------------------------------------------------------------


def log_training(Y: Array, local: LoadingRows) -> float:
    """log p(Y | loadings, factors, noise)."""
    return float(norm.logpdf(Y, local.v @ local.factors, np.sqrt(local.noise)[:, None]).sum())


def column_scores(Y: Array, local: LoadingRows) -> Array:
    """Log densities of new columns of the fitted rows: exact, since their factors are integrated out."""
    cov = local.v @ local.v.T + np.diag(local.noise)
    return np.atleast_1d(multivariate_normal(np.zeros(len(cov)), cov).logpdf(Y.T))


def row_scores(X: Array, model: Model, data: Any, local: LoadingRows) -> Array:
    """Log densities of new rows given the factors: bits, loadings, noise and factors not seen so far are summed out,
    exactly with up to 8 factors, else by annealed importance sampling, which on average does not flatter."""
    book = model.observation.engine(ChainRows).codebook(data, local)
    n_rows = len(local.z) + 1
    log_odds = model.prior.log_odds(n_rows)[book.counts]
    encoded = model.observation.engine(Predictions).encode(X, book, log_odds, model.prior.new_rate(n_rows))
    return np.asarray(encoded.log_density)


def report_estimator(rng: Generator, X: Array, model: Model, local: LoadingRows) -> Array:
    """What Section 3.3 takes for the log densities of new rows. It is none, and stands here for comparison only.

    Bits, loadings and noise of the new rows are drawn once, from their prior: this is the log likelihood of somebody
    else's loadings. Its mean over states is the mean of a log and not the log of a mean, and it falls with every
    factor that is added and every loading that grows, whatever the new rows say: log-mean-exp of exact densities is
    `row_scores`. Bits have the weights of Eq. 3, Beta(mass / K + m, N - m + 1), and factors not seen so far are left
    out.
    """
    K, counts = local.z.shape[1], local.z.sum(axis=0, dtype=float)
    weights = rng.beta(model.prior.mass / max(K, 1) + counts, len(local.z) - counts + 1)
    V = (rng.random((len(X), K)) < weights) * rng.standard_normal((len(X), K)) / np.sqrt(local.precisions)
    noise = model.observation.laws.new_noise(rng, len(X), float(local.levels[1]))
    return np.asarray(norm.logpdf(X, V @ local.factors, np.sqrt(noise)[:, None]).sum(axis=1))
