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
