"""What a right result of a fit is, and what a right refusal: one of thali's own errors with words in it."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from thali import CollapsedGibbs, LatentFeatures, LinearGaussian
from thali.errors import ThaliError
from thali.posteriors.variational import Variational

QUICK = CollapsedGibbs(n_warmup=2, n_draws=3, start="empty")


def accepted(call: Callable[[], Any]) -> Any:
    """The result, or None if it was refused by one of our own errors, with words in it."""
    try:
        return call()
    except (ThaliError, NotFittedError) as error:
        words = str(error)
    assert len(words) > 10
    return None


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def is_share(values: Any) -> bool:
    values = np.asarray(values)
    return bool(np.isfinite(values).all() and (values >= 0).all() and (values <= 1).all())


def check_fit(model: LatentFeatures, n_rows: int, n_dims: int) -> None:
    """What a fit says of itself is finite and agrees with itself."""
    K = model.n_components_
    assert model.components_.shape == (K, n_dims)
    assert np.isfinite(model.components_).all()
    assert model.stability_.shape == (K,)
    assert is_share(model.stability_)
    assert sum(model.k_posterior_.values()) == pytest.approx(1)
    assert is_share(list(model.k_posterior_.values()))
    posterior = model.posterior_
    in_use = posterior.draws["n_features"]
    for name, values in posterior.draws.items():
        assert values.shape == in_use.shape, name
        assert np.isfinite(values).all(), name
    assert isinstance(model.check(), str)
    if not getattr(model.inference, "keeps_rows", True):  # what is left is a law of features, and sums
        assert model.n_samples_seen_ == n_rows
        return
    assert posterior.n_rows == n_rows
    numbers = set(in_use.ravel().tolist())
    if isinstance(posterior, Variational):
        assert numbers <= set(model.k_posterior_)  # a law, of which draws show a part
    else:
        assert numbers == set(model.k_posterior_)
    assert max(model.k_posterior_) >= K
    for chain, draw in np.ndindex(in_use.shape):
        Z = posterior.Z(chain, draw)
        assert Z.shape[0] == n_rows
        assert np.isin(Z, (0, 1)).all()
        assert Z.any(axis=0).sum() == in_use[chain, draw]
        assert posterior.features(chain, draw).shape == (in_use[chain, draw], n_dims)
    n_runs = len(model.history_["settled"]) if "settled" in model.history_ else posterior.n_chains  # restarts or chains
    assert len(model.agreement_.n_features) == n_runs


def check_use(model: LatentFeatures, X: Any, values: np.ndarray) -> None:
    """What a fit says of rows is finite and has the right shape. `values` are the cells of X as floats."""
    n_rows, K = len(values), model.n_components_
    presence = model.presence(X)
    assert presence.shape == (n_rows, K)
    assert is_share(presence)
    codes = model.transform(X)
    assert np.isfinite(codes).all()
    if isinstance(model.posterior_.model.observation, LinearGaussian):
        assert np.array_equal(codes, presence)
    assert model.inverse_transform(codes).shape == values.shape
    scores = model.score_samples(X)
    assert scores.shape == (n_rows,)
    assert np.isfinite(scores).all()
    assert is_share(model.novelty(X))
    filled, lower, upper = model.impute(X, interval=0.5)
    seen = ~np.isnan(values)
    for found in (filled, lower, upper):
        assert found.shape == values.shape
        assert np.isfinite(found).all()
        assert np.array_equal(found[seen], values[seen])
    assert (lower <= upper).all()
    assert np.isfinite(model.sample(2, random_state=0)).all()
