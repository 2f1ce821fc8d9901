"""Whatever comes in: a right result, or one of thali's own errors with words in it.

Never another exception, a foreign warning (`filterwarnings = error` makes it an exception), a hang, or a file left half
written. The fast tests try a sample of each kind of input, those marked slow a thousand.
"""

import io
import json
import math
import re
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.exceptions import NotFittedError

import thali
from thali import (
    IBP,
    Beta,
    BetaBernoulli,
    CollapsedGibbs,
    Gamma,
    InverseGamma,
    LatentFeatures,
    LinearGaussian,
    LogNormal,
    NormalOffset,
    PerDim,
)
from thali.errors import ThaliError
from thali.storage import checkpoint

QUICK = CollapsedGibbs(n_warmup=2, n_draws=3, start="empty")


def accepted(call: Callable[[], Any]) -> Any:
    """The result, or None if it was refused by one of our own errors, with words in it."""
    try:
        return call()
    except (ThaliError, NotFittedError) as error:
        words = str(error)
    assert len(words) > 10
    return None


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


# --- what a right result is -----------------------------------------------------------------------


def is_share(values: Any) -> bool:
    values = np.asarray(values)
    return bool(np.isfinite(values).all() and (values >= 0).all() and (values <= 1).all())


def check_fit(model: LatentFeatures, n_rows: int, n_dims: int) -> None:
    """What a fit says of itself is finite and agrees with itself."""
    K = model.n_components_
    assert model.components_.shape == (K, n_dims)
    assert np.isfinite(model.components_).all()
    assert model.stability_.shape == (K,)
    assert is_share(model.stability_)
    assert sum(model.k_posterior_.values()) == pytest.approx(1)
    assert is_share(list(model.k_posterior_.values()))
    posterior = model.posterior_
    assert posterior.n_rows == n_rows
    in_use = posterior.draws["n_features"]
    assert set(model.k_posterior_) == set(in_use.ravel().tolist())
    assert max(model.k_posterior_) >= K
    for name, values in posterior.draws.items():
        assert values.shape == in_use.shape, name
        assert np.isfinite(values).all(), name
    for chain, draw in np.ndindex(in_use.shape):
        Z = posterior.Z(chain, draw)
        assert Z.shape[0] == n_rows
        assert np.isin(Z, (0, 1)).all()
        assert Z.any(axis=0).sum() == in_use[chain, draw]
        assert posterior.features(chain, draw).shape == (in_use[chain, draw], n_dims)
    assert isinstance(model.check(), str)
    n_runs = len(model.history_["settled"]) if "settled" in model.history_ else posterior.n_chains  # restarts or chains
    assert len(model.agreement_.n_features) == n_runs


def check_use(model: LatentFeatures, X: Any, values: np.ndarray) -> None:
    """What a fit says of rows is finite and has the right shape. `values` are the cells of X as floats."""
    n_rows, K = len(values), model.n_components_
    presence = model.presence(X)
    assert presence.shape == (n_rows, K)
    assert is_share(presence)
    codes = model.transform(X)
    assert np.isfinite(codes).all()
    if isinstance(model.posterior_.model.observation, LinearGaussian):
        assert np.array_equal(codes, presence)
    assert model.inverse_transform(codes).shape == values.shape
    scores = model.score_samples(X)
    assert scores.shape == (n_rows,)
    assert np.isfinite(scores).all()
    assert is_share(model.novelty(X))
    filled, lower, upper = model.impute(X, interval=0.5)
    seen = ~np.isnan(values)
    for found in (filled, lower, upper):
        assert found.shape == values.shape
        assert np.isfinite(found).all()
        assert np.array_equal(found[seen], values[seen])
    assert (lower <= upper).all()
    assert np.isfinite(model.sample(2, random_state=0)).all()


# --- data -----------------------------------------------------------------------------------------

NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-5, 1e5, 1e-12, 1e12]
EXTREME = [1e30, -1e30, 1e-30, 1e60, 1e76, 1e100, 1e149, 1e151, 1e308, 5e-324, 1e-100, 1e-139, 1e-155, 1e-160, 1e-200]
SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 4))


def cells(*more: float) -> st.SearchStrategy[float]:
    return st.one_of(st.sampled_from(NUMBERS), st.floats(-100, 100), *([st.sampled_from(more)] if more else []))


@st.composite
def plain(draw: Any) -> np.ndarray:
    """A matrix that looks like data: often with missing cells, constant columns or a scale of its own per dim."""
    X = draw(arrays(np.float64, draw(SHAPES), elements=st.floats(-5, 5)))
    if draw(st.booleans()):
        X = X * draw(st.sampled_from([1e-6, 1e-3, 1e3, 1e6]))
    if draw(st.booleans()):
        X[:, draw(st.integers(0, X.shape[1] - 1))] = draw(cells())
    if draw(st.booleans()):
        X[draw(arrays(bool, X.shape, elements=st.booleans(), fill=st.just(False)))] = np.nan
    return X


@st.composite
def extreme(draw: Any) -> np.ndarray:
    """Huge and tiny numbers, alone or side by side."""
    few = draw(st.lists(st.sampled_from(EXTREME), min_size=1, max_size=3))
    return draw(arrays(np.float64, draw(SHAPES), elements=cells(np.nan, *few)))


@st.composite
def odd_arrays(draw: Any) -> Any:
    """Other kinds of numbers, memory layouts, shapes; and what holds no numbers at all."""
    kind = draw(st.sampled_from(["f4", "f2", "i8", "u1", "i1", "bool", "O", "U3", "c16", "M8[D]", "longdouble"]))
    shape = draw(st.lists(st.integers(0, 5), max_size=3).map(tuple) | SHAPES)
    elements: Any = None
    if kind == "O":
        elements = st.sampled_from([0, 1.5, None, "a", "3", 10**400, np.nan, True, (), {}, Decimal("1.5")])
    elif kind == "longdouble" or (kind in ("f4", "f2", "i8") and draw(st.booleans())):
        elements = st.integers(0, 5)
    X = draw(arrays("f8" if kind == "longdouble" else kind, shape, elements=elements))
    X = X.astype(np.longdouble) if kind == "longdouble" else X
    layout = draw(st.sampled_from(["C", "F", "read-only", "strided", "big endian", "masked", "list", "sparse"]))
    if layout == "F":
        return np.asfortranarray(X)
    if layout == "read-only":
        X.flags.writeable = False
    if layout == "strided" and X.ndim:
        return np.repeat(X, 2, axis=-1)[..., ::2]
    if layout == "big endian":
        return X.astype(X.dtype.newbyteorder(">"))
    if layout == "masked":
        return np.ma.masked_array(X, mask=np.zeros(X.shape, dtype=bool))
    if layout == "list":
        return X.tolist()
    if layout == "sparse" and X.ndim == 2 and kind in ("i8", "f4"):
        return scipy.sparse.csr_matrix(X) if draw(st.booleans()) else scipy.sparse.coo_array(X)
    return X


COLUMNS: dict[str, Callable[[list[int]], Any]] = {
    "float": lambda v: pd.Series(v, dtype=float),
    "float32": lambda v: pd.Series(v, dtype="float32"),
    "int": lambda v: pd.Series(v),
    "bool": lambda v: pd.Series(v) > 0,
    "Int64": lambda v: pd.Series([pd.NA if x == 0 else x for x in v], dtype="Int64"),
    "Float64": lambda v: pd.Series([pd.NA if x == 0 else x / 2 for x in v], dtype="Float64"),
    "boolean": lambda v: pd.Series([pd.NA if x == 0 else x > 0 for x in v], dtype="boolean"),
    "category": lambda v: pd.Series(v).astype("category"),
    "string": lambda v: pd.Series([str(x) for x in v], dtype="string"),
    "object": lambda v: pd.Series([None if x == 0 else x for x in v], dtype=object),
    "text": lambda v: pd.Series(["x"] * len(v)),
    "time": lambda v: pd.to_datetime(pd.Series(v), unit="D"),
    "span": lambda v: pd.to_timedelta(pd.Series(v), unit="D"),
    "decimal": lambda v: pd.Series([Decimal(x) for x in v], dtype=object),
    "sparse": lambda v: pd.Series(v, dtype=pd.SparseDtype(float)),
    "arrow": lambda v: pd.Series(v, dtype="double[pyarrow]"),
}


@st.composite
def frames(draw: Any) -> Any:
    """Data frames with columns of any dtype and any names, also none or the same."""
    n_rows = draw(st.integers(0, 6))
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), max_size=3))
    columns = [COLUMNS[kind](draw(st.lists(st.integers(-3, 3), min_size=n_rows, max_size=n_rows))) for kind in kinds]
    names = draw(st.lists(st.sampled_from(["a", "b", 0, 1.5, None, "", ("x", 1)]), min_size=3, max_size=3))
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(n_rows))
    frame.columns = names[: frame.shape[1]] if draw(st.booleans()) else [f"c{i}" for i in range(frame.shape[1])]
    return frame.iloc[:, 0] if frame.shape[1] and draw(st.integers(0, 9)) == 0 else frame


ODD_THINGS = st.sampled_from(
    [None, "x", b"x", 3, object(), {}, {"a": [1, 2]}, [], [[]], [[1.0], [1.0, 2.0]], range(3), set()]
)
ANY_DATA = st.one_of(plain(), extreme(), odd_arrays(), frames(), ODD_THINGS)


def as_floats(X: Any) -> np.ndarray:
    """The cells of data that were accepted."""
    X = X.to_numpy(dtype=float, na_value=np.nan) if isinstance(X, pd.DataFrame) else X
    return np.asarray(X, dtype=float)


def unchanged(X: Any) -> Any:
    """Something that is equal for the same data."""
    if isinstance(X, pd.DataFrame | pd.Series):
        return X.to_csv()
    if scipy.sparse.issparse(X):
        return X.toarray().tobytes()
    return (X.tobytes(), X.shape) if isinstance(X, np.ndarray) and X.dtype != object else repr(X)


def fit_any_data(X: Any, n_chains: int, start: str) -> None:
    before = unchanged(X)
    model = LatentFeatures(inference=QUICK.replace(start=start), n_chains=n_chains, n_jobs=1, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="pandas.DataFrame with sparse columns")  # scikit-learn's own
        if accepted(lambda: model.fit(X)):
            values = as_floats(X)
            check_fit(model, *values.shape)
            check_use(model, X, values)
    assert unchanged(X) == before


def fit_model_to_data(X: np.ndarray, observation: LinearGaussian, prior: Any) -> None:
    model = LatentFeatures(observation, prior, QUICK, n_chains=1, n_jobs=1, random_state=1)
    if accepted(lambda: model.fit(X)):
        check_fit(model, *X.shape)
        check_use(model, X, X)


OBSERVATIONS = st.builds(
    LinearGaussian,
    noise_var=st.sampled_from([1.0, InverseGamma(1.0, 0.1, relative=True), PerDim(), Gamma(2.0, 1.0), LogNormal()]),
    feature_var=st.sampled_from([None, 1.0, InverseGamma(2.0, 1.0), Gamma(1.0, 1.0, relative=True)]),
    offset=st.sampled_from([None, NormalOffset()]),
)
PRIORS = st.sampled_from(
    [IBP(), IBP(Gamma(2, 1), Gamma(1, 1), Beta(1, 3)), IBP(1.0, 2.0, 0.5), BetaBernoulli(), BetaBernoulli(1.0, 2)]
)


# --- a fit and any data ---------------------------------------------------------------------------


def fitted_data() -> np.ndarray:
    """12 x 3, a cell missing."""
    rng = np.random.default_rng(0)
    X = rng.integers(2, size=(12, 2)) @ np.array([[4.0, 4, 0], [0, 0, 4]]) + 0.3 * rng.standard_normal((12, 3))
    X[0, 1] = np.nan
    return X


@cache
def fitted() -> LatentFeatures:
    options = {"n_chains": 2, "n_jobs": 1, "random_state": 0}
    return LatentFeatures(inference=CollapsedGibbs(n_warmup=5, n_draws=4), **options).fit(fitted_data())


METHODS = ["presence", "transform", "impute", "score_samples", "score", "novelty", "inverse_transform", "heldout_score"]
LIKE_FIT = arrays(np.float64, st.tuples(st.integers(1, 4), st.just(3)), elements=cells(np.nan, *EXTREME))
JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 10**400, 0.0, -0.0, 0.5, 1.0, 1.5, -1.0, 1e-300, 1e300, math.nan, math.inf, 1j,
    "", "1", "auto", b"x", np.float32(0.5), np.float64(2.0), np.int64(2), np.uint8(3), np.bool_(True), np.array(0.5),
    np.array([0.5, 0.5]), np.array([1, 2, 3]), np.array(["a"]), np.zeros((2, 2)), np.zeros(0), [], [1.0], [0.5] * 3,
    [[1], [2, 3]], (), (1.0, 2.0), {}, {"a": 1}, set(), Fraction(1, 2), Fraction(10**400), Decimal("0.5"), pd.NA,
    pd.Series([0.5, 0.5, 0.5]), Gamma(1, 1), Gamma(1, 1, relative=True), InverseGamma(2, 1), Beta(1, 1), LogNormal(),
    PerDim(), NormalOffset(), NormalOffset(centre=1.0), IBP(), BetaBernoulli(), LinearGaussian(), CollapsedGibbs(),
    IBP, Gamma, object(), len, lambda x: x, range(3), slice(1), NotImplemented, Ellipsis, np.datetime64("2020-01-01"),
]  # fmt: skip
ANYTHING = st.sampled_from(JUNK)


MASKS = arrays(bool, st.tuples(st.integers(1, 4), st.integers(2, 3)))


def use_any_data(method: str, X: Any, extra: Any) -> None:
    more = (extra,) if method in ("impute", "heldout_score") else ()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X has feature names")  # scikit-learn's own, and wanted by its checks
        warnings.filterwarnings("ignore", message="pandas.DataFrame with sparse columns")
        found = accepted(lambda: getattr(fitted(), method)(X, *more))
    if found is not None:
        for part in found if isinstance(found, tuple) else (found,):
            assert np.isfinite(part).all()
            assert method not in ("presence", "transform", "novelty") or is_share(part)


def use_like_data(X: np.ndarray) -> None:
    if accepted(lambda: fitted().presence(X)) is not None:
        check_use(fitted(), X, X)


def sample_any(n: Any, random_state: Any) -> None:
    found = accepted(lambda: fitted().sample(n, random_state))
    if found is not None:
        assert found.shape == (n, 3)


# --- parameters -----------------------------------------------------------------------------------

DISTRIBUTIONS = [Gamma, InverseGamma, Beta, LogNormal, PerDim, NormalOffset]
SPECS = [IBP, BetaBernoulli, LinearGaussian, CollapsedGibbs, *DISTRIBUTIONS]
MILD = st.one_of(st.floats(0.01, 20), st.sampled_from([1e-8, 1e6]))
SIZES = MILD | st.sampled_from([1e-300, 1e-30, 1e30, 1e300])
GOOD: dict[str, Any] = {
    "n_warmup": st.integers(0, 2),
    "n_draws": st.integers(1, 3),
    "thin": st.integers(1, 2),
    "n_features": st.integers(1, 5),
    "start": st.sampled_from(["search", "spectral", "annealed", "empty"]),
    "group": st.integers(1, 6),
    "moves": st.booleans(),
    "relative": st.booleans(),
    "noise_floor": st.floats(0, 0.9) | st.just([0.1, 0.2, 0.3]),
    "discount": st.floats(0, 0.9),
    "mean": st.floats(-3, 3),
    "offset": st.sampled_from([None, [0.0] * 3, NormalOffset()]),
    "scale": SIZES | st.sampled_from([None, [1.0, 2.0, 3.0]]),
    "noise_var": SIZES | st.sampled_from([[0.5, 1.0, 2.0], PerDim()]),
    "feature_var": SIZES | st.none(),
    "level": st.just(Gamma(2, 1)),
    "centre": st.sampled_from([None, 0.5, [1.0] * 3]),
}


@st.composite
def distribution(draw: Any) -> Any:
    """With sensible and with odd numbers. (Shapes such as 1e-300 give stray warnings before they are refused.)"""
    kind = draw(st.sampled_from(DISTRIBUTIONS))
    names = [name for name in kind().get_params(deep=False) if name not in ("relative", "level", "centre", "mean")]
    return kind(**{name: draw(MILD) for name in names})


FEW = [
    Gamma(1, 1),
    Gamma(0.1, 1),
    InverseGamma(3, 1),
    Beta(1, 1),
    LogNormal(0, 1),
    PerDim(),
    NormalOffset(),
]  # features


@st.composite
def fields(draw: Any, kind: Any) -> dict[str, Any]:
    """Any values for some fields of a spec, whether they make sense or not."""
    names = draw(st.sets(st.sampled_from(sorted(kind().get_params(deep=False))), max_size=3))
    sorts = st.sampled_from(["good", "good", "learned", "anything"])
    learned = distribution() if kind not in (IBP, BetaBernoulli) else st.sampled_from(FEW)
    return {
        name: draw({"good": GOOD.get(name, SIZES), "learned": learned, "anything": ANYTHING}[draw(sorts)])
        for name in sorted(names)
    }


def build_any_spec(kind: Any, data: Any) -> Any:
    values = data.draw(fields(kind))
    built = accepted(lambda: kind(**values))
    if built is not None:
        assert built == built.replace(**{name: getattr(built, name) for name in values})
        assert kind.__name__ in repr(built)
    return built


def check_any_spec(kind: Any, data: Any) -> None:
    build_any_spec(kind, data)


def fit_any_model(data: Any) -> None:
    X = fitted_data()[:6]
    prior = build_any_spec(data.draw(st.sampled_from([IBP, BetaBernoulli])), data)
    observation = build_any_spec(LinearGaussian, data)
    if prior is not None and observation is not None:
        fit_model_to_data(X, observation, prior)


SETTINGS: dict[str, Any] = {
    "n_chains": st.integers(1, 2),
    "n_jobs": st.sampled_from([None, -1, 1, 2]),
    "random_state": st.integers(0, 2**70) | st.builds(np.random.default_rng, st.just(0)),
    "verbose": st.sampled_from([None, False, True]),
    "max_time": st.floats(1e-9, 1e9),
    "target_ess": st.floats(1e-9, 1e9),
    "checkpoint": st.sampled_from([None, "kept", Path("run")]),
    "prior": PRIORS,
    "observation": OBSERVATIONS,
    "inference": st.just("auto"),
}


def fit_any_settings(data: Any) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(SETTINGS)), min_size=1, max_size=4))
    values = {name: data.draw(SETTINGS[name] | ANYTHING) for name in sorted(names)}
    inference = values.get("inference", "auto")
    if isinstance(inference, CollapsedGibbs) or (isinstance(inference, str) and inference == "auto"):
        values["inference"] = QUICK  # those would take their time
    X = fitted_data()[:5]
    heldout = data.draw(st.none() | st.just(np.ones((5, 3))) | ANYTHING)
    with folder() as path, pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        model = LatentFeatures(**{"n_chains": 1, "n_jobs": 1} | values)
        if accepted(lambda: model.fit(X, heldout=heldout)):
            check_fit(model, *X.shape)
            accepted(lambda: model.save("fit.thali"))
        assert not list(path.rglob("*.part"))


def set_any_parameters(name: str, value: Any) -> None:
    model = LatentFeatures(inference=QUICK, n_chains=1)
    accepted(lambda: model.set_params(**{name: value}))


PARTS = (("prior", IBP), ("observation", LinearGaussian), ("inference", CollapsedGibbs))
NESTED = [f"{part}__{name}" for part, kind in PARTS for name in [*kind().get_params(), "colour", "mass__colour", ""]]


# --- damaged files --------------------------------------------------------------------------------


@cache
def saved(kind: int) -> bytes:
    """The bytes of a fit; its data are `fitted_data()`."""
    parts = [
        {},
        {"prior": BetaBernoulli(n_features=3)},
        {"observation": LinearGaussian(noise_var=PerDim(), offset=NormalOffset(), noise_floor=0.01)},
    ][kind]
    X = pd.DataFrame(fitted_data(), columns=list("abc")) if kind == 2 else fitted_data()
    model = LatentFeatures(inference=QUICK, n_chains=2, n_jobs=1, random_state=0, **parts).fit(X)
    with folder() as path:
        model.save(path / "fit.thali")
        return (path / "fit.thali").read_bytes()


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(parts: list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two members with the same name
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in parts:
                archive.writestr(name, content)
    return buffer.getvalue()


@st.composite
def damaged_bytes(draw: Any, content: bytes) -> bytes:
    sort = draw(st.sampled_from(["flip", "cut", "insert", "overwrite", "other"]))
    at = draw(st.integers(0, len(content)))
    if sort == "flip":
        changed = bytearray(content)
        for i in draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
            changed[i] ^= draw(st.integers(1, 255))
        return bytes(changed)
    if sort == "cut":
        return content[:at] if draw(st.booleans()) else content[at:]
    if sort == "insert":
        return content[:at] + draw(st.binary(max_size=20)) + content[at:]
    if sort == "overwrite":
        return content[:at] + bytes(draw(st.integers(1, 300))) + content[at:]
    return draw(
        st.binary(max_size=100) | st.sampled_from([b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"{}", bytes(999)])
    )


@st.composite
def damaged_zip(draw: Any, content: bytes) -> bytes:
    """Members removed, renamed, swapped, doubled, added; everything with a right check sum."""
    parts = list(members(content).items())
    for _ in range(draw(st.integers(1, 3))):
        i, j = (draw(st.integers(0, len(parts) - 1)) for _ in range(2))
        sort = draw(st.sampled_from(["remove", "rename", "swap", "double", "add"]))
        if sort == "remove":
            parts = [*parts[:i], *parts[i + 1 :]] or parts
        elif sort == "rename":
            names = st.sampled_from(["meta.json", "x.npy", "../x.npy", "/x.npy", "x", "Z.values.npy", "draws/x.npy"])
            parts[i] = draw(names), parts[i][1]
        elif sort == "swap":
            parts[i], parts[j] = (parts[i][0], parts[j][1]), (parts[j][0], parts[i][1])
        elif sort == "double":
            parts.append((parts[i][0], parts[j][1]))
        else:
            parts.append((draw(st.sampled_from(["more.npy", "draws/more.npy", "x.txt"])), parts[j][1]))
    return zipped(parts)


JSON: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 10**30, 0.5, -0.5, 1e300, math.nan, math.inf, "", "x", "IBP", "Model", "Gamma",
    [], [1], [[]], {}, {"spec": "IBP"}, {"spec": "Model"}, {"spec": []}, {"array": [1], "dtype": "O"}, {"array": 1},
    {"array": [0.5, 0.5, 0.5], "dtype": "<f8"}, {"spec": "Gamma", "shape": -1.0}, {"value": 1}, {"kind": "dict"},
    "<f4", "|u1", "<i8", "O", "F", "spec Gamma", "dict", "list", "tuple thali.run.Result", "tuple Draw",
    "tuple os.stat_result",
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) inside JSON data."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


@st.composite
def damaged_meta(draw: Any, content: bytes) -> bytes:
    """Other values, keys and types anywhere in meta.json."""
    parts = members(content)
    meta = json.loads(parts["meta.json"])
    values = st.sampled_from(JSON).map(deepcopy)
    for _ in range(draw(st.integers(1, 2))):
        spots = list(places(meta))
        holder, key = spots[draw(st.integers(0, len(spots) - 1))]
        sort = draw(st.sampled_from(["change", "change", "remove", "add"]))
        if sort == "change":
            holder[key] = draw(values)
        elif sort == "remove":
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw(st.sampled_from(["x", "spec", "array", "value", "n_rows"]))] = draw(values)
        else:
            holder.append(draw(values))
    return zipped(list((parts | {"meta.json": json.dumps(meta).encode()}).items()))


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


@st.composite
def damaged_arrays(draw: Any, content: bytes) -> bytes:
    """Other shapes, types and values than there should be, and headers that promise more than there is."""
    parts = members(content)
    names = sorted(name for name in parts if name.endswith(".npy"))
    for _ in range(draw(st.integers(0, 2)) if names else 0):
        name = draw(st.sampled_from(names))
        array = np.lib.format.read_array(io.BytesIO(parts[name]), allow_pickle=False).copy()
        sort = draw(st.sampled_from(["shape", "type", "value", "value", "length"]))
        if sort == "shape":
            array = draw(st.sampled_from([array.ravel(), array[None], array.T, array[..., None], array[:0]]))
        elif sort == "type":
            kind = draw(st.sampled_from(["<f4", "<f8", "<i8", "|u1", "|b1", "<c16", "<U3", "|i1", ">f8"]))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                array = array.astype(kind) if array.dtype.kind != "U" else array
        elif sort == "value" and array.size:
            values: list[Any] = [0, 1, 7, 255] if array.dtype.kind in "ub" else [0, -1, 1, 7, 100]
            values += [10**9, -(2**62)] if array.dtype == np.int64 else []
            values += [np.nan, np.inf, -1e30, 0.5] if array.dtype.kind == "f" else []
            array.flat[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from(values))
        elif sort == "length" and array.ndim:
            array = array[: draw(st.integers(0, len(array)))] if draw(st.booleans()) else np.concatenate([array, array])
        parts[name] = npy(array)
    if names and draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from(names))
        promised = draw(st.sampled_from([b"(10000000000,)", b"(1099511627776, 8)", b"(-1,)", b"(3, 10000000000000)"]))
        parts[name] = re.sub(rb"\([0-9, ]*\)", promised, parts[name], count=1)
    return zipped(list(parts.items()))


DAMAGES = [damaged_bytes, damaged_zip, damaged_meta, damaged_arrays]


def load_damaged(data: Any) -> None:
    content = data.draw(data.draw(st.sampled_from(DAMAGES))(saved(data.draw(st.integers(0, 2)))))
    with folder() as path:
        file = path / "fit.thali"
        file.write_bytes(content)
        model = accepted(lambda: thali.load(file))
        assert [entry.name for entry in path.iterdir()] == ["fit.thali"]
    if model is not None:
        check_fit(model, model.posterior_.n_rows, model.n_features_in_)
        names = getattr(model, "feature_names_in_", None)
        X = fitted_data()[:4]
        check_use(model, X if names is None else pd.DataFrame(X, columns=names), X)


# --- damaged checkpoints --------------------------------------------------------------------------


@cache
def stopped() -> dict[str, bytes]:
    """The files of a run in the middle."""
    seen: list[dict[str, bytes]] = []
    keep = checkpoint.Checkpoint.keep

    def watch(self: Any, chain: Any, is_last: bool) -> None:
        keep(self, chain, is_last)
        seen.append({file.name: file.read_bytes() for file in self.folder.iterdir()})

    with folder() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "EVERY", 0.0)
        patch.setattr(checkpoint, "_COST", 0.0)
        patch.setattr(checkpoint.Checkpoint, "keep", watch)
        options = {"n_chains": 2, "n_jobs": 1, "random_state": 0, "checkpoint": path / "run"}
        LatentFeatures(inference=QUICK, **options).fit(fitted_data())
    return seen[-4]


def resume_any(X: Any, data: Any) -> None:
    """Any data and settings for a run that is whole."""
    names = data.draw(st.sets(st.sampled_from(["n_jobs", "verbose", "max_time", "target_ess", "colour"]), max_size=2))
    values = {name: data.draw(SETTINGS.get(name, st.none()) | ANYTHING) for name in sorted(names)}
    X = fitted_data() if data.draw(st.booleans()) else X
    with folder() as path, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="pandas.DataFrame with sparse columns")
        for file, content in stopped().items():
            (path / file).write_bytes(content)
        model = accepted(lambda: thali.resume(path, X, **{"n_jobs": 1, "verbose": False} | values))
        if model is not None:
            check_fit(model, *fitted_data().shape)


PATHS = [*JUNK, "", ".", "..", "/", "\0", "a/b.thali", "x" * 300, Path(), Path("a\0b"), "\ud800", "é.thali", "run"]


def any_path(verb: str, name: Any) -> None:
    """A fit is saved or not there, whatever the name."""
    with folder() as path, pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        if verb == "save":
            accepted(lambda: fitted().save(name))
            assert all(thali.load(file).n_components_ == fitted().n_components_ for file in path.iterdir())
        elif verb == "load":
            assert accepted(lambda: thali.load(name)) is None
        else:
            assert accepted(lambda: thali.resume(name, fitted_data())) is None


def resume_damaged(data: Any) -> None:
    files = {name: content for name, content in stopped().items() if name != "run.lock"}  # it is empty, and made anew
    name = data.draw(st.sampled_from(sorted(files)))
    sort = data.draw(st.sampled_from(["remove", "swap", "extra", "file", "file", "file"]))
    if sort == "remove":
        del files[name]
    elif sort == "swap":
        other = data.draw(st.sampled_from(sorted(files)))
        files[name], files[other] = files[other], files[name]
    elif sort == "extra":
        files[data.draw(st.sampled_from(["chain-7.state.thali", "chain-0.99.thali", "x.txt"]))] = files[name]
    else:
        files[name] = data.draw(data.draw(st.sampled_from(DAMAGES))(files[name]))
    with folder() as path:
        for file, content in files.items():
            (path / file).write_bytes(content)
        model = accepted(lambda: thali.resume(path, fitted_data(), n_jobs=1, verbose=False))
        if model is not None:
            check_fit(model, *fitted_data().shape)
        assert not list(path.glob("*.part"))


# --- all of it ------------------------------------------------------------------------------------

STARTS = st.sampled_from(["search", "spectral", "annealed", "empty", "empty"])
FUZZ: dict[str, tuple[int, Callable[..., None], dict[str, Any]]] = {
    "plain-data": (60, fit_any_data, {"X": plain(), "n_chains": st.integers(1, 2), "start": STARTS}),
    "extreme-data": (100, fit_any_data, {"X": extreme(), "n_chains": st.just(1), "start": STARTS}),
    "odd-arrays": (80, fit_any_data, {"X": odd_arrays(), "n_chains": st.just(1), "start": st.just("empty")}),
    "frames": (60, fit_any_data, {"X": frames(), "n_chains": st.just(1), "start": st.just("empty")}),
    "odd-things": (12, fit_any_data, {"X": ODD_THINGS, "n_chains": st.just(1), "start": st.just("empty")}),
    "models": (80, fit_model_to_data, {"X": plain(), "observation": OBSERVATIONS, "prior": PRIORS}),
    "use": (150, use_any_data, {"method": st.sampled_from(METHODS), "X": ANY_DATA | LIKE_FIT, "extra": ANYTHING}),
    "use-on-rows": (60, use_like_data, {"X": LIKE_FIT}),
    "interval": (60, use_any_data, {"method": st.just("impute"), "X": LIKE_FIT, "extra": ANYTHING}),
    "mask": (60, use_any_data, {"method": st.just("heldout_score"), "X": LIKE_FIT, "extra": MASKS | ANYTHING}),
    "codes": (60, use_any_data, {"method": st.just("inverse_transform"), "X": ANY_DATA | MASKS, "extra": st.none()}),
    "sample": (40, sample_any, {"n": ANYTHING, "random_state": ANYTHING}),
    "specs": (200, check_any_spec, {"kind": st.sampled_from(SPECS), "data": st.data()}),
    "any-model": (120, fit_any_model, {"data": st.data()}),
    "settings": (60, fit_any_settings, {"data": st.data()}),
    "nested": (80, set_any_parameters, {"name": st.sampled_from(NESTED), "value": ANYTHING}),
    "files": (300, load_damaged, {"data": st.data()}),
    "checkpoints": (120, resume_damaged, {"data": st.data()}),
    "resume": (40, resume_any, {"X": ANY_DATA, "data": st.data()}),
    "paths": (80, any_path, {"verb": st.sampled_from(["save", "load", "resume"]), "name": st.sampled_from(PATHS)}),
}


THOROUGH = pytest.param(True, marks=[pytest.mark.slow, pytest.mark.timeout(3000)])


@pytest.mark.parametrize("name", FUZZ)
@pytest.mark.parametrize("thorough", [pytest.param(False, marks=pytest.mark.timeout(300)), THOROUGH])
def test_fuzz(name: str, thorough: bool) -> None:
    n, body, strategies = FUZZ[name]
    options = {"derandomize": True, "deadline": None, "suppress_health_check": list(HealthCheck), "database": None}
    settings(max_examples=1000 if thorough else n // 2, **options)(given(**strategies)(body))()


# --- what it found --------------------------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize("size", [1e6, 1e30, 1e140])
def test_an_outlier_is_encoded_in_no_time(size: float) -> None:
    """It asks for as many unknown features as it has standard deviations."""
    X = np.array([[size, -size, 0.0]])
    check_use(fitted(), X, X)
    assert fitted().novelty(X) == pytest.approx(1)


@pytest.mark.timeout(60)
def test_numbers_whose_squares_vanish_are_refused() -> None:
    X = np.zeros((7, 4))
    X[4, 0] = 3e-155
    with pytest.raises(thali.InvalidDataError, match="multiply X by a constant"):
        LatentFeatures(inference=QUICK.replace(start="spectral")).fit(X)


def test_presence_with_hardly_any_noise() -> None:
    """Features that no row tells apart make their posterior ill-conditioned."""
    X = np.full((6, 4), -3.65600875)
    X[2, 0], X[4, 1] = -0.5, 0.09375
    observation = LinearGaussian(noise_var=LogNormal(0.0, 9.0), feature_var=1.0)
    fit_model_to_data(X, observation, IBP(1.0, 2.0, 0.5))


def test_a_beta_distribution_may_stand_for_any_positive_number() -> None:
    observation = LinearGaussian(noise_var=Beta(2, 2), feature_var=Beta(1, 1))
    fit_model_to_data(fitted_data(), observation, IBP(concentration=Beta(1, 1)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("observation", "prior"),
    [
        (LinearGaussian(noise_var=1e-300), BetaBernoulli(n_features=5)),
        (LinearGaussian(feature_var=1e-8, noise_var=1e-8), IBP()),
        (LinearGaussian(), IBP(mass=1e6)),
        (LinearGaussian(), IBP(mass=Gamma(1e9, 1.0))),
    ],
    ids=["noise", "tiny features", "mass", "learned mass"],
)
def test_a_model_that_cannot_suit_the_data_says_so(observation: LinearGaussian, prior: Any) -> None:
    with pytest.raises(thali.InvalidParameterError, match=r"must suit the scale of X|up to 1e6"):
        LatentFeatures(observation, prior, QUICK, n_chains=1, n_jobs=1, random_state=0).fit(100 * fitted_data())


@pytest.mark.parametrize("value", [10**400, Fraction(1, 2), 1e7], ids=["beyond floats", "fraction", "large"])
def test_a_mass_that_is_no_plain_number(value: Any) -> None:
    with pytest.raises(thali.InvalidParameterError, match=r"IBP\.mass must be a positive number up to 1e6"):
        IBP(mass=value)
