"""save, then load: the same estimator, bit for bit."""

import json
import zipfile

import numpy as np
import pandas as pd
import pytest

import thali
from thali import IBP, BetaBernoulli, CollapsedGibbs, Gamma, LatentFeatures, LinearGaussian, NormalOffset, PerDim
from thali.core.distributions import Beta, InverseGamma, LogNormal
from thali.core.model import Model
from thali.errors import InvalidFileError
from thali.storage.spec_json import from_json, to_json

SHORT = CollapsedGibbs(n_warmup=3, n_draws=6)


@pytest.fixture
def X(rng):  # noqa: N802 (the matrix has this name)
    X = rng.integers(2, size=(30, 2)) @ np.array([[3.0, 0, 0], [0, 3.0, 3.0]]) + 0.3 * rng.standard_normal((30, 3))
    X[2, 1] = np.nan
    return X


def fit(X, **parameters):
    return LatentFeatures(**{"inference": SHORT, "n_chains": 2, "random_state": 5} | parameters).fit(X)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"prior": BetaBernoulli(n_features=4)},
        {"prior": IBP(mass=Gamma(2, 1), concentration=Gamma(1, 1), discount=Beta(1, 3))},
        {"observation": LinearGaussian(noise_var=PerDim(), offset=NormalOffset(), noise_floor=0.01)},
        {"observation": LinearGaussian(noise_var=np.array([0.1, 0.2, 0.3]), feature_var=1.0, offset=np.ones(3))},
    ],
    ids=["default", "finite", "all learned", "per dim", "arrays"],
)
def test_round_trip(X, tmp_path, parameters):
    m = fit(X, **parameters)
    path = tmp_path / "run.thali"
    m.save(path)
    n = thali.load(path)
    assert n.get_params(deep=False) == m.get_params(deep=False)
    for method in ("transform", "presence", "score_samples"):
        assert np.array_equal(getattr(m, method)(X), getattr(n, method)(X))
    assert m.score(X) == n.score(X)
    assert np.array_equal(m.components_, n.components_)
    assert np.array_equal(m.inverse_transform(m.transform(X)), n.inverse_transform(n.transform(X)))
    for name in ("k_posterior_", "n_components_", "converged_", "inference_", "data_fingerprint_", "n_features_in_"):
        assert getattr(m, name) == getattr(n, name), name
    for group in ("history_", "diagnostics_"):
        a, b = getattr(m, group), getattr(n, group)
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)
    assert m.check() == n.check()
    a, b = m.posterior_, n.posterior_
    assert a.model == b.model
    for chain in range(a.n_chains):
        for draw in range(a.n_draws):
            assert np.array_equal(a.Z(chain, draw), b.Z(chain, draw))
            assert np.array_equal(a.features(chain, draw), b.features(chain, draw))
            assert a.concrete(chain, draw) == b.concrete(chain, draw)
    assert list(n.get_feature_names_out()) == list(m.get_feature_names_out())


def test_saving_twice_gives_the_same_bytes(X, tmp_path):
    m = fit(X)
    m.save(tmp_path / "a.thali")
    thali.load(tmp_path / "a.thali").save(tmp_path / "b.thali")
    assert (tmp_path / "a.thali").read_bytes() == (tmp_path / "b.thali").read_bytes()


def test_column_names_come_back(X, tmp_path):
    frame = pd.DataFrame(X, columns=["one", "two", "three"])
    m = fit(frame)
    m.save(tmp_path / "a.thali")
    n = thali.load(tmp_path / "a.thali")
    assert np.array_equal(n.transform(frame), m.transform(frame))
    with pytest.raises(thali.InvalidDataError):
        n.transform(frame[["two", "one", "three"]])


def test_a_loaded_estimator_can_be_fitted_again(X, tmp_path):
    m = fit(X)
    m.save(tmp_path / "a.thali")
    again = thali.load(tmp_path / "a.thali").fit(X)
    assert np.array_equal(again.posterior_.draws["log_joint"], m.posterior_.draws["log_joint"])


def test_integer_seeds_of_numpy_are_kept(X, tmp_path):
    fit(X, random_state=np.int64(5)).save(tmp_path / "a.thali")
    assert thali.load(tmp_path / "a.thali").random_state == 5


def test_a_generator_is_not_written(X, tmp_path, rng):
    fit(X, random_state=rng).save(tmp_path / "a.thali")
    assert thali.load(tmp_path / "a.thali").random_state is None


def test_unfitted_cannot_be_saved(tmp_path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        LatentFeatures().save(tmp_path / "a.thali")
    assert list(tmp_path.iterdir()) == []


def change(path, new, change_meta, drop=()):
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(new, "w") as archive:
        meta = json.loads(old.read("meta.json"))
        change_meta(meta)
        archive.writestr("meta.json", json.dumps(meta))
        for name in old.namelist():
            if name != "meta.json" and name not in drop:
                archive.writestr(name, old.read(name))


def keep(meta):
    """Change nothing."""


@pytest.mark.parametrize(
    ("change_meta", "drop", "words"),
    [
        (lambda meta: meta["params"]["inference"].update(spec="Popen"), (), "Popen"),
        (lambda meta: meta["params"].update(colour=1), (), "damaged"),
        (lambda meta: meta.pop("model"), (), "damaged"),
        (lambda meta: meta["model"].pop("prior"), (), "damaged"),
        (lambda meta: meta["params"]["inference"].update(n_draws=-1), (), "n_draws"),
        (keep, ("Z.values.npy",), "damaged"),
        (keep, ("draws/n_features.npy",), "damaged"),
        (keep, ("codebook/features.values.npy",), "damaged"),
        (keep, ("hyper/prior.mass.npy",), "damaged"),
    ],
)
def test_inconsistent_files_are_refused(X, tmp_path, change_meta, drop, words):
    path, new = tmp_path / "a.thali", tmp_path / "b.thali"
    fit(X).save(path)
    change(path, new, change_meta, drop)
    with pytest.raises(InvalidFileError, match=words):
        thali.load(new).transform(X)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 0.1, 1e-300, "auto", [1, 2.5, None],
        Model(IBP(), LinearGaussian(offset=np.array([0.1, 1 / 3]))),
        Gamma(1, 2, relative=True), InverseGamma(3, 4), LogNormal(1, 2), PerDim(2.0), NormalOffset(np.arange(2.0)),
        SHORT,
    ],
    ids=repr,
)  # fmt: skip
def test_specs_as_json(value):
    text = json.dumps(to_json(value))
    assert from_json(json.loads(text)) == value


def test_numpy_scalars_become_plain():
    assert to_json(np.float64(0.1)) == 0.1
    assert type(to_json(np.int64(3))) is int
    with pytest.raises(TypeError, match="cannot be written"):
        to_json(object())
