"""`StochasticMeanField` through the estimator: arrays, memory maps, iterators, batches, files, interruptions."""

import os
import signal

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import thali
from thali import (
    IBP,
    BetaBernoulli,
    InvalidDataError,
    InvalidFileError,
    InvalidParameterError,
    LatentFeatures,
    LinearGaussian,
    PoissonGamma,
    StochasticMeanField,
)
from thali.posteriors.variational_sums import VariationalSums

N_DIMS = 6


@pytest.fixture(name="X", scope="module")
def made_of_three():
    rng = np.random.default_rng(3)
    Z = rng.random((120, 3)) < [0.5, 0.3, 0.6]
    return Z @ rng.normal(0, 2, (3, N_DIMS)) + rng.normal(0, 0.3, (120, N_DIMS))


def estimator(**settings):
    inference = StochasticMeanField(**{"batch_size": 40, "n_epochs": 10, "n_restarts": 1, "moves": False} | settings)
    return LatentFeatures(LinearGaussian(), IBP(), inference=inference, random_state=0)


def on_file(folder, X):
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


class TestInputs:
    def test_in_memory(self, X):
        """Rows' factors are kept, and the fitted rows are known again."""
        model = estimator(moves=True).fit(X)
        assert model.n_components_ == 3
        assert model.converged_
        assert model.check().startswith("converged (bound")
        assert model.posterior_.z_prob.shape == (120, 3)
        assert model._was_fitted(X)
        presence = model.presence(X)
        np.testing.assert_allclose(presence, model.posterior_.z_prob[:, model.posterior_.consensus.columns], atol=0.2)

    def test_memory_map(self, X, tmp_path):
        """Single precision on disk; only sums are kept, with the same answer."""
        stored = on_file(tmp_path, X.astype(np.float32))
        model, wanted = estimator().fit(stored), estimator().fit(X)
        assert isinstance(model.posterior_, VariationalSums)
        assert model.posterior_.n_rows == 120
        assert model.n_components_ == 3
        assert model.posterior_.bound == pytest.approx(wanted.posterior_.bound, abs=0.5)
        assert model.k_posterior_[3] == pytest.approx(1.0)
        assert model.score(X) == pytest.approx(wanted.score(X), abs=0.02)
        assert not model._was_fitted(X)
        np.testing.assert_allclose(model.components_, wanted.components_, atol=0.05)

    def test_rows_of_a_memory_map_are_not_kept(self, X, tmp_path):
        model = estimator(n_epochs=1).fit(on_file(tmp_path, X))
        for ask in (model.posterior_.bits, model.posterior_.codes):
            with pytest.raises(InvalidParameterError, match=r"was not kept.*Use presence\(X\)"):
                ask(0, 0)
        assert model.posterior_.draws["n_features"].item() == 3
        assert model.transform(X[:5]).shape == (5, 3)
        assert model.sample(4).shape == (4, N_DIMS)
        mask = np.zeros_like(X, dtype=bool)
        mask[:20, 2] = True
        assert -2 < model.heldout_score(X, mask) < 0.5  # as new rows
        hidden = np.where(mask, np.nan, X)
        assert np.abs(model.impute(hidden) - X)[mask].mean() < 0.6

    def test_missing_cells_on_disk(self, X, tmp_path):
        """A block may lack a whole dim."""
        holes = X.copy()
        holes[:40, 1] = np.nan
        model = estimator(moves=True).fit(on_file(tmp_path, holes))
        assert model.n_components_ == 3

    @pytest.mark.parametrize("method", ["memoised", "robbins-monro"])
    def test_batches_and_iterators_are_the_same(self, X, method):
        """To the bit: `partial_fit` of each batch, and `fit` of their iterator."""
        batches = np.split(X, [50, 90])
        whole = estimator(method=method).fit(batch for batch in batches)
        parts = estimator(method=method)
        for batch in batches:
            parts.partial_fit(batch)
        np.testing.assert_array_equal(whole.components_, parts.components_)
        assert whole.posterior_.bound == parts.posterior_.bound
        assert whole.history_["n_rows"].tolist() == [[50, 90, 120]]
        assert whole.check().startswith("not judged: 3 batches, each seen once")
        assert whole.n_components_ == 3

    def test_counts(self, tmp_path):
        """A sparse matrix in memory, whole numbers on disk, and an iterator of sparse batches."""
        rng = np.random.default_rng(0)
        features = np.kron(np.eye(3), np.full((1, 4), 5.0))
        Z = np.eye(3)[rng.integers(3, size=120)] + (rng.random((120, 3)) < 0.2)
        counts = rng.poisson(Z * rng.gamma(5.0, 0.5, (120, 3)) @ features)
        sparse = csr_matrix(counts.astype(float))
        kinds = (sparse, on_file(tmp_path, counts.astype(np.int16)), (sparse[i : i + 60] for i in (0, 60)))
        for data in kinds:
            model = estimator(moves=True).set_params(observation=PoissonGamma(), prior=BetaBernoulli(n_features=6))
            model.fit(data)
            assert model.n_components_ == 3
            assert model.posterior_.n_rows == 120
            shares = model.components_ / model.components_.sum(axis=1, keepdims=True)
            assert np.sort(shares @ features.T / 5.0, axis=1)[:, -1].min() > 0.98

    def test_partial_fit_exists_only_for_streams(self):
        assert hasattr(estimator(), "partial_fit")
        assert not hasattr(LatentFeatures(inference=thali.MeanField()), "partial_fit")

    def test_batches_after_a_fit(self, X, tmp_path):
        """They are added to the rows of the fit, in memory or on disk, and after it was saved."""
        for data in (X[:80], on_file(tmp_path, X[:80])):
            model = estimator().fit(data)
            model.save(tmp_path / "f.thali")
            again = thali.load(tmp_path / "f.thali")
            for one in (model, again):
                one.partial_fit(X[80:])
                assert one.posterior_.n_rows == 120
                assert one.history_["n_rows"].tolist() == [[80, 120]]
            assert again.posterior_.bound == model.posterior_.bound
            assert isinstance(model.posterior_, VariationalSums)

    def test_a_running_mean_after_a_fit_counts_rows_once(self, X):
        model = estimator(method="robbins-monro", n_epochs=3).fit(X[:80]).partial_fit(X[80:])
        assert model.posterior_.n_rows == 120

    def test_a_fit_begins_anew(self, X):
        model = estimator()
        model.partial_fit(X[:50]).fit(iter([X[50:]]))
        assert model.posterior_.n_rows == 70


class TestErrors:
    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (iter([]), "Got an iterator with none"),
            (iter([np.ones(3)]), "X must be a matrix"),
            (iter([["a"]]), "X must be a matrix"),
            ([[1.0, np.inf]], "X must"),
        ],
    )
    def test_bad_data(self, data, words):
        with pytest.raises(InvalidDataError, match=words):
            estimator().fit(data)

    def test_bad_memory_maps(self, tmp_path, X):
        for bad, words in ((np.ones(5), "must be a matrix"), (np.full((50, 2), np.inf), "must hold")):
            with pytest.raises(InvalidDataError, match=words):
                estimator().fit(on_file(tmp_path, bad))
        late = X.copy()
        late[100, 2] = np.inf
        with pytest.raises(InvalidDataError, match="must hold"):
            estimator(n_start=10).fit(on_file(tmp_path, late))

    def test_settings_of_samplers(self, X):
        with pytest.raises(InvalidParameterError, match="is for samplers"):
            estimator().set_params(target_ess=100.0).fit(X)

    def test_a_truncation_beyond_the_prior(self, X):
        model = estimator(truncation=9).set_params(prior=BetaBernoulli(n_features=4))
        with pytest.raises(InvalidParameterError, match="must be at most the 4 features"):
            model.fit(X)

    def test_a_discount(self, X):
        with pytest.raises(InvalidParameterError, match=r"Got discount=0\.5"):
            estimator().set_params(prior=IBP(discount=0.5)).fit(X)


class TestInterruptions:
    def test_a_signal_ends_a_stream_after_its_batch(self, X):
        def batches():
            yield X[:40]
            os.kill(os.getpid(), signal.SIGINT)
            yield X[40:80]
            raise AssertionError("not reached")

        with pytest.warns(UserWarning, match="Stopped by interrupt after 80 rows"):
            model = estimator().fit(batches())
        assert model.interrupted_
        assert model.posterior_.n_rows == 80
        model.partial_fit(X[80:])
        assert model.posterior_.n_rows == 120
        assert not model.interrupted_

    def test_what_came_before_an_error_is_kept(self, X):
        def batches():
            yield X[:40]
            yield X[40:80]
            raise OSError("no more")

        model = estimator()
        with pytest.raises(OSError, match="no more"):
            model.fit(batches())
        assert model.posterior_.n_rows == 80
        with pytest.raises(InvalidDataError, match="X has 5 features, but"):
            model.partial_fit(X[:, :5])
        assert model.partial_fit(X[80:]).posterior_.n_rows == 120

    def test_time_ends_a_fit_after_a_block(self, X, tmp_path):
        for data in (X, on_file(tmp_path, X)):
            model = estimator().set_params(max_time=1e-9)
            with pytest.warns(UserWarning, match="Stopped by max_time: saw 40 of 120 rows"):
                model.fit(data)
            assert model.stopped_by_ == "max_time"
            assert model.posterior_.n_rows == 40
            assert model.transform(X).shape == (120, model.n_components_)


class TestFiles:
    def test_a_stream_goes_on_after_it_was_saved(self, X, tmp_path):
        model = estimator()
        model.partial_fit(X[:70])
        model.save(tmp_path / "s.thali")
        again = thali.load(tmp_path / "s.thali")
        np.testing.assert_array_equal(again.components_, model.components_)
        assert again.posterior_.n_rows == 70
        assert again.check() == model.check()
        for one in (model, again):
            one.partial_fit(X[70:])
        assert again.posterior_.bound == model.posterior_.bound
        np.testing.assert_array_equal(again.components_, model.components_)

    def test_fits(self, X, tmp_path):
        for data in (X, on_file(tmp_path, X)):
            model = estimator().fit(data)
            model.save(tmp_path / "f.thali")
            again = thali.load(tmp_path / "f.thali")
            assert type(again.posterior_) is type(model.posterior_)
            np.testing.assert_array_equal(again.transform(X), model.transform(X))
            assert again.k_posterior_ == model.k_posterior_

    def test_a_damaged_stream(self, X, tmp_path):
        model = estimator().partial_fit(X[:70])
        task = model._outcome.stream.tasks[0]
        state = task.state.state
        state = state._replace(statistics=state.statistics._replace(cross=np.zeros((2, 2))))
        task.state = task.state._replace(state=state)
        model.save(tmp_path / "s.thali")
        with pytest.raises(InvalidFileError):
            thali.load(tmp_path / "s.thali")
