"""Mean field finds the features of counts, and how many there are, without being told."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from thali import (
    IBP,
    BetaBernoulli,
    BetaProcess,
    LatentFeatures,
    MeanField,
    PoissonGamma,
    StickBreakingIBP,
    StochasticMeanField,
    datasets,
    load,
)
from thali.metrics import perplexity, split_tokens

DATA = datasets.counts(250)


def likeness(found, truth):
    """Cosine of each true feature with the one that stands for it."""
    found, truth = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (found, truth))
    cosine = found @ truth.T
    return cosine[linear_sum_assignment(-cosine)]


PRIORS = {
    "IBP": IBP(),
    "finite": BetaBernoulli(n_features=12),
    "sticks": StickBreakingIBP(truncation=12),
    "rounds": BetaProcess(truncation=12),
}
CASES = [("IBP", "soft", "spectral"), ("finite", "hard", "spectral")]
SLOW = [(prior, bits, "spectral") for prior in PRIORS for bits in ("soft", "hard")] + [("finite", "soft", "empty")]


@pytest.mark.parametrize(
    ("prior", "bits", "start"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_features_are_found(prior, bits, start):
    inference = MeanField(n_restarts=1, start=start, bits=bits, max_iter=400)
    model = LatentFeatures(PoissonGamma(), PRIORS[prior], inference, random_state=0).fit(sparse.csr_array(DATA.X))
    assert abs(model.n_components_ - 6) <= 1
    found = likeness(model.components_, DATA.features)
    assert len(found) == 6
    assert found.min() > 0.97
    trace = -model.history_["objective"][0]
    trace = trace[np.isfinite(trace)]
    assert (np.diff(trace) >= -1e-9 * np.abs(trace[1:])).all()


@pytest.mark.parametrize(
    "inference",
    [MeanField(n_restarts=1, start="empty"), StochasticMeanField(batch_size=40, n_restarts=1, n_epochs=4)],
    ids=["batch", "stochastic"],
)
def test_without_bits_every_row_has_every_feature(inference, tmp_path):
    """The features of a matrix factorisation are those that the fit kept, though the prior would give none to a row."""
    rng = np.random.default_rng(0)
    features = np.kron(np.eye(3), np.full((1, 4), 5.0))
    X = rng.poisson((rng.random((80, 3)) < 0.6) * rng.gamma(5.0, 0.5, (80, 3)) @ features).astype(float)
    model = LatentFeatures(PoissonGamma(leak=1.0), inference=inference, random_state=0).fit(X)
    assert model.n_components_ == 3
    assert model.k_posterior_ == {3: 1.0}
    assert likeness(model.components_, features).min() > 0.98
    model.save(tmp_path / "factors.thali")
    for one in (model, load(tmp_path / "factors.thali")):
        assert (one.presence(X[:5]) == 1).all()
        assert (one.novelty(X[:5]) == 0).all()
        fitted = one.inverse_transform(one.transform(X))
        assert np.corrcoef(fitted.ravel(), X.ravel())[0, 1] > 0.95
    mask = np.zeros(X.shape, bool)
    mask[:20, 0] = True
    assert model.heldout_score(X, mask) > -6


def test_a_fit_predicts_new_rows(tmp_path):
    """Half of the tokens of new rows, from the other half: nearly as well as the truth does."""
    inference = MeanField(n_restarts=1, start="empty", max_iter=300)
    model = LatentFeatures(PoissonGamma(), IBP(), inference, random_state=0).fit(DATA.X)
    new = datasets.counts(60, random_state=5)
    given, asked = split_tokens(new.X)
    rates = model.inverse_transform(model.transform(given))
    flat = perplexity(np.tile(DATA.X.mean(axis=0), (60, 1)), asked)
    assert perplexity(rates + 1e-9, asked) < 0.6 * flat
    assert np.isfinite(model.score(new.X))
    mask = np.zeros(new.X.shape, dtype=bool)
    mask[:, ::6] = True
    assert model.heldout_score(new.X, mask) > -1.6
    model.save(tmp_path / "counts.thali")
    assert np.array_equal(load(tmp_path / "counts.thali").transform(given[:3]), model.transform(given[:3]))
