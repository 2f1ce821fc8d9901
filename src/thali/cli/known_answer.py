"""A fit so small that its right answer is known: does this machine compute it?"""

import math

import numpy as np

# log p(Z) + log p(X | Z) of the true Z below, from the density of a 20-dimensional normal for each dim
_LOG_JOINT = -114.06710771012149


def data() -> tuple[np.ndarray, np.ndarray]:
    """(X, Z): 20 rows x 3 dims without randomness, two features far above the noise."""
    n = np.arange(20)
    Z = np.stack([n % 2, n // 5 % 2], axis=1)
    A = np.array([[3.0, 0.0, -3.0], [0.0, 4.0, 2.0]])
    return Z @ A + 0.2 * np.sin(7.0 * n[:, None] + np.arange(3)), Z


def check() -> list[str]:
    """What is wrong: nothing, if all is well."""
    from thali import IBP, CollapsedGibbs, LatentFeatures, LinearGaussian
    from thali.core.protocols.engines.chains import MarginalRows

    X, Z = data()
    prior, observation = IBP(mass=1.0), LinearGaussian(noise_var=1.5, feature_var=4.0)
    complaints = []
    known = prior.log_prob(Z) + observation.engine(MarginalRows).log_marginal(X, Z)
    if not math.isclose(known, _LOG_JOINT, rel_tol=1e-9):
        complaints.append(f"log p(X, Z) is {known!r}, expected {_LOG_JOINT!r}")

    inference = CollapsedGibbs(n_warmup=100, n_draws=100)
    model = LatentFeatures(observation, prior, inference, n_chains=2, random_state=0, verbose=False).fit(X)
    for chain in range(2):
        drawn = model.posterior_.Z(chain, -1)
        # the compiled sweep keeps running sums; they must agree with the formulas from scratch
        scratch = prior.log_prob(drawn) + observation.engine(MarginalRows).log_marginal(X, drawn)
        running = float(model.posterior_.draws["log_joint"][chain, -1])
        if not math.isclose(scratch, running, rel_tol=1e-6):
            complaints.append(f"chain {chain + 1}: log joint of the last draw is {running!r}, from scratch {scratch!r}")
    if model.n_components_ != Z.shape[1]:
        complaints.append(f"the small fit found {model.n_components_} features, expected {Z.shape[1]}")
    return complaints
