"""Where the zero of the data lies does not matter: X + c gives the answer of X, for c from 0 to 1e12 in any dim.

X lies on a grid of 1/64 and c are whole numbers, so that X + c is exact and the two fits see the same digits.
"""

import numpy as np
import pytest

import thali
from thali import (
    ICA,
    BPMeans,
    CollapsedGibbs,
    FactorAnalysis,
    Gibbs,
    LatentFeatures,
    LinearGaussian,
    MeanField,
    NormalOffset,
    ParticleFilter,
    PerDim,
    SliceSampler,
    StochasticMeanField,
)
from thali.errors import InvalidDataError
from thali.observations.gaussian import origin as _origin
from thali.storage.spec_json import from_json, to_json

SHORT = {"n_warmup": 4, "n_draws": 3}
SAMPLERS = {
    "collapsed": CollapsedGibbs(**SHORT),
    "gibbs": Gibbs(**SHORT),
    "slice": SliceSampler(**SHORT),
}
OPTIMISERS = {
    "mean field": MeanField(n_restarts=1, max_iter=5, moves=False),
    "stochastic": StochasticMeanField(batch_size=16, n_start=30, n_restarts=1, n_epochs=2, moves=False),
    "bp-means": BPMeans(n_restarts=2),
}
MODELS = {
    "bits": LinearGaussian(offset=NormalOffset()),
    "bits per dim": LinearGaussian(offset=NormalOffset(), noise_var=PerDim(), noise_floor=0.05),
    "factors": FactorAnalysis(noise_floor=0.1),
    "sources": ICA(noise_floor=0.1),
}
FAST = {
    ("bits", "collapsed"),
    ("bits", "slice"),
    ("factors", "gibbs"),
    ("bits per dim", "mean field"),
    ("bits", "stochastic"),
    ("bits", "bp-means"),
}
# of seconds since 1970, of both signs, and none beside them; each is so many sds away that it is an origin
MIXED = np.array([0.0, 1.7e9, -(2.0**16), 1e12])


def data(n_rows=30, seed=0):
    """Two features in four dims, the mean of each about zero."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n_rows, 2)) < 0.5) @ np.array([[3.0, 0.0, 2.0, -3.0], [0.0, 3.0, -2.0, 2.0]])
    X = X + 0.4 * rng.standard_normal(X.shape)
    return np.round(64 * (X - X.mean(axis=0))) / 64


def with_holes(X, seed=1):
    holes = np.random.default_rng(seed).random(X.shape) < 0.08
    holes[:2] = False
    return np.where(holes, np.nan, X)


def fit(observation, inference, X):
    model = LatentFeatures(observation, inference=inference, n_chains=1, n_jobs=1, random_state=3, verbose=False)
    return model.fit(X)


def compositions(models, inferences):
    return [
        (model, inference)
        for model in models
        for inference in inferences
        if inference != "collapsed" or model.startswith("bits")
        if inference != "bp-means" or model.startswith("bits")
    ]


def assert_same(near, far, X, c, rtol=0.0):
    """Two fits, of X and of X + c: the same features, densities and predictions, in the units of either."""
    atol = 1e-300 + rtol
    one, other = near.posterior_, far.posterior_
    assert np.array_equal(one.Z(0, 0), other.Z(0, 0))
    assert near.n_components_ == far.n_components_
    np.testing.assert_allclose(far.components_, near.components_, rtol=rtol, atol=atol)
    for name in ("noise_var", "feature_var"):
        mine, its = (getattr(p.concrete(0, 0).observation, name) for p in (one, other))
        np.testing.assert_allclose(its, mine, rtol=rtol)
    rows = X[:5] + 0.25
    np.testing.assert_allclose(far.score_samples(rows + c), near.score_samples(rows), rtol=rtol, atol=atol)
    np.testing.assert_allclose(far.novelty(rows + c), near.novelty(rows), rtol=rtol, atol=atol)
    np.testing.assert_allclose(far.transform(rows + c), near.transform(rows), rtol=rtol, atol=atol)
    # values that come back are rounded to the digits of numbers as large as c
    back = 2 * rtol + 2 * np.spacing(np.abs(c) + 10.0)
    codes = np.ones((1, near.n_components_))
    assert (np.abs(far.inverse_transform(codes) - c - near.inverse_transform(codes)) <= back).all()
    assert (np.abs(far.sample(4, 0) - c - near.sample(4, 0)) <= back).all()
    holes = np.isnan(X)
    if holes.any():
        for mine, its in zip(near.impute(X, 0.8), far.impute(X + c, 0.8), strict=True):
            assert (np.abs(its - c - mine) <= back)[holes].all()
            assert np.array_equal(its[~holes], (X + c)[~holes])
        known = with_holes(data(len(X)))  # any values will do
        mask = holes & ~np.isnan(np.where(holes, 0.5, known))
        full = np.where(holes, 0.5, X)
        assert far.heldout_score(full + c, mask) == pytest.approx(near.heldout_score(full, mask), rel=rtol, abs=atol)


@pytest.mark.parametrize(
    ("model", "inference"),
    [
        pytest.param(*pair, marks=[] if pair in FAST else pytest.mark.slow)
        for pair in compositions(MODELS, SAMPLERS | OPTIMISERS)
    ],
)
def test_offsets_change_no_bit(model, inference):
    X = with_holes(data())
    near, far = (fit(MODELS[model], (SAMPLERS | OPTIMISERS)[inference], X + c) for c in (0.0, MIXED))
    assert near.posterior_.model.observation.origin is None
    assert np.array_equal(far.posterior_.model.observation.origin, MIXED)
    assert_same(near, far, X, MIXED)


def test_the_check_sees_lost_digits(monkeypatch):
    """A mutant: data are counted from zero wherever they lie."""
    X = with_holes(data())
    near = fit(MODELS["bits"], SAMPLERS["collapsed"], X)
    monkeypatch.setattr(_origin, "find_origin", lambda spread, fixed_offset: None)
    far = fit(MODELS["bits"], SAMPLERS["collapsed"], X + 2.0**24)
    with pytest.raises(AssertionError):
        assert_same(near, far, X, 2.0**24, rtol=1e-3)


@pytest.mark.parametrize("c", [-1e3, 12345678.9])
def test_offsets_that_are_no_origins(c):
    """Nearer than an origin, or beside one: the same draws to rounding; the data are those that are left of X + c."""
    X = data()
    near = fit(MODELS["bits per dim"], SAMPLERS["collapsed"], (X + c) - c)
    far = fit(MODELS["bits per dim"], SAMPLERS["collapsed"], X + c)
    assert_same(near, far, X, c, rtol=1e-6)


def test_streams_of_particles():
    X = with_holes(data(16))
    fits = []
    for c in (np.zeros(4), MIXED):
        observation = LinearGaussian(noise_var=0.2, feature_var=4.0, offset=c)
        model = LatentFeatures(
            observation, inference=ParticleFilter(n_particles=10), n_chains=1, random_state=0, verbose=False
        )
        for batch in np.split(X + c, [1, 9]):
            model.partial_fit(batch)
        fits.append(model)
    assert fits[0].log_evidence_ == fits[1].log_evidence_
    assert_same(*fits, X, MIXED)


@pytest.mark.parametrize("method", [pytest.param("memoised", marks=pytest.mark.slow), "robbins-monro"])
def test_streams_of_batches_and_files(tmp_path, method):
    X = data(48)
    fits = []
    for i, c in enumerate((0.0, MIXED)):
        inference = StochasticMeanField(
            batch_size=16, n_start=48, n_restarts=1, n_epochs=2, method=method, moves=method == "memoised"
        )
        np.save(tmp_path / f"{i}.npy", X + c)
        stored = fit(MODELS["bits"], inference, np.load(tmp_path / f"{i}.npy", mmap_mode="r"))
        batches = LatentFeatures(MODELS["bits"], inference=inference, random_state=0, verbose=False)
        for batch in np.split(X + c, 3):
            batches.partial_fit(batch)
        fits.append((stored, batches))
    for near, far in zip(*fits, strict=True):
        assert near.posterior_.bound == far.posterior_.bound
        assert np.array_equal(near.components_, far.components_)
        assert np.array_equal(near.score_samples(X), far.score_samples(X + MIXED))


def test_far_data_are_saved_and_resumed_to_the_same_bits(tmp_path):
    X = with_holes(data()) + MIXED
    settings = {"n_chains": 1, "n_jobs": 1, "random_state": 3, "verbose": False}
    inference = CollapsedGibbs(n_warmup=4, n_draws=6)
    whole = LatentFeatures(MODELS["bits"], inference=inference, **settings).fit(X)
    run = tmp_path / "run"
    LatentFeatures(MODELS["bits"], inference=inference, **settings, checkpoint=run, max_time=1e-9).fit(X)
    resumed = thali.resume(run, X, max_time=600)
    resumed.save(tmp_path / "fit.thali")
    loaded = thali.load(tmp_path / "fit.thali")
    for model in (resumed, loaded):
        assert np.array_equal(model.posterior_.draws["log_joint"], whole.posterior_.draws["log_joint"])
        assert np.array_equal(model.impute(X), whole.impute(X))


# ---- where the origin is


def test_near_data_have_no_origin():
    X = data()
    for observation in (*MODELS.values(), LinearGaussian(), LinearGaussian(offset=np.full(4, 500.0))):
        assert observation.adapt(X + 500.0).origin is None
    X[:, 1] = 5.0  # constant, but not far by the measure of the others
    assert MODELS["bits"].adapt(X).origin is None


def test_a_spec_of_an_older_file_has_no_origin():
    form = to_json(MODELS["bits"].adapt(data() + MIXED))
    assert form.pop("origin") is not None
    assert from_json(form).origin is None


def test_origins_are_round_and_near():
    X = data()
    adapted = MODELS["bits"].adapt(X + 123456.789)
    assert (np.abs(adapted.origin - (X + 123456.789).mean(axis=0)) <= X.std(axis=0)).all()
    assert (adapted.origin == np.round(adapted.origin)).all()
    assert (np.abs(adapted.offset.centre) <= X.std(axis=0)).all()
    given = MODELS["bits"].replace(offset__centre=1e9).adapt(X + 1e9)
    assert np.array_equal(given.origin + given.offset.centre, np.full(4, 1e9))
    own = MODELS["bits"].replace(origin=np.full(4, 1e9 - 3.0)).adapt(X + 1e9)
    assert np.array_equal(own.origin, np.full(4, 1e9 - 3.0))
    assert own.offset.centre == pytest.approx(X.mean(axis=0) + 3.0)


def test_dims_whose_rows_cannot_be_told_apart():
    """Constant ones, and those that vary by less than the rounding of their size, count as constant."""
    X = data()
    X[:, 1], X[:, 2] = 1.7e9, 1e12 + 1e-5 * X[:, 2]
    assert len(np.unique(X[:, 2])) > 1 or X[0, 2] == 1e12
    adapted = MODELS["bits"].adapt(X)
    plain = X.copy()
    plain[:, 1:3] = 0.0
    assert np.array_equal(adapted.scale, MODELS["bits"].adapt(plain).scale)
    far, near = (fit(MODELS["bits"], SAMPLERS["collapsed"], values) for values in (X, plain))
    assert np.array_equal(far.posterior_.Z(0, 0), near.posterior_.Z(0, 0))
    assert far.inverse_transform(np.zeros((1, far.n_components_)))[0, 1] == pytest.approx(1.7e9)
    plain[:, 1] = 1e-200 * plain[:, 0]  # squares that vanish
    assert MODELS["bits"].adapt(plain).origin is None
    alone = MODELS["bits"].adapt(np.full((3, 2), 1e149))
    assert np.isfinite(alone.scale).all()
    assert np.array_equal(alone.from_origin(np.full(2, 1e149)), [0.0, 0.0])


@pytest.mark.parametrize("offset", [None, np.array([0.0, 0.0, 0.0, 1e9])])
def test_too_far_from_where_the_model_says(offset):
    X = data() + np.array([0.0, 1.7e9, 0.0, 1e9])
    with pytest.raises(InvalidDataError, match=r"Dim 1 of X lies too far from .*offset=NormalOffset\(\)"):
        fit(LinearGaussian(offset=offset), SAMPLERS["collapsed"], X)


# ---- the whole range


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "inference"), compositions(MODELS | {"default": FactorAnalysis()}, SAMPLERS | OPTIMISERS)
)
@pytest.mark.parametrize("seed", [0, 1])
def test_offsets_of_any_size(model, inference, seed):
    """Random ones, log-uniform to 1e12, not on a grid: the data that are left of X + c give the same answer."""
    rng = np.random.default_rng(seed)
    models = MODELS | {"default": FactorAnalysis()}
    X = with_holes(data(40, seed))
    c = rng.choice([-1.0, 1.0], 4) * 10 ** rng.uniform(0, 12, 4)
    near, far = (fit(models[model], (SAMPLERS | OPTIMISERS)[inference], Y) for Y in ((X + c) - c, X + c))
    assert_same(near, far, (X + c) - c, c, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("c", [1e7, 1e9, 1e12, "epoch"])
def test_long_chains_find_the_same(c):
    X = data(100)
    c = np.array([0.0, 1.7e9, 0.0, 0.0]) if c == "epoch" else np.full(4, c)
    inference = CollapsedGibbs(n_warmup=200, n_draws=200)
    near, far = (fit(MODELS["bits"], inference, Y) for Y in (X, X + c))
    assert near.n_components_ == far.n_components_ == 2
    assert np.array_equal(near.posterior_.draws["noise_var"], far.posterior_.draws["noise_var"])
