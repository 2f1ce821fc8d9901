"""Each contract of a likelihood catches one that breaks it, and says which."""

from typing import Any

import numpy as np
import pytest
from outside.noisy_or import NoisyOr
from outside.scaled import Scaled
from scipy.sparse import issparse

from thali import Gamma, LinearGaussian, PoissonGamma
from thali.testing import check_observation
from thali.testing.contracts.likelihood import check_likelihood

COUNTS = {"weight_shape": 0.8, "weight_rate": 1.5, "feature_shape": 0.7, "feature_rate": 2.0}
NORMAL = {"noise_var": 0.3, "feature_var": 1.2}
DRAWS = 2000
CALLS: list[int] = []


def broken(base: type, **members: Any) -> type:
    """The class with some members in place of its own."""
    return type(f"Broken{base.__name__}", (base,), members)


def changed_in_place(self: Any, X: Any) -> np.ndarray:
    X += 0.0 * X
    X[0, 0] = 1.0 - X[0, 0]
    return X


def rounded(self: Any, X: Any) -> Any:
    return PoissonGamma.check_data(self, X if issparse(X) or np.asarray(X).dtype.kind != "f" else np.floor(X))


def half_empty(self: Any, X: Any) -> Any:
    X = PoissonGamma.check_data(self, X)
    return X * 0.0 if issparse(X) else X


def own_stream(self: Any, rng: Any, codes: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Another one for each call: the first two differ."""
    CALLS.append(1)
    return NoisyOr.sample_cells(self, np.random.default_rng(len(CALLS) % 2), codes, np.full_like(features, 0.5))


def guessing(self: Any, rng: Any, Z: np.ndarray, *, n_dims: int = 3, **more: Any) -> np.ndarray:
    return LinearGaussian.simulate(self, rng, Z, n_dims=n_dims, **more)


MUTANTS = {
    "simulate draws wider": (
        broken(Scaled, sample_cells=lambda s, rng, c, f: c @ f + 0.6 * rng.standard_normal((len(c), f.shape[1]))),
        "simulate must draw from the density that log_prob says",
    ),
    "binary cells not normalised": (
        broken(NoisyOr, log_cells=lambda s, X, c, f: NoisyOr.log_cells(s, X, c, f) - 0.2 * (X > 0)),
        r"simulate must draw from the density that log_prob says\. Its probabilities sum to",
    ),
    "counts not normalised": (
        broken(PoissonGamma, log_prob=lambda s, X, c, f: PoissonGamma.log_prob(s, X, c, f) + 0.05),
        r"simulate must draw from the density that log_prob says\. Its probabilities sum to",
    ),
    "a normal density not normalised": (
        broken(LinearGaussian, log_prob=lambda s, X, c, f: LinearGaussian.log_prob(s, X, c, f) + 0.5),
        "simulate must draw from the density that log_prob says",
    ),
    "features from another prior": (
        broken(NoisyOr, draw_features=lambda s, rng, k, d: rng.beta(s.strength, 1.5, (k, d))),
        "draw_features must draw from the density that log_features says",
    ),
    "features of another shape": (
        broken(NoisyOr, draw_features=lambda s, rng, k, d: rng.beta(s.strength, 1.0, (d, k))),
        "draw_features must give",
    ),
    "weights from another prior": (
        broken(Scaled, log_codes=lambda s, codes: Scaled.log_codes(s, 1.3 * codes)),
        "draw_codes must draw from the density that log_codes says",
    ),
    "codes that are no bits": (broken(NoisyOr, draw_codes=lambda s, rng, Z: 2 * Z), "draw_codes must give the kind"),
    "codes where bits are off": (
        broken(Scaled, draw_codes=lambda s, rng, Z: rng.standard_normal(np.shape(Z))),
        "draw_codes must give the kind",
    ),
    "negative codes": (
        broken(PoissonGamma, draw_codes=lambda s, rng, Z: -PoissonGamma.draw_codes(s, rng, Z)),
        "draw_codes must give the kind",
    ),
    "codes of no kind": (broken(LinearGaussian, code_kind="colours"), "An observation model must be a concrete"),
    "another mean": (
        broken(LinearGaussian, reconstruct=lambda s, c, f: 1.2 * (c @ f)),
        "reconstruct must give the mean",
    ),
    "a stream of its own": (
        broken(NoisyOr, sample_cells=own_stream),
        "simulate must give a matrix of finite numbers, the same ones",
    ),
    "dims guessed": (
        broken(LinearGaussian, simulate=guessing),
        "simulate must refuse",
    ),
    "missing cells as zeros": (
        broken(LinearGaussian, log_prob=lambda s, X, c, f: LinearGaussian.log_prob(s, np.nan_to_num(X), c, f)),
        "simulate must draw|log_prob must be a sum over cells",
    ),
    "all of a row left out with a cell": (
        broken(Scaled, log_prob=lambda s, X, c, f: Scaled.log_prob(s, np.where(np.isnan(X[:, -1:]), np.nan, X), c, f)),
        "simulate must draw|log_prob must be a sum over cells",
    ),
    "halves taken": (
        broken(PoissonGamma, check_data=rounded),
        "check_data must refuse a half",
    ),
    "twos taken": (
        broken(NoisyOr, check_data=lambda s, X: PoissonGamma().check_data(X)),
        "check_data must refuse a two",
    ),
    "data changed in place": (broken(NoisyOr, check_data=changed_in_place), "check_data must take what simulate gives"),
    "no missing cells": (
        broken(NoisyOr, check_data=lambda s, X: NoisyOr.check_data(s, X + 2 * np.isnan(X).any())),
        "check_data must take what simulate gives",
    ),
    "anything taken": (broken(Scaled, check_data=lambda s, X: X), "check_data must refuse text"),
    "sparse data lost": (broken(PoissonGamma, check_data=half_empty), "A model with takes_sparse must say the same"),
    "a distribution back": (
        broken(NoisyOr, adapt=lambda s, X: s.replace(strength=Gamma(2.0, 1.0))),
        "adapt and draw must leave a concrete model concrete",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_likelihood_is_named(name: str, rng: np.random.Generator) -> None:
    kind, words = MUTANTS[name]
    settings = COUNTS if issubclass(kind, PoissonGamma) else NORMAL if issubclass(kind, LinearGaussian) else {}
    with pytest.raises(AssertionError, match=rf"\A({words})"):
        check_likelihood(kind(**settings), rng, 2, DRAWS)


def test_what_is_learned_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(AssertionError, match=r"\AAn observation model must be a concrete .* strength is learned"):
        check_observation(NoisyOr(strength=Gamma(2.0, 1.0)), rng)
    with pytest.raises(AssertionError, match=r"\AAn observation model must be a concrete"):
        check_observation(7, rng)


def test_a_model_without_a_name_is_told_so(rng: np.random.Generator) -> None:
    with pytest.raises(
        AssertionError, match=r"\AAn observation model must come back from a file.*has no name in files"
    ):
        check_observation(broken(NoisyOr)(), rng, n_draws=500)
