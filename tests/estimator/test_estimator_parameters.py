"""The parameters of LatentFeatures, its names of dims, and pipelines."""

import pickle

import numpy as np
import pandas as pd
import pytest
from short_fits import estimator
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from thali import IBP, BetaBernoulli, CollapsedGibbs, Gamma, LatentFeatures, LinearGaussian
from thali.errors import InvalidDataError, InvalidParameterError


def test_set_params_reaches_into_specs():
    m = LatentFeatures().set_params(prior__mass=2.0, observation__noise_var=0.5, n_chains=2)
    assert m.prior == IBP(mass=2.0)
    assert m.observation == LinearGaussian(noise_var=0.5)
    assert m.n_chains == 2
    m.set_params(prior__mass=Gamma(2, 1)).set_params(prior__mass__rate=3.0)
    assert m.prior.mass == Gamma(2, 3.0)
    m.set_params(prior=BetaBernoulli(), prior__n_features=4)
    assert m.prior == BetaBernoulli(n_features=4)
    m.set_params(inference=CollapsedGibbs(), inference__n_draws=7)
    assert m.inference == CollapsedGibbs(n_draws=7)
    with pytest.raises(InvalidParameterError, match="inference"):
        LatentFeatures().set_params(inference__n_draws=7)  # "auto" has no parameters
    with pytest.raises(ValueError, match="nothing"):
        m.set_params(nothing__at=1)


def test_set_params_leaves_shared_specs_alone():
    prior = IBP(mass=1.0)
    a, b = LatentFeatures(prior=prior), LatentFeatures(prior=prior)
    a.set_params(prior__mass=5.0)
    assert b.prior.mass == prior.mass == 1.0


def test_get_params_are_nested_where_specs_are_given():
    deep = LatentFeatures(prior=IBP(mass=2.0)).get_params()
    assert deep["prior__mass"] == 2.0
    assert deep["inference"] == "auto"


def test_clone(m):
    other = clone(m)
    assert other.get_params(deep=False) == m.get_params(deep=False)
    assert not hasattr(other, "components_")
    assert clone(LatentFeatures(prior=IBP(mass=2.0))).prior == IBP(mass=2.0)


def test_pickle(m, X):
    again = pickle.loads(pickle.dumps(m))
    assert np.array_equal(again.transform(X), m.transform(X))


def test_repr_names_what_was_set():
    assert "IBP(mass=2.0" in repr(LatentFeatures(prior=IBP(mass=2.0)))


# ---- pipelines and names


def test_names_out(m):
    assert list(m.get_feature_names_out()) == [f"latentfeatures{k}" for k in range(m.n_components_)]


def test_output_as_a_data_frame(X):
    frame = pd.DataFrame(X, columns=list("abcde"), index=np.arange(100, 140))
    m = estimator().set_output(transform="pandas").fit(frame)
    codes = m.transform(frame)
    assert isinstance(codes, pd.DataFrame)
    assert list(codes.columns) == list(m.get_feature_names_out())
    assert (codes.index == frame.index).all()
    assert list(m.feature_names_in_) == list("abcde")
    with pytest.raises(InvalidDataError, match="names"):
        m.transform(frame[list("edcba")])


def test_pipeline(X):
    pipe = make_pipeline(StandardScaler(), estimator()).fit(X)
    K = pipe[-1].n_components_
    assert pipe.transform(X).shape == (40, K)
    assert pipe.inverse_transform(pipe.transform(X)).shape == X.shape
    assert np.isfinite(pipe.score(X))
    assert len(pipe.get_feature_names_out()) == K
    pipe.set_params(latentfeatures__prior__mass=2.0)
    assert pipe[-1].prior.mass == 2.0


def test_wrong_number_of_dims(m, X):
    for method in (m.transform, m.presence, m.score, m.score_samples):
        with pytest.raises(InvalidDataError, match="5 features"):
            method(X[:, :3])


def test_no_features_at_all(rng):
    """Pure noise may well have none: everything still has its shape."""
    X = rng.standard_normal((15, 3))
    m = estimator(prior=IBP(mass=1e-6), observation=LinearGaussian(noise_var=1.0, feature_var=1e-3)).fit(X)
    assert m.n_components_ == 0
    assert m.transform(X).shape == (15, 0)
    assert m.inverse_transform(m.transform(X)).shape == (15, 3)
    assert m.components_.shape == (0, 3)
    assert np.isfinite(m.score(X))
    assert len(m.get_feature_names_out()) == 0
