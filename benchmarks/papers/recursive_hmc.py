"""HMC within Gibbs for the linear-Gaussian model with finitely many features, by NumPyro: an extra of the benchmarks.

NumPyro is no dependency of thali and of its benchmarks: `pip install numpyro` brings it. Features and weights move by
HMC, ten steps at a time, given the bits; these are drawn one by one given both, all rows at a time.
"""

import importlib.util
from typing import Any

import numpy as np
from scipy.special import logsumexp

from benchmarks.papers.recursive_parts import Problem, log_rows, truncation

Array = np.ndarray

INSTALLED = importlib.util.find_spec("numpyro") is not None


def sample_bits(problem: Problem, seed: int, n_warmup: int, n_draws: int) -> Array:
    """Draws of Z, (n_draws, n_rows, K), with pi ~ Beta(mass / K, 1)."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import HMC, MCMC, HMCGibbs

    numpyro.enable_x64()
    X, K = jnp.asarray(problem.train), truncation(problem)
    n_rows, n_dims = X.shape
    noise_var = problem.noise_var

    def model() -> None:
        weights = numpyro.sample("weights", dist.Beta(problem.mass / K, 1.0).expand([K]).to_event(1))
        A = numpyro.sample("A", dist.Normal(0.0, problem.feature_var**0.5).expand([K, n_dims]).to_event(2))
        Z = numpyro.sample("Z", dist.Bernoulli(weights).expand([n_rows, K]).to_event(2))
        numpyro.sample("X", dist.Normal(Z @ A, noise_var**0.5).to_event(2), obs=X)

    def draw_bits(rng_key: Any, gibbs_sites: Any, hmc_sites: Any) -> dict[str, Any]:
        A, weights = hmc_sites["A"], jnp.clip(hmc_sites["weights"], 1e-12, 1 - 1e-12)
        odds = jnp.log(weights) - jnp.log1p(-weights)
        uniforms = jax.random.uniform(rng_key, (K, n_rows))

        def one(k: Any, Z: Any) -> Any:
            left = X - Z @ A + Z[:, k, None] * A[k]
            logits = odds[k] + (left @ A[k] - 0.5 * A[k] @ A[k]) / noise_var
            return Z.at[:, k].set((uniforms[k] < jax.nn.sigmoid(logits)).astype(Z.dtype))

        Z = jax.lax.fori_loop(0, K, one, gibbs_sites["Z"].astype(X.dtype))
        return {"Z": Z.astype(gibbs_sites["Z"].dtype)}

    kernel = HMCGibbs(HMC(model, num_steps=10, trajectory_length=None), gibbs_fn=draw_bits, gibbs_sites=["Z"])
    chain = MCMC(kernel, num_warmup=n_warmup, num_samples=n_draws, progress_bar=False)
    chain.run(jax.random.PRNGKey(seed))
    return np.asarray(chain.get_samples()["Z"])


def score_bits(problem: Problem, draws: Array) -> tuple[float, float]:
    """(mean log density of a test row, features in use), features integrated out and densities averaged over draws."""
    n_rows = len(problem.train)
    ratio, found, used = problem.noise_var / problem.feature_var, [], []
    for Z in draws:
        Z = Z[:, Z.any(axis=0)]
        P = np.linalg.inv(Z.T @ Z + ratio * np.eye(Z.shape[1]))
        spare = problem.mass * (1.0 - Z.shape[1] / truncation(problem)) / (n_rows + 1)
        found.append(log_rows(problem, P @ Z.T @ problem.train, Z.sum(axis=0) / (n_rows + 1), P, spare))
        used.append(Z.shape[1])
    return float((logsumexp(found, axis=0) - np.log(len(found))).mean()), float(np.mean(used))
