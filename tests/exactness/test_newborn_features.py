"""Features that one row alone has: their births, deaths and scales keep the joint distribution of tiny data.

The kernels are called directly, on one or two rows, so that newborn features are most of what there is. Each mutant is
one that passes the comparison of a kernel with its twin if both have it.
"""

import inspect

import numpy as np
import pytest
from mutants import plain_mutant
from scipy.stats import poisson

from thali import IBP, ICA, FactorAnalysis, Gibbs, PoissonGamma, SliceSampler
from thali.core.protocols.engines.chains import ChainRows
from thali.kernels.counts import poisson_sweeps
from thali.kernels.weights import scaled_rows, slabs
from thali.observations.gaussian import weighted_sweeps as _sweeps
from thali.testing import z_limit
from thali.testing.zscores import z_scores

COUNTS = PoissonGamma(weight_shape=0.8, weight_rate=0.5, feature_shape=0.7, feature_rate=0.9)


def worst(before, after):
    """The largest |z| of the mean changes; a right step changes no mean."""
    z = z_scores(np.array(after, dtype=float) - np.array(before, dtype=float), np.zeros(()))
    return np.abs(z).max() / z_limit(len(z))


def own_counts(sweep, rng, n_chains=20, n_steps=400):
    """z of P(K) of one row without data over its limit: all features are its own, their number is Poisson(mass)."""
    prior, room, none = IBP(mass=1.5), 40, np.zeros(0, np.int64)
    laws = COUNTS.weight_shape, COUNTS.weight_rate, COUNTS.feature_shape, COUNTS.feature_rate
    arrays = np.array([0, 0]), none, np.zeros(0), np.array([0, 2]), np.array([0, 1])  # no counts, two missing cells
    shares = np.zeros((n_chains, 6))
    for chain in range(n_chains):
        K = int(rng.poisson(prior.mass))
        V, A = np.zeros((1, room)), np.ones((room, 2))
        V[0, :K] = 1.0
        for _ in range(n_steps):
            K, row, _ = sweep(
                *arrays, V, K, A, (V[0] > 0).astype(int), np.zeros((room, 2)), prior.log_odds(1), prior.new_rate(1),
                *laws, 0, rng,
            )  # fmt: skip
            if row == 0:  # no room for another: their number explodes
                return np.inf
            shares[chain, min(K, 5)] += 1 / n_steps
    z = z_scores(shares[:, :5], poisson.pmf(np.arange(5), prior.mass))
    return np.abs(z).max() / z_limit(len(z))


def test_births_and_deaths_of_counts(rng):
    assert own_counts(poisson_sweeps.poisson_sweep, rng) <= 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-ratio - math.log(new_rate / n_own)", "-ratio - math.log(new_rate / (n_own + 1.0))"),
        ("ratio + math.log(new_rate / (n_own + 1.0))", "ratio + math.log(new_rate)"),
        ("n_seen = n_dims - hidden.size", "n_seen = n_dims"),
    ],
    ids=["death by the number after it", "births without their number", "hidden cells count"],
)
def test_wrong_births_and_deaths_of_counts_fail(old, new, rng):
    assert own_counts(plain_mutant(poisson_sweeps, old, new)["_poisson_sweep"], rng) > 1


# ---- weights with a scale for each feature

LAWS = {
    "normal": FactorAnalysis(noise_var=0.3, feature_var=1.0, offset=None, noise_floor=0.0, ard=0.2),
    "laplace": ICA(noise_var=0.3, feature_var=1.0, offset=None, noise_floor=0.0, ard=0.6),
}


def code_statistics(V):
    """Of the codes of two rows: those of one feature are alike in size, since they share its scale."""
    on = V != 0
    size = np.log(np.where(on, V**2, 1.0))
    both = on.all(axis=0)
    return [
        on.any(axis=0).sum(), on.sum(), both.sum(), size.sum(), (size**2).sum(),
        (size[0] * size[1])[both].sum(), size[:, both].sum(),
    ]  # fmt: skip


def code_change(model, inference, rng, n_replicates):
    """A sweep from joint draws of two rows without data: what is born in the first row the second one may take."""
    prior, histories = IBP(mass=3.0), np.array([[1, 1, 0], [1, 0, 1]], dtype=np.uint8)
    data = model.engine(ChainRows).prepare(np.full((2, 1), np.nan))
    before, after = [], []
    for _ in range(n_replicates):
        Z = np.repeat(histories, rng.poisson(prior.mass / 2, 3), axis=1)  # the IBP of two rows
        codes = model.draw_codes(rng, Z)
        local = model.engine(ChainRows).rows(data, codes, rng.standard_normal(2))
        before.append(code_statistics(codes))
        after.append(code_statistics(inference.sweep(rng, prior, model, data, local)[0].v))
    return worst(before, after)


@pytest.mark.parametrize("inference", [Gibbs(), SliceSampler()], ids=["Gibbs", "SliceSampler"])
@pytest.mark.parametrize("law", LAWS)
def test_scales(law, inference, rng, monkeypatch):
    monkeypatch.setattr(_sweeps.WeightedSweeps, "stretch", lambda self, rng, weights, A: 1.0)  # slow, and no birth
    assert code_change(LAWS[law], inference, rng, 600) <= 1


def plain_sweep(monkeypatch, old, new):
    """`scaled_sweep` in plain Python with a change in it or in `slabs`."""
    if old in inspect.getsource(slabs):
        names = plain_mutant(scaled_rows, "import math", "import math ")
        names["draw_own"] = plain_mutant(slabs, old, new)["draw_own"]
    else:
        names = plain_mutant(scaled_rows, old, new)
    monkeypatch.setattr(_sweeps, "scaled_sweep", names["scaled_sweep"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scales[K] = own[j, 1]", "scales[K] = 1.0"),
        ("candidates[i, j, 1] = scale", "candidates[i, j, 1] = 1.0"),
        ("scale * draw_slab(0.0, 0.0, rate, precision, rng)", "draw_slab(0.0, 0.0, rate, precision, rng)"),
        ("share = n * (math.log(new_rate) + math.log1p(1.0 / mean))", "share = n * math.log(new_rate)"),
    ],
    ids=["scale of a newborn", "scale of a candidate", "weight of a candidate", "births without their proposal"],
)
def test_wrong_scales_fail(old, new, rng, monkeypatch):
    monkeypatch.setattr(_sweeps.WeightedSweeps, "stretch", lambda self, rng, weights, A: 1.0)
    plain_sweep(monkeypatch, old, new)
    assert code_change(LAWS["normal"], Gibbs(), rng, 600) > 1


def test_unused_features_have_scales_of_their_own(rng, monkeypatch):
    monkeypatch.setattr(
        _sweeps, "draw_scales",
        lambda rng, model, codes, right=_sweeps.draw_scales: np.where(
            (codes != 0).any(axis=-2), right(rng, model, codes), 1.0
        ) if len(codes) else right(rng, model, codes),
    )  # fmt: skip
    assert code_change(LAWS["normal"], SliceSampler(), rng, 600) > 1
