"""Sparse factor analysis: sweeps and whole steps keep the joint distribution, and wrong ones do not."""

import numpy as np
import pytest
from mutants import mutant
from thinned import thinned

from thali import IBP, BetaBernoulli, Gamma, Gibbs, NormalOffset, PerDim, PerFeature, SparseFactorAnalysis
from thali.core.model import Model
from thali.kernels.weights.sparse_replicates import sparse_replicates
from thali.testing import geweke, sbc, z_limit
from thali.testing.geweke import matrix_statistics, simulate_replicates
from thali.testing.zscores import z_scores

HOLES = np.array([[False, True], [False, False], [True, False]])
LOADINGS, NOISE, FIXED = (3.0, 3.0), (4.0, 3.0, 0.0), (0.0, 0.0, 0.0)
CAPACITY = 64

# name -> (prior, n_moves, proposal, missing, law of the noise)
VARIANTS = {
    "births and deaths": (IBP(1.0), 3, (0.0, 0.0), None, NOISE),
    "fixed noise": (IBP(1.0), 3, (0.0, 0.0), None, FIXED),
    "proposals": (IBP(1.0), 0, (2.0, 0.2), None, NOISE),
    "wide proposals": (IBP(1.0), 0, (10.0, 0.1), None, NOISE),
    "missing cells": (IBP(1.0), 3, (0.0, 0.0), HOLES, NOISE),
    "two parameters": (IBP(1.2, 2.0), 2, (0.0, 0.0), None, NOISE),
    "three parameters": (IBP(1.0, 1.0, 0.4), 2, (0.0, 0.0), HOLES, NOISE),
    "finite": (BetaBernoulli(1.0, n_features=4), 2, (0.0, 0.0), HOLES, NOISE),
}


def statistics(G, Y, precisions, noise):
    found = matrix_statistics((G != 0).astype(np.uint8), Y)
    used = (G != 0).any(axis=1)
    log_precision = np.where(used, np.log(precisions), 0.0).sum(axis=1)
    power = np.tanh(G**2).sum(axis=(1, 2))
    explained = np.einsum("rnk,rmk,rnd,rmd->r", G, G, np.tanh(Y), np.tanh(Y), optimize=True)
    return found | {
        "loadings^2": power,
        "loadings^2 x K": power * found["K"],
        "loadings and data": np.arctan(explained),
        "precisions": log_precision,
        "precisions x data^2": log_precision * found["X^2"],
        "precisions x loadings^2": np.tanh(log_precision) * power,
        "noise": np.log(noise).mean(axis=1),
        "noise^2": (np.log(noise) ** 2).mean(axis=1),
        "noise x data^2": np.tanh(noise * (Y**2).sum(axis=2)).mean(axis=1),
        "noise x loadings^2": np.tanh(noise * (G**2).sum(axis=2)).mean(axis=1),
        "noise x K": np.log(noise).mean(axis=1) * found["K"],
    }


def scores(variant, rng, n_replicates, sweep=sparse_replicates, n_rows=3, n_cells=2):
    """z-scores of the change of statistics by a sweep of replicates from the model."""
    prior, n_moves, proposal, missing, noise_law = VARIANTS[variant]
    missing = np.zeros((n_rows, n_cells), dtype=bool) if missing is None else missing
    changes = {}
    for size in [50_000] * (n_replicates // 50_000) or [n_replicates]:
        Z = simulate_replicates(prior, n_rows, size, CAPACITY, rng)
        K = Z.any(axis=1).sum(axis=1) if prior.n_features is None else np.full(size, prior.n_features)
        precisions = rng.gamma(LOADINGS[0], size=(size, CAPACITY)) / LOADINGS[1]
        G = Z * rng.standard_normal(Z.shape) / np.sqrt(precisions)[:, None]
        noise = np.tile(np.linspace(0.5, 1.5, n_rows), (size, 1))
        if noise_law[0] > 0:
            noise = noise_law[1] / rng.gamma(noise_law[0], size=(size, n_rows))
        Y = G @ rng.standard_normal((size, CAPACITY, n_cells))
        Y += np.sqrt(noise)[:, :, None] * rng.standard_normal(Y.shape)
        before = statistics(G, Y, precisions, noise)
        tables = prior.log_odds(n_rows), prior.new_rate(n_rows)
        full = sweep(
            Y, missing, G, K.astype(np.int64), precisions, *tables, noise, LOADINGS, noise_law, n_moves, proposal, rng
        )
        assert full < 1e-3 * size  # too many factors for the room: never, but in mutants
        for name, values in statistics(G, Y, precisions, noise).items():
            changes.setdefault(name, []).append(values - before[name])
    return {name: float(z_scores(np.concatenate(parts), np.zeros(()))) for name, parts in changes.items()}


@pytest.mark.parametrize(
    ("variant", "n_replicates"),
    thinned(
        [(name, n) for name in VARIANTS for n in (50_000, 1_000_000)],
        *((name, 50_000) for name in ("births and deaths", "proposals", "missing cells")),
    ),
)
def test_sweeps_keep_the_joint_distribution(variant, n_replicates, rng):
    z = scores(variant, rng, n_replicates)
    assert max(map(abs, z.values())) <= z_limit(len(z)), z


@pytest.mark.parametrize(
    ("name", "variant", "n_replicates"),
    thinned(
        [
            ("own factors dropped first", "wide proposals", 50_000),
            ("number of factors frozen", "births and deaths", 50_000),
            ("a factor (2 pi)^(n / 2) for each new one", "proposals", 50_000),
            ("born of noise without its prior", "births and deaths", 50_000),
            ("precisions by loadings that are off", "births and deaths", 50_000),
            ("factors in memory order", "proposals", 3_000_000),
        ],
    ),
)
def test_wrong_sweeps_fail(name, variant, n_replicates, rng):
    """Algorithm 1 of the report as printed, its frozen number of factors, and others that look right."""
    z = scores(variant, rng, n_replicates, mutant(name)["sparse_replicates"].sparse_replicates)
    assert max(map(abs, z.values())) > 1.3 * z_limit(len(z)), z


@pytest.mark.slow
def test_loadings_may_be_kept_where_bits_are_off(rng):
    """G = Z * W with W kept where z = 0 is the same model, if precisions are drawn given all of W."""
    sweep = mutant("loadings kept where bits are off")["sparse_replicates"].sparse_replicates
    z = scores("births and deaths", rng, 1_000_000, sweep)
    assert max(map(abs, z.values())) <= z_limit(len(z)), z


# ---- whole steps, both orientations

LEARNED = {
    "noise_var": PerDim(4.0, Gamma(4.0, 4.0)),
    "loading_var": PerFeature(3.0, Gamma(4.0, 4.0)),
    "offset": NormalOffset(centre=0.0, spread=1.0),
    "scale": 1.0,
}
LEVELS = LEARNED | {"noise_var": PerDim(4.0, 0.8), "loading_var": PerFeature(3.0, 1.2)}
STEPS = {
    "learned": (LEARNED, IBP(Gamma(2.0, 2.0)), Gibbs(), None),
    "missing": (LEARNED, IBP(Gamma(2.0, 2.0)), Gibbs(), HOLES),
    "proposed": (LEARNED, IBP(Gamma(2.0, 2.0)), Gibbs(births="proposed", proposal=(2.0, 0.2)), None),
    "finite": (LEARNED, BetaBernoulli(Gamma(2.0, 2.0), n_features=3), Gibbs(), HOLES),
    "fixed levels": (LEVELS, IBP(Gamma(2.0, 2.0)), Gibbs(), HOLES),
    "fixed": ({"noise_var": 0.5, "loading_var": 1.0, "offset": None, "scale": 1.0}, IBP(1.0, 2.0), Gibbs(), None),
}


def more(state):
    rows = state.local
    log_precisions, log_noise = np.log(rows.precisions), np.log(rows.noise)
    return {
        "log noise": log_noise.mean(),
        "log noise^2": log_noise[0] ** 2,
        "level of loadings": np.log(rows.levels[0]),
        "level of noise": np.log(rows.levels[1]),
        "log precisions": log_precisions.sum(),
        "level x precisions": np.log(rows.levels[0]) * np.tanh(log_precisions).sum(),
        "level x noise": np.log(rows.levels[1]) * log_noise.mean(),
        "factors^2": np.tanh(rows.factors**2).sum(),
        "loadings by precision": np.tanh(rows.v**2 * rows.precisions).sum(),
        "loadings by noise": np.tanh(rows.v**2 / rows.noise[:, None]).sum(),
    }


@pytest.mark.parametrize(
    ("sparse", "name", "n_replicates"),
    thinned(
        [(s, name, n) for s in ("dims", "rows") for name in STEPS for n in (1_500, 20_000)],
        ("dims", "missing", 1_500),
    ),
)  # fmt: skip
def test_steps_keep_the_joint_distribution(sparse, name, n_replicates, rng):
    parts, prior, inference, missing = STEPS[name]
    missing = missing if missing is None or sparse == "rows" else missing.T
    model = Model(prior, SparseFactorAnalysis(sparse=sparse, **parts))
    shape = {"n_rows": 3, "n_dims": 2} if sparse == "rows" else {"n_rows": 2, "n_dims": 3}
    result = geweke(model, inference, rng, **shape, n_replicates=n_replicates, missing=missing, more=more)
    assert result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("sparse", ["dims", "rows"])
def test_calibration(sparse, rng):
    """Ranks of K, mass, concentration, noise, levels and of what depends on the data are uniform."""
    prior = IBP(Gamma(2.0, 2.0), Gamma(2.0, 2.0))
    model = Model(prior, SparseFactorAnalysis(sparse=sparse, **LEARNED))

    def of_state(state):
        return {"noise": float(state.local.noise[0]), "level of loadings": float(state.local.levels[0])}

    result = sbc(model, Gibbs(), rng, n_rows=5, n_dims=5, n_replicates=400, more=of_state)
    assert result.passed(), result.p_values
