"""The posterior of a variational fit: golden held-out scores, exact summaries, and all that a posterior does."""

import itertools
import math
import warnings

import numpy as np
import pytest
from scipy.special import expit

import thali
from thali import BetaBernoulli, FactorAnalysis, LatentFeatures, LinearGaussian, MeanField, PoissonGamma
from thali.core.model import Model
from thali.core.protocols.engines.mean_field import Family
from thali.core.protocols.engines.predictions import Predictions
from thali.errors import InvalidFileError, InvalidParameterError
from thali.observations.gaussian.mean_field.bits import BitFactors
from thali.observations.gaussian.mean_field.sums import GaussianFeatures
from thali.posteriors import variational_heldout as variational_prediction
from thali.posteriors.approximation import Approximation, Factors
from thali.posteriors.draws import Draws
from thali.posteriors.prediction import heldout
from thali.posteriors.variational import Variational
from thali.posteriors.variational_heldout import check_kind, log_mixture
from thali.testing import z_limit

NOISE, FEATURE = 0.6**2, 1.1**2
N, D = np.arange(1, 5)[:, None], np.arange(1, 4)
X = np.sin(N * D) + 0.7 * np.cos(0.3 * N + D)
PHI = np.array([[0.5, -0.2, 0.1], [-0.3, 0.8, 0.4]])
S2 = np.array([0.2, 0.35])
NU = expit(np.array([[0.3, -0.5], [1.0, 0.2], [-0.7, 0.9], [0.1, -1.2]]))
MASK = np.zeros((4, 3), dtype=bool)
MASK[2, 1] = MASK[3, 0] = True
GOLDEN = {  # G25: sums over the two masked cells
    "row": -4.411657195349161,
    "moment": -4.294998799492237,
    "jensen": -7.358425640775264,
    "plugin": -6.358494868423238,
}


def posterior_of(z_prob, phi=PHI, var=S2):
    """A posterior with these factors."""
    K = z_prob.shape[1]
    prior = BetaBernoulli(1.5, n_features=K)
    observation = LinearGaussian(noise_var=NOISE, feature_var=FEATURE)
    q = GaussianFeatures(
        Family(features="independent"), observation, phi, np.diag(var / NOISE)[None], z_prob.sum(axis=0)
    )
    weights = prior.update_weights(prior.init_weights(len(z_prob)), z_prob.sum(axis=0), len(z_prob))
    return Variational(Approximation(Model(prior, observation), Factors(BitFactors(z_prob), q, weights, -30.0)))


class TestHeldOutCells:
    @pytest.mark.parametrize("by", GOLDEN)
    def test_golden(self, by):
        found = 2 * heldout(posterior_of(NU), X, MASK, by, fitted=True)
        assert found == pytest.approx(GOLDEN[by], rel=1e-9)

    def test_scores_differ_by_far_more_than_the_tolerance(self):
        """Each is a mutant of the others."""
        values = sorted(GOLDEN.values())
        assert min(b - a for a, b in itertools.pairwise(values)) > 0.1

    def test_features_must_be_integrated_out(self):
        """Mutant: features at their mean in the mixture."""
        wrong = 2 * heldout(posterior_of(NU, var=1e-12 * S2), X, MASK, "row", fitted=True)
        assert abs(wrong - GOLDEN["row"]) > 0.1

    def test_draws_agree_with_enumeration(self, rng, monkeypatch):
        z_prob = rng.random((30, 4))
        posterior = posterior_of(z_prob, rng.standard_normal((4, 3)), np.full(4, 0.2))
        data, mask = rng.standard_normal((30, 3)), rng.random((30, 3)) < 0.6
        rows = np.arange(30)
        for by_cell in (False, True):
            exact = log_mixture(posterior, data, mask, rows, by_cell=by_cell)
            monkeypatch.setattr(variational_prediction, "_ENUMERATED", -1)
            drawn = log_mixture(posterior, data, mask, rows, by_cell=by_cell)
            monkeypatch.undo()
            assert 0 < np.abs(exact - drawn).max() < 0.5
            assert abs(np.mean(exact - drawn)) < 0.05

    def test_certain_bits_need_no_enumeration(self, rng):
        bits = (rng.random((20, 25)) < 0.5).astype(float)
        posterior = posterior_of(bits, rng.standard_normal((25, 3)), np.full(25, 0.01))
        data = rng.standard_normal((20, 3))
        mask = np.ones((20, 3), dtype=bool)
        found = log_mixture(posterior, data, mask, np.arange(20), by_cell=False)
        observation, book = posterior.q.model.observation, posterior.q.codebook
        assert found == pytest.approx(
            observation.engine(Predictions).log_cells(data, bits, book).sum(axis=1), rel=1e-12
        )

    def test_a_mixture_over_cells_is_no_mixture_over_rows(self, rng):
        posterior = posterior_of(rng.random((5, 2)), 3 * PHI)
        data, mask = rng.standard_normal((5, 3)), np.ones((5, 3), dtype=bool)
        rows = log_mixture(posterior, data, mask, np.arange(5), by_cell=False)
        cells = log_mixture(posterior, data, mask, np.arange(5), by_cell=True)
        assert np.abs(rows - cells.reshape(5, 3).sum(axis=1)).max() > 0.01

    def test_refusals(self):
        with pytest.raises(InvalidParameterError, match='"plugin"'):
            heldout(posterior_of(NU), X, MASK, "best", fitted=True)
        with pytest.raises(InvalidParameterError, match="rows that were fitted"):
            heldout(posterior_of(NU), X, MASK, "jensen", fitted=False)
        with pytest.raises(InvalidParameterError, match="variational fits"):
            check_kind(Draws.__new__(Draws), "moment", fitted=True)


class TestSummaries:
    def test_number_of_features_by_enumeration(self, rng):
        posterior = posterior_of(0.2 * rng.random((6, 3)), rng.standard_normal((3, 3)), np.full(3, 0.2))
        chance = 1 - np.prod(1 - posterior.z_prob, axis=0)
        assert posterior.q.in_use == pytest.approx(chance)
        exact = dict.fromkeys(range(4), 0.0)
        for bits in itertools.product((0, 1), repeat=3):
            exact[sum(bits)] += math.prod(p if b else 1 - p for p, b in zip(chance, bits, strict=True))
        assert posterior.k_posterior == pytest.approx(exact)
        assert posterior.k_mean == pytest.approx(chance.sum())

    def test_draws_are_those_of_q(self, rng):
        posterior = posterior_of(rng.random((8, 2)))
        drawn = np.array([posterior.Z(0, i) for i in range(posterior.n_draws)])
        assert posterior.n_draws == 1000
        error = np.sqrt(posterior.z_prob * (1 - posterior.z_prob) / len(drawn))
        z = (drawn.mean(axis=0) - posterior.z_prob) / error
        assert np.abs(z).max() < z_limit(z.size)
        expected = posterior.draws["n_features"].mean()
        assert expected == pytest.approx(posterior.k_mean, abs=4 * posterior.draws["n_features"].std() / 30)

    def test_a_draw_is_always_the_same(self, rng):
        z_prob = rng.random((8, 2))
        first, second = posterior_of(z_prob), posterior_of(z_prob)
        assert np.array_equal(first.Z(0, 5), second.Z(0, 5))
        first.Z(0, 1)
        assert np.array_equal(first.Z(0, 5), second.Z(0, 5))
        assert not np.array_equal(first.Z(0, 4), first.Z(0, 5))

    def test_columns_of_a_draw_belong_together(self, rng):
        posterior = posterior_of(np.column_stack([np.full(9, 0.05), np.full(9, 0.9)]))
        for i in range(20):
            k = posterior.bits(0, i).shape[1]
            assert k == posterior.draws["n_features"][0, i]
            assert posterior.codes(0, i).shape[1] == k
            assert posterior.features(0, i).shape == (k, 3)
            assert posterior.codebook(0, i).gram_inv.shape == (k, k)

    def test_persistent_features_in_order_of_frequency(self):
        posterior = posterior_of(
            np.column_stack([np.full(9, 0.02), np.full(9, 0.3), np.full(9, 0.9)]), np.eye(3), np.full(3, 0.1)
        )
        assert posterior.consensus.columns.tolist() == [2, 1]
        assert posterior.consensus.stability == pytest.approx(posterior.q.in_use[[2, 1]])
        encoder = posterior.encoder
        assert np.array_equal(encoder.codebook.features, np.eye(3)[[2, 1]])
        weights = posterior.model.prior.expected_weights(posterior.factors.weights)
        assert expit(encoder.log_odds) == pytest.approx(weights[[2, 1]])
        assert encoder.rate == pytest.approx(weights[0])


HOLES = np.random.default_rng(0).random((60, 36)) < 0.1
BARS = thali.datasets.bars(60)
MISSING = np.where(HOLES, np.nan, BARS.X)


@pytest.fixture(scope="module")
def model():
    return LatentFeatures(inference=MeanField(n_restarts=2), random_state=0).fit(MISSING)


class TestEstimator:
    def test_all_that_a_posterior_does(self, model):
        assert model.n_components_ == 4
        assert model.posterior_.n_chains == 1
        assert (model.stability_ > 0.99).all()
        codes = model.transform(MISSING)
        assert np.array_equal(codes, model.presence(MISSING))
        filled, lower, upper = model.impute(MISSING, interval=0.9)
        assert np.array_equal(filled[~HOLES], BARS.X[~HOLES])
        assert 0.8 < np.mean((lower <= BARS.X)[HOLES] & (upper >= BARS.X)[HOLES]) < 0.97
        assert np.array_equal(filled, model.impute(MISSING))
        assert model.heldout_score(BARS.X, HOLES) > -1.0
        assert model.heldout_score(BARS.X, HOLES, by="jensen") < model.heldout_score(BARS.X, HOLES)
        assert model.score(BARS.X) == pytest.approx(np.mean(model.score_samples(BARS.X)))
        assert model.sample(3, random_state=1).shape == (3, 36)
        assert (model.novelty(BARS.X) < 0.1).mean() > 0.9
        assert model.inverse_transform(codes).shape == BARS.X.shape

    def test_what_it_says_of_itself(self, model):
        assert model.converged_
        for part in ("converged", "log p(X) >=", "4 features", "restarts reached it"):
            assert part in model.check()
        assert model.posterior_.bound == pytest.approx(-model.history_["objective"][:, -1].min())
        assert model.posterior_.bound - 20 < model.posterior_.ibp_bound < model.posterior_.bound
        counted = thali.how_many(MISSING, inference=MeanField(n_restarts=1), random_state=0)
        assert counted.k == 4
        assert counted.interval == (4, 4)
        assert model.posterior_.draws["noise_var"][0, 0] == pytest.approx(0.25, rel=0.3)

    def test_fitted_rows_are_predicted_by_their_own_factors(self, model):
        mean = model.posterior_.fitted_mean(np.arange(60))
        assert model.impute(MISSING)[HOLES] == pytest.approx(mean[HOLES])

    def test_file(self, model, tmp_path):
        path = tmp_path / "q.thali"
        model.save(path)
        loaded = thali.load(path)
        assert loaded.check() == model.check()
        assert loaded.posterior_.bound == model.posterior_.bound
        for name in ("transform", "score_samples", "novelty"):
            assert np.array_equal(getattr(loaded, name)(BARS.X), getattr(model, name)(BARS.X))
        assert np.array_equal(loaded.posterior_.Z(0, 7), model.posterior_.Z(0, 7))
        assert loaded.heldout_score(BARS.X, HOLES) == model.heldout_score(BARS.X, HOLES)
        loaded.save(tmp_path / "again.thali")
        assert (tmp_path / "again.thali").read_bytes() == path.read_bytes()

    def test_damaged_files_are_refused(self, model, tmp_path):
        factors = model.posterior_.factors
        local = factors.local._replace(z_prob=factors.local.z_prob + 1.5)
        narrow = factors.q._replace(mean=factors.q.mean[:, :-1])
        spread = factors.q._replace(cov=-factors.q.cov)
        wrong = [factors._replace(q=narrow), factors._replace(q=spread)]
        wrong += [factors._replace(local=local), factors._replace(bound=math.inf)]
        for i, damaged in enumerate(wrong):
            copy = LatentFeatures(inference=MeanField(n_restarts=2), random_state=0)
            copy.__dict__.update(model.__dict__)
            copy.posterior_ = Variational(Approximation(model.posterior_.model, damaged))
            copy.save(tmp_path / f"{i}.thali")
            with pytest.raises(InvalidFileError):
                thali.load(tmp_path / f"{i}.thali")

    @pytest.mark.parametrize(("kind", "field"), [(PoissonGamma, "w_shape"), (FactorAnalysis, "curve")])
    def test_factors_that_no_fit_has_are_refused(self, kind, field, rng, tmp_path):
        X = rng.poisson(3.0, (12, 4)).astype(float)
        settings = {"inference": MeanField(n_restarts=1, max_iter=5), "random_state": 0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LatentFeatures(kind(), **settings).fit(X)
        factors = model.posterior_.factors
        damaged = factors._replace(local=factors.local._replace(**{field: -1 - getattr(factors.local, field)}))
        model.posterior_ = Variational(Approximation(model.posterior_.model, damaged))
        model.save(tmp_path / "x.thali")
        with pytest.raises(InvalidFileError):
            thali.load(tmp_path / "x.thali")
