"""Golden values of the mathematical reference (tests/golden/ibp-gibbs-variational.json)."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from thali import IBP, BetaBernoulli, LinearGaussian
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows, MarginalRows
from thali.core.protocols.engines.predictions import Predictions
from thali.kernels.bits.row_draws import scan_bits
from thali.testing import enumerate_posterior

CASES = {c["id"]: c for c in json.loads((Path(__file__).parents[1] / "golden/ibp-gibbs-variational.json").read_text())}


def case(name):
    inputs, outputs = CASES[name]["inputs"], CASES[name]["outputs"]
    if "same_as" in inputs:
        inputs = CASES[inputs["same_as"]]["inputs"] | inputs
    return inputs, outputs


def data(inputs):
    n, d = np.meshgrid(np.arange(1, inputs["N"] + 1), np.arange(1, inputs["D"] + 1), indexing="ij")
    return np.sin(n * d) + 0.7 * np.cos(0.3 * n + d)


def observation(inputs):
    return LinearGaussian(noise_var=inputs["sigma_n"] ** 2, feature_var=inputs["sigma_A"] ** 2)


@pytest.mark.parametrize("name", ["G01", "G02"])
def test_class_probability(name):
    inputs, outputs = case(name)
    assert IBP(mass=inputs["alpha"]).log_prob(inputs["Z"]) == pytest.approx(outputs["logp"], rel=1e-9)


def test_finite_probability():
    inputs, outputs = case("G03")
    prior = BetaBernoulli(mass=inputs["alpha"], n_features=inputs["K"])
    assert prior.log_prob(inputs["Z"]) == pytest.approx(outputs["logp"], rel=1e-9)


def test_collapsed_likelihood():
    inputs, outputs = case("G04")
    assert observation(inputs).engine(MarginalRows).log_marginal(data(inputs), inputs["Z"]) == pytest.approx(
        outputs["loglik"], rel=1e-9
    )


def test_collapsed_likelihood_with_missing_cells():
    inputs, outputs = case("G05")
    X = data(inputs)
    seen = (
        observation(inputs)
        .engine(MarginalRows)
        .log_marginal(np.where(np.array(inputs["mask"]) > 0, X, np.nan), inputs["Z"])
    )
    assert seen == pytest.approx(outputs["loglik_obs"], rel=1e-9)
    assert observation(inputs).engine(MarginalRows).log_marginal(X, inputs["Z"]) - seen == pytest.approx(
        outputs["logpred_miss"], rel=1e-9
    )


def test_finite_evidence():
    inputs, outputs = case("G06")
    model = Model(BetaBernoulli(mass=inputs["alpha"], n_features=inputs["K"]), observation(inputs))
    exact = enumerate_posterior(model, data(inputs))
    assert exact.log_evidence == pytest.approx(outputs["log_evidence"], rel=1e-9)
    assert exact.p_k(3) == pytest.approx(outputs["P_Kplus"], rel=1e-9)
    assert exact.shared() == pytest.approx(np.array(outputs["E_ZZt"]), rel=1e-9)


def test_infinite_evidence():
    inputs, outputs = case("G07")
    model = Model(IBP(mass=inputs["alpha"]), observation(inputs))
    exact = enumerate_posterior(model, data(inputs), max_features=28)
    assert exact.log_evidence == pytest.approx(outputs["log_evidence"], rel=1e-9)


def test_bit_conditional():
    """P(z = 1 | rest) of the collapsed sampler, by likelihood and by prior, infinite and finite."""
    inputs, outputs = case("G08")
    X, Z, n, k = data(inputs), np.array(inputs["Z"], dtype=np.uint8), inputs["n"], inputs["k"]
    values = []
    for bit in (0, 1):
        Z[n, k] = bit
        values.append(observation(inputs).engine(MarginalRows).log_marginal(X, Z))
    difference = values[1] - values[0]
    assert difference == pytest.approx(outputs["loglik_diff_1_minus_0"], rel=1e-9)
    others = int(Z[:, k].sum()) - 1
    for prior, name in ((IBP(mass=2.0), "p_ibp"), (BetaBernoulli(mass=2.0, n_features=3), "p_finite")):
        log_odds = difference + prior.log_odds(len(Z))[others]
        assert 1 / (1 + math.exp(-log_odds)) == pytest.approx(outputs[name], rel=1e-9)


def test_row_without_the_others():
    """Posterior of the features without a row, and that row's predictive density, through the codebook."""
    inputs, outputs = case("G10")
    X, Z, n = data(inputs), np.array(inputs["Z"], dtype=np.uint8), inputs["n"]
    model = observation(inputs)
    rest = np.arange(len(X)) != n
    work = model.engine(ChainRows).prepare(X[rest])
    book = model.engine(ChainRows).codebook(work, model.engine(ChainRows).place(work, Z[rest], X[rest]))
    assert model.noise_var * book.gram_inv == pytest.approx(np.array(outputs["Sigma_minus"]), rel=1e-9)
    assert book.features == pytest.approx(np.array(outputs["mu_minus"]), rel=1e-9)
    z = Z[n].astype(float)
    variance = model.noise_var * (1 + z @ book.gram_inv @ z)
    assert variance == pytest.approx(outputs["pred_var"], rel=1e-9)
    certain = np.where(z > 0, 800.0, -800.0)  # log-odds that fix the row's bits
    log_density = model.engine(Predictions).encode(X[[n]], book, certain, 0.0).log_density
    assert log_density[0] == pytest.approx(outputs["logpred"], rel=1e-9)


def test_feature_posterior():
    """Mean and covariance of the features by regression, dim by dim."""
    inputs, _ = case("G04")
    X, Z = data(inputs), np.array(inputs["Z"], dtype=float)
    model = observation(inputs)
    work = model.engine(ChainRows).prepare(X)
    book = model.engine(ChainRows).codebook(work, model.engine(ChainRows).place(work, Z.astype(np.uint8), X))
    precision = Z.T @ Z / model.noise_var + np.eye(Z.shape[1]) / model.feature_var
    assert np.linalg.inv(model.noise_var * book.gram_inv) == pytest.approx(precision, rel=1e-9)
    assert precision @ book.features == pytest.approx(Z.T @ X / model.noise_var, rel=1e-9)


def test_kernels_are_compiled():
    assert scan_bits.py_func.__name__ == "_scan_bits"
