"""Sparse factor analysis with classes of owners: sweeps and steps keep the joint distribution, wrong ones do not."""

import numpy as np
import pytest
from mutants import mutant
from scipy.special import expit
from thinned import thinned

from thali import Gamma, NormalOffset, PerDim, PerFeature, SparseFactorAnalysis
from thali.core.protocols.engines.chains import ChainRows
from thali.kernels.weights.class_replicates import class_replicates
from thali.observations.sparse.class_chain import ClassState, step
from thali.observations.sparse.rows import LoadingRows
from thali.testing import z_limit
from thali.testing.zscores import z_scores

D, N, K, L = 4, 2, 2, 2
HOLES = np.array([[False, True], [False, False], [True, False], [False, False]])
LOADINGS, NOISE = (3.0, 3.0), (4.0, 3.0)


def replicates(rng, size, precisions, noise, n_classes=L):
    """(Y, G, classes, preferences) from the model, with these precisions (size, K) and noise variances (size, D)."""
    classes, preferences = rng.integers(n_classes, size=(size, D)), rng.standard_normal((size, n_classes, K))
    means = np.take_along_axis(preferences, classes[:, :, None], axis=1)
    on = rng.random(means.shape) < expit(means)
    G = on * (means + rng.standard_normal(means.shape) / np.sqrt(precisions)[:, None])
    Y = G @ rng.standard_normal((size, K, N)) + np.sqrt(noise)[:, :, None] * rng.standard_normal((size, D, N))
    return Y, G, classes, preferences


def statistics(Y, G, precisions, noise, classes, preferences):
    """Of replicates, with Y zero where it is missing; none depends on how classes and factors are numbered."""
    means = np.take_along_axis(preferences, classes[:, :, None], axis=1)
    on, bent = (G != 0).astype(float), np.tanh(G)
    together = (classes[:, :, None] == classes[:, None, :]).astype(float)
    pairs, ones = together.sum(axis=(1, 2)), on.sum(axis=(1, 2))
    log_precisions, log_noise = np.log(precisions), np.log(noise)
    data = np.tanh(Y)

    def total(values):
        return values.sum(axis=(1, 2))

    def within(values):
        return np.einsum("rnk,rmk,rnm->r", values, values, together, optimize=True)

    return {
        "ones": ones,
        "ones^2": ones**2,
        "preferences": total(preferences),
        "preferences^2": total(preferences**2),
        "preferences of owners": total(means),
        "preferences^2 of owners": total(means**2),
        "preferences where on": total(on * means),
        "preferences^2 where on": total(on * means**2),
        "loadings": total(bent),
        "loadings^2": total(bent**2),
        "loadings x preferences": total(bent * means),
        "same class": pairs,
        "same class x ones": pairs * ones,
        "bits within classes": within(on),
        "loadings within classes": within(bent),
        "data within classes": within(data),
        "same class x data^2": pairs * total(data**2),
        "same class x preferences^2": pairs * total(preferences**2),
        "loadings and data": np.arctan(np.einsum("rnk,rmk,rnd,rmd->r", G, G, data, data, optimize=True)),
        "precisions": log_precisions.sum(axis=1),
        "precisions by use": np.sum(log_precisions * on.sum(axis=1), axis=1),
        "noise": log_noise.sum(axis=1),
        "noise x loadings^2": np.sum(log_noise * np.sum(bent**2, axis=2), axis=1),
        "noise x data^2": np.sum(log_noise * np.sum(data**2, axis=2), axis=1),
    }


# ---- sweeps, with fixed hyperparameters, in compiled code


def scores(missing, rng, n_replicates, sweep=class_replicates, n_sweeps=2, n_classes=L):
    """z-scores of the change of statistics by sweeps of replicates from the model."""
    holes = HOLES if missing else np.zeros_like(HOLES)
    changes = {}
    for size in [50_000] * (n_replicates // 50_000) or [n_replicates]:
        precisions = rng.gamma(LOADINGS[0], size=(size, K)) / LOADINGS[1]
        noise = NOISE[1] / rng.gamma(NOISE[0], size=(size, D))
        Y, G, classes, preferences = replicates(rng, size, precisions, noise, n_classes)
        Y[:, holes] = 0.0
        before = statistics(Y, G, precisions, noise, classes, preferences)
        for _ in range(n_sweeps):
            sweep(Y, holes, G, precisions, noise, classes, preferences, LOADINGS, NOISE, rng)
        for name, values in statistics(Y, G, precisions, noise, classes, preferences).items():
            changes.setdefault(name, []).append(values - before[name])
    return {name: float(z_scores(np.concatenate(parts), np.zeros(()))) for name, parts in changes.items()}


@pytest.mark.parametrize(
    ("missing", "n_classes", "n_replicates"),
    thinned([(m, n, r) for m in (False, True) for n in (1, 2, 3) for r in (50_000, 1_000_000)], (True, 2, 50_000)),
)
def test_sweeps_keep_the_joint_distribution(missing, n_classes, n_replicates, rng):
    z = scores(missing, rng, n_replicates, n_classes=n_classes)
    assert max(map(abs, z.values())) <= z_limit(len(z)), z


@pytest.mark.parametrize(
    "name",
    thinned(
        [
            "preferences without the Polya-Gamma variable",
            "Polya-Gamma variables of classes as they were",
            "classes given Polya-Gamma variables of classes",
            "classes without the bits that are off",
        ]
    ),
)
def test_wrong_sweeps_fail(name, rng):
    z = scores(False, rng, 200_000, mutant(name)["class_replicates"].class_replicates)
    assert max(map(abs, z.values())) > 1.3 * z_limit(len(z)), z


# ---- whole steps, as chains take them

LEARNED = {"noise_var": PerDim(3.0, Gamma(4.0, 4.0)), "loading_var": PerFeature(3.0, Gamma(4.0, 4.0)), "scale": 1.0}

# name -> (model, whether cells are missing)
STEPS = {
    "no offset": (SparseFactorAnalysis(offset=None, **LEARNED), False),
    "dims": (SparseFactorAnalysis(offset=NormalOffset(0.0, 1.0), **LEARNED), True),
    "rows": (SparseFactorAnalysis(sparse="rows", offset=NormalOffset(0.0, 1.0), **LEARNED), True),
    "fixed": (SparseFactorAnalysis(noise_var=0.5, loading_var=0.8, offset=None, scale=1.0), False),
}


def simulated(rng, spec):
    """(state, Y by owner) from the model."""
    model = spec.draw(rng, D if spec.owners == "dims" else N)
    levels = model.laws.new_levels(rng)
    precisions, noise = model.laws.new_precisions(rng, K, levels[0]), model.laws.new_noise(rng, D, levels[1])
    _, G, classes, preferences = (one[0] for one in replicates(rng, 1, precisions[None], noise[None]))
    F = rng.standard_normal((K, N))
    Y = G @ F + np.sqrt(noise)[:, None] * rng.standard_normal((D, N)) + model.owned_offset()
    local = LoadingRows((G != 0).astype(np.uint8), G, F, precisions, noise, levels)
    return ClassState(model, local, classes, preferences), Y


def state_statistics(states, Y):
    """Those of replicates, and of what is learned beside them."""
    parts = ([getattr(s.local, name) for s in states] for name in ("v", "precisions", "noise"))
    chosen = ([getattr(s, name) for s in states] for name in ("classes", "preferences"))
    found = statistics(Y, *map(np.array, parts), *map(np.array, chosen))
    levels = np.log([s.local.levels for s in states])
    factors = np.array([np.tanh(s.local.factors**2).sum() for s in states])
    offsets = np.arctan([np.mean(0.0 if s.observation.offset is None else s.observation.offset) for s in states])
    return found | {
        "level of precisions": levels[:, 0],
        "level x precisions": levels[:, 0] * found["precisions"],
        "level of noise": levels[:, 1],
        "level x noise": levels[:, 1] * found["noise"],
        "factors^2": factors,
        "factors^2 x ones": factors * found["ones"],
        "offset": offsets,
        "offset x data": offsets * np.tanh(Y).sum(axis=(1, 2)),
    }


@pytest.mark.parametrize(
    ("name", "n_replicates"), thinned([(name, n) for name in STEPS for n in (1_000, 8_000)], ("dims", 1_000))
)
def test_steps_keep_the_joint_distribution(name, n_replicates, rng):
    spec, missing = STEPS[name]
    holes = HOLES if missing else np.zeros_like(HOLES)
    states, moved, seen = [], [], []
    for _ in range(n_replicates):
        state, Y = simulated(rng, spec)
        data = spec.engine(ChainRows).prepare(spec.by_owner(np.where(holes, np.nan, Y)))
        states.append(state)
        moved.append(step(rng, spec, data, step(rng, spec, data, state)))
        seen.append(np.where(holes, 0.0, Y))
    before, after = (state_statistics(some, np.array(seen)) for some in (states, moved))
    z = {statistic: float(z_scores(after[statistic] - before[statistic], np.zeros(()))) for statistic in before}
    assert max(map(abs, z.values())) <= z_limit(len(z)), z
