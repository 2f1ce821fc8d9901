"""Parts of the benchmarks of the papers' real data: splits, scores and ordinary models."""

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multivariate_normal

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.papers import dd_ibp_drift, dd_ibp_eeg, dd_ibp_props
from benchmarks.papers.heldout_cells import (
    HiddenCells,
    column_means,
    factor_rows,
    fit_nmf,
    hide_a_third,
    log_mean_rows,
    normal_rows,
)
from benchmarks.papers.nsfa_genes import areas, matched
from benchmarks.papers.nsfa_printed import FULL, PrintedAlgorithm, column_scores, report_estimator
from benchmarks.papers.paisley_genomes import by_region, clearness, shared
from benchmarks.papers.recursive_digits import agreement, contrast
from benchmarks.papers.recursive_marginals import draw_counts, without_data
from benchmarks.papers.recursive_parts import diabetes, synthetic, truth_known
from benchmarks.papers.recursive_synthetic import n_matched
from benchmarks.papers.recursive_zero_noise import objective, one_pass, started_at_prior
from benchmarks.papers.word_counts import (
    Corpus,
    kl_loss,
    kl_nmf,
    kl_nmf_rates,
    partition,
    perplexity,
    smoothed,
    split_tokens,
    unigram,
    update_left,
    update_right,
)
from thali.core.protocols.engines.chains import AuxiliaryRows, ChainRows
from thali.inference.calibration.factor_em import FactorFit
from thali.priors import recursion

# --- hidden cells ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_rows", "n_dims"), [(20, 9), (21, 10), (7, 1)])
def test_a_third_of_the_last_half_is_hidden(rng, n_rows, n_dims):
    cells = hide_a_third(rng.standard_normal((n_rows, n_dims)))
    per_row = cells.hidden.sum(axis=1)
    assert not per_row[: -(-n_rows // 2)].any()
    assert set(per_row[-(-n_rows // 2) :]) == {max(1, round(n_dims / 3))}
    np.testing.assert_array_equal(np.isnan(cells.seen), cells.hidden)
    np.testing.assert_array_equal(cells.hidden, hide_a_third(rng.standard_normal((n_rows, n_dims))).hidden)


def test_rows_of_a_factor_analysis_are_conditional_normals(rng):
    X = rng.standard_normal((8, 5))
    fit = FactorFit(rng.standard_normal(5), rng.standard_normal((2, 5)), rng.uniform(0.5, 1.0, 5))
    cells = hide_a_third(X)
    cov = fit.loadings.T @ fit.loadings + np.diag(fit.noise_var)
    wanted = []
    for row in cells.test_rows:
        seen = ~cells.hidden[row]
        whole = multivariate_normal(fit.mean, cov).logpdf(X[row])
        wanted.append(whole - multivariate_normal(fit.mean[seen], cov[np.ix_(seen, seen)]).logpdf(X[row, seen]))
    np.testing.assert_allclose(factor_rows(cells, fit), wanted, rtol=1e-10)


def test_scores_of_independent_cells_and_of_mixtures(rng):
    X = rng.standard_normal((6, 4))
    cells = hide_a_third(X)
    density = multivariate_normal(0.5, 2.0).logpdf
    wanted = [sum(density(x) for x in X[row, cells.hidden[row]]) for row in cells.test_rows]
    rows = normal_rows(cells, np.full(4, 0.5), 2.0)
    np.testing.assert_allclose(rows, wanted, rtol=1e-12)
    np.testing.assert_allclose(log_mean_rows([rows, rows - np.log(3)]), rows + np.log(2 / 3), rtol=1e-12)
    assert column_means(cells)[0].shape == (3,)


def test_nmf_finds_cells_of_a_product_that_it_never_saw(rng):
    X = rng.uniform(0, 1, (60, 2)) @ rng.uniform(0, 1, (2, 30))
    cells = hide_a_third(X)
    left = X - fit_nmf(cells.seen, 2, n_rounds=200)
    assert np.abs(left[cells.hidden]).max() < 0.02 * X.std()
    lied = HiddenCells(np.where(cells.hidden, 100.0, X), cells.hidden)
    np.testing.assert_array_equal(fit_nmf(cells.seen, 2), fit_nmf(lied.seen, 2))


# --- word counts -----------------------------------------------------------------------------------


def test_tokens_are_split_in_halves(rng):
    counts = sparse.csr_array(rng.poisson(0.7, (40, 12)))
    given, asked = split_tokens(rng, counts)
    np.testing.assert_array_equal((given + asked).toarray(), counts.toarray())
    np.testing.assert_array_equal(given.sum(axis=1), counts.sum(axis=1) // 2)
    assert given.data.min() > 0
    assert asked.data.min() > 0


def test_half_of_each_words_tokens_are_given_on_average(rng):
    counts = sparse.csr_array(np.array([[10, 3, 1, 6]]))
    mean = np.mean([split_tokens(rng, counts)[0].toarray()[0] for _ in range(4000)], axis=0)
    np.testing.assert_allclose(mean, [5.0, 1.5, 0.5, 3.0], atol=0.12)  # six errors of the first


def test_a_partition_depends_on_its_number_alone(rng):
    corpus = Corpus(sparse.csr_array(rng.poisson(2.0, (16, 5))), list("abcde"))
    one, again, other = partition(corpus, 0), partition(corpus, 0), partition(corpus, 1)
    assert one.train.shape == (10, 5)
    assert one.given.shape == one.asked.shape == (6, 5)
    for left, right in zip(one, again, strict=True):
        np.testing.assert_array_equal(left.toarray(), right.toarray())
    assert (one.train != other.train).nnz > 0
    assert one.train.sum() + one.given.sum() + one.asked.sum() == corpus.counts.sum()


def test_perplexity_golden():
    rates = np.array([[1, 2], [0.5, 0.3], [2.5, 0.7]]).T
    asked = sparse.csr_array(np.array([[2, 1], [0, 3], [4, 0]]).T)
    assert perplexity(rates, asked) == pytest.approx(3.30878933489, rel=1e-11)
    assert perplexity(7 * rates, asked) == pytest.approx(3.30878933489, rel=1e-11)
    flat = np.ones((2, 3))
    assert perplexity(flat, asked) == pytest.approx(3.0)
    assert perplexity(smoothed(rates, share=1.0), asked) == pytest.approx(3.0)


def _golden_problem():
    i, j = np.mgrid[:6, :5]
    counts = sparse.csr_array((3 * i + 5 * j + i * j + 1) % 4)

    def wave(c, n, m):
        return np.sin(c + 1.3 * np.arange(n)[:, None] + 0.7 * np.arange(m))

    return counts, 1 + 0.3 * wave(0, 6, 2), 1 + 0.3 * wave(1, 2, 5)


def test_multiplicative_updates_golden():
    counts, W, H = _golden_problem()
    losses = []
    for _ in range(6):
        losses.append(kl_loss(counts, W, H))
        H = update_right(counts, W, H)
        W = update_left(counts, W, H)
    wanted = [23.3875479558, 13.3705685515, 13.3368988088, 13.278930006, 13.1309699587, 12.7262462871]
    np.testing.assert_allclose(losses, wanted, rtol=1e-11)


def test_multiplicative_updates_never_raise_the_divergence(rng):
    counts = sparse.csr_array(rng.poisson(rng.gamma(0.3, 3.0, (30, 20))))
    W, H = rng.uniform(0.5, 1.5, (30, 4)), rng.uniform(0.5, 1.5, (4, 20))
    losses = [kl_loss(counts, W, H)]
    for _ in range(40):
        H = update_right(counts, W, H)
        losses.append(kl_loss(counts, W, H))
        W = update_left(counts, W, H)
        losses.append(kl_loss(counts, W, H))
    assert np.diff(losses).max() <= 1e-9 * losses[0]
    assert losses[-1] < 0.8 * losses[0]


def test_topics_predict_better_than_words_alone(rng):
    true = rng.gamma(0.05, 1.0, (3, 40)) + 1e-3
    weights = rng.gamma(0.3, 1.0, (160, 3))
    rates = weights @ (true / true.sum(axis=1, keepdims=True))
    corpus = Corpus(sparse.csr_array(rng.poisson(100 * rates / rates.sum(axis=1, keepdims=True))), [""] * 40)
    part = partition(corpus, 0)
    _, topics = kl_nmf(rng, part.train, 3)
    found = perplexity(smoothed(kl_nmf_rates(part.given, topics)), part.asked)
    assert found < 0.9 * perplexity(smoothed(unigram(part)), part.asked)


# --- shared features -------------------------------------------------------------------------------


def test_sharing_by_region():
    z = np.array([[1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 1]], dtype=float)
    region = np.array(["a", "a", "b", "b"])
    table = shared(z)
    np.testing.assert_array_equal(table[0], [2, 1, 0, 1])
    names, means = by_region(table, region)
    assert names == ["a", "b"]
    np.testing.assert_allclose(means, [[1.0, 0.25], [0.25, 1.0]])


def test_clear_sharing_is_told_from_none(rng):
    region = np.repeat(["a", "b", "c"], 20)
    own = (region[:, None] == np.array(["a", "b", "c"])).astype(float)
    clear, none = clearness(shared(own), region), clearness(shared(rng.random((60, 5))), region)
    assert (clear["within"], clear["between"], clear["neighbours"]) == (1.0, 0.0, 1.0)
    assert none["neighbours"] < 0.6
    assert none["within"] == pytest.approx(none["between"], rel=0.2)


# --- sparse factors --------------------------------------------------------------------------------


def sparse_rows(rng):
    observation = FULL.observation
    Z = rng.integers(2, size=(6, 2)).astype(np.uint8)
    return observation, *observation.engine(AuxiliaryRows).simulate_local(rng, Z, 5)


def test_new_columns_have_their_factors_integrated_out(rng):
    _, Y, local = sparse_rows(rng)
    got = column_scores(Y[:, :1], local)[0]
    F = rng.standard_normal((20_000, local.v.shape[1]))
    terms = multivariate_normal(np.zeros(6), np.diag(local.noise)).logpdf(Y[:, 0] - F @ local.v.T)
    assert got == pytest.approx(np.log(np.mean(np.exp(terms - terms.max()))) + terms.max(), abs=0.2)


def test_the_printed_algorithm_runs_and_its_score_is_that_of_the_prior(rng):
    observation, Y, local = sparse_rows(rng)
    data = observation.engine(ChainRows).prepare(Y)
    prior = FULL.prior.draw(rng)
    after, _ = PrintedAlgorithm(births="proposed").sweep(rng, prior, observation, data, local)
    observation.engine(ChainRows).check(data, after)
    concrete = FULL.replace(prior=prior)
    scores = [report_estimator(rng, Y, concrete, local) for _ in range(3)]
    assert np.shape(scores) == (3, 6)
    assert np.ptp(scores, axis=0).min() > 0  # of somebody else's loadings each time


def test_links_are_matched_to_their_regulators():
    known = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    strength = np.array([[0.0, 0.1, 0.9, 0.8], [0.9, 0.7, 0.0, 0.0], [0.1, 0.0, 0.1, 0.0]])
    assert np.array_equal(matched(strength, known), strength[[1, 0]].T)
    assert areas(strength, known) == (1.0, 1.0)
    assert areas(strength[:, [0, 2, 1, 3]], known)[0] < 1.0


# --- the recursive IBP -----------------------------------------------------------------------------


def test_drawn_marginals_are_those_of_the_recursion(rng):
    n_draws, P = 4000, recursion.marginals(1.5, 2.0, 6, 10)
    z = (draw_counts(rng, 1.5, 2.0, 6, 10, n_draws) / n_draws - P) / np.sqrt(np.maximum(P * (1 - P), 1e-4) / n_draws)
    assert np.abs(z).max() < 4.5


def test_births_of_a_filter_without_data():
    """Golden: with existence as printed it drifts, by Bayes' rule it does not."""
    assert without_data(2.0, 1.0, "poisson", "product", 200)["features"] == pytest.approx(17.75, abs=0.01)
    for how in ("poisson", "comonotone"):
        right = without_data(2.0, 1.0, how, "Bayes", 60)
        assert right["features"] == pytest.approx(right["exact"], abs=1e-9)
        assert right["off"] < 1e-9


def test_one_pass_without_noise_golden():
    X = np.array([[2.0, 0.0], [2.6, 0.2], [0.1, 2.0], [2.2, 2.4], [1.7, -0.2]])
    Z, A = one_pass(X, averages=False, n_sweeps=1, refit=True)
    wanted = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    np.testing.assert_array_equal(Z, wanted)
    np.testing.assert_allclose(A, [[2.1, 0.057142857143], [0.1, 2.1714285714]], atol=1e-9)
    assert objective(X, Z, A) == pytest.approx(2.5685714286)
    Z, A = one_pass(X, averages=True, n_sweeps=20, refit=False)
    np.testing.assert_array_equal(Z, wanted)
    np.testing.assert_allclose(A, [[2.1, 0.1], [1 / 30, 2.1]], atol=1e-9)
    assert objective(X, Z, A) == pytest.approx(2.5888888889)


def test_a_feature_that_starts_at_its_prior_is_never_made():
    assert started_at_prior(np.array([2.0, 0.0]), 0.1)["b"] < 1e-5
    assert started_at_prior(np.array([2.0, 0.0]), 0.3)["b"] > 0.9


def test_known_features_predict_better_than_none():
    problem = synthetic(0, 60, 40, 8, 1.5, noise_var=0.5)
    none = multivariate_normal(np.zeros(8), np.cov(problem.train.T)).logpdf(problem.test).mean()
    assert truth_known(problem) > none
    found = problem.features[[1, 0]] + 1e-3
    assert n_matched(found, problem.features) == 2
    assert n_matched(found[:0], problem.features) == 0


def test_sharing_agrees_with_confusion():
    near = np.array([[0.9, 0.1, 0.0], [0.1, 0.8, 0.4], [0.0, 0.4, 0.7]])
    found, chance = agreement(near, near)
    assert found == pytest.approx(1.0)
    assert chance <= 0.5
    assert contrast(near) == pytest.approx(0.8 / np.mean([0.1, 0.0, 0.4]))


def test_hospital_stays_are_the_first_of_each_patient(tmp_path):
    lines = ["encounter_id,patient_nbr,age,num_medications,insulin,readmitted"]
    lines += ["1,7,[50-60),4,No,NO", "2,8,[60-70),9,Up,>30", "3,7,[50-60),5,Up,<30", "4,9,[70-80),2,No,<30"]
    path = tmp_path / "stays.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    X = diabetes(path, 3, rare=0.0)
    np.testing.assert_allclose(X[:, 0], [50, 60, 70])
    np.testing.assert_allclose(np.expm1(X[:, 1]), [4, 9, 2])
    np.testing.assert_allclose(X[:, -1], [0, 1, 2])


# --- rows that are near each other -----------------------------------------------------------------


def test_features_drift_or_are_shuffled():
    drifting, shuffled = (dd_ibp_drift.problem(3, kind) for kind in ("drifting", "exchangeable"))
    for column in drifting.Z.T:
        (on,) = np.nonzero(column)
        assert np.array_equal(on, np.arange(on[0], on[-1] + 1))
        assert 40 <= len(on) <= 80
    assert not np.array_equal(drifting.Z, shuffled.Z)
    assert sorted(shuffled.Z.sum(axis=0)) == sorted(drifting.Z.sum(axis=0))
    assert 0.05 < drifting.hidden.mean() < 0.15
    perfect = dd_ibp_drift.normal_score(drifting, drifting.X, 1.0)
    assert perfect == {"rmse": 0.0, "log_density": pytest.approx(-0.5 * np.log(2 * np.pi))}


def test_what_is_lost_is_counted_from_the_means_to_the_oracle():
    def found(rmse):
        return {"rmse": rmse, "log_density": -rmse, "n_components": 4, "mean_k": 5.0, "seconds": 1.0}

    run = {"oracle": found(1.0), "dims' means": found(2.0), "IBP": found(1.1), "window of 5": found(1.15)}
    lines = dd_ibp_drift.summary([run, run], ["IBP", "window of 5"])
    assert lines[-1][3:6] == ["0 0", "+5.00 %", "+5.00 %"]


def test_numbers_of_shared_features_are_those_of_the_propositions(rng):
    first = dd_ibp_props.proposition_1(rng, 300)
    assert max(abs(e["z_mean"]) for e in first) < 4.5
    assert {e["rate"] for e in first if e["sequential"] and e["i"] == e["j"]} == {2.5}
    third = {(e["groups"], e["what"]): e for e in dd_ibp_props.proposition_3(rng, 300)}
    assert third["mixed by row", "shared"]["rate"] == pytest.approx(1.5066666667)
    assert third["mixed by row", "shared"]["wanted"] == pytest.approx(1.5921777778)
    assert third["mixed by feature", "shared"]["wanted"] == pytest.approx(1.5066666667)
    assert max(abs(e["z_mean"]) for e in third.values()) < 4.5


def test_two_channels_of_ten_moments_are_hidden(rng):
    hidden = dd_ibp_eeg.hide(rng.standard_normal((50, 8)), 0)
    assert sorted(hidden.sum(axis=1))[-11:] == [0] + [2] * 10
    assert not np.array_equal(hidden, dd_ibp_eeg.hide(rng.standard_normal((50, 8)), 1))
