"""Fits with distances between rows: what the user gives, what is said, kept and gone on with."""

import numpy as np
import pytest
import scipy.sparse as sp

from thali import (
    Coordinates,
    DistanceDependentGibbs,
    DistanceDependentIBP,
    ExponentialDecay,
    Gamma,
    IncompatibleModelError,
    InvalidDataError,
    InvalidFileError,
    InvalidParameterError,
    LatentFeatures,
    LinearGaussian,
    WindowDecay,
    load,
    resume,
)
from thali.running.choose import choose

N_ROWS = 40
TIMES = np.arange(N_ROWS) * 0.5
QUICK = DistanceDependentGibbs(n_warmup=3, n_draws=4)


def stretches(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(X with some missing cells, Z): three features, each on for a stretch of time."""
    rng = np.random.default_rng(seed)
    Z = np.zeros((N_ROWS, 3))
    for k, (first, last) in enumerate([(0, 18), (10, 30), (24, 40)]):
        Z[first:last, k] = 1
    X = Z @ rng.normal(size=(3, 6)) * 2 + 0.3 * rng.normal(size=(N_ROWS, 6))
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, Z


X, Z = stretches()


def fitted(prior: DistanceDependentIBP | None = None, inference=QUICK, seed: int = 0, **near) -> LatentFeatures:
    near = near or {"times": TIMES}
    prior = DistanceDependentIBP(decay="exponential") if prior is None else prior
    return LatentFeatures(prior=prior, inference=inference, n_chains=1, random_state=seed, verbose=False).fit(X, **near)


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def same_draws(a: LatentFeatures, b: LatentFeatures) -> bool:
    return np.array_equal(a.history_["log_joint"], b.history_["log_joint"]) and all(
        np.array_equal(a.posterior_.Z(0, i), b.posterior_.Z(0, i)) for i in range(a.posterior_.n_draws)
    )


def test_features_of_stretches_are_found():
    fit = fitted(inference=DistanceDependentGibbs(n_warmup=30, n_draws=30))
    assert fit.posterior_.k == 3
    found = fit.transform(X) > 0.5
    agreement = [max(np.mean(found[:, j] == Z[:, k]) for j in range(found.shape[1])) for k in range(3)]
    assert min(agreement) > 0.9
    assert np.isfinite(fit.impute(X)).all()


def test_all_ways_to_give_distances_agree():
    square = np.abs(np.subtract.outer(TIMES, TIMES))
    fits = [
        fitted(times=TIMES),
        fitted(coordinates=TIMES[:, None]),
        fitted(coordinates=Coordinates(TIMES[:, None], "cityblock")),
        fitted(distances=square),
        fitted(DistanceDependentIBP(distances=square), times=None),
    ]
    assert all(same_draws(fits[0], fit) for fit in fits[1:])
    window = [
        fitted(DistanceDependentIBP(decay=WindowDecay(1.0)), distances=d)
        for d in (square, sp.csr_array(np.where(square <= 3, square, 0)))
    ]
    assert same_draws(*window)


def test_auto_picks_it():
    prior = DistanceDependentIBP().with_distances(np.zeros((5, 5)))
    found = choose("auto", prior, LinearGaussian(), 5, 2)
    assert isinstance(found.inference, DistanceDependentGibbs)


@pytest.mark.parametrize(
    ("prior", "near", "error", "words"),
    [
        (DistanceDependentIBP(), {"times": None}, InvalidParameterError, r"needs distances.*fit\(X, times="),
        (DistanceDependentIBP(), {"times": TIMES[:5]}, InvalidDataError, "those of 5 rows.*Got 40"),
        (DistanceDependentIBP(), {"times": np.full(N_ROWS, np.nan)}, InvalidParameterError, "finite numbers"),
        (
            DistanceDependentIBP(),
            {"times": np.where(TIMES == 1.5, np.nan, TIMES)},
            InvalidParameterError,
            "Got nan for row 3",
        ),
        (DistanceDependentIBP(), {"times": np.arange(N_ROWS).astype("M8[D]")}, InvalidParameterError, "Got dates"),
        (
            DistanceDependentIBP(),
            {"distances": np.full((N_ROWS, N_ROWS), np.nan)},
            InvalidParameterError,
            "zero or more",
        ),
        (DistanceDependentIBP(), {"times": TIMES, "coordinates": X}, InvalidParameterError, "Got times, coordinates"),
        (DistanceDependentIBP(), {"distances": -np.eye(N_ROWS)}, InvalidParameterError, "zero or more"),
        (DistanceDependentIBP(), {"distances": np.zeros((N_ROWS, 3))}, InvalidParameterError, "square"),
        (DistanceDependentIBP(sequential=True), {"times": -TIMES}, InvalidParameterError, "Sort the rows"),
        (None, {"times": TIMES}, IncompatibleModelError, "IBP has no use for distances"),
    ],
)
def test_what_cannot_be_is_said(prior, near, error, words):
    with pytest.raises(error, match=words):
        LatentFeatures(prior=prior, n_chains=1, verbose=False).fit(X, **near)


def test_a_file_keeps_it_and_a_run_goes_on(tmp_path):
    prior = DistanceDependentIBP(decay=ExponentialDecay(Gamma(2.0, 2.0)))
    whole = fitted(prior)
    whole.save(tmp_path / "fit.thali")
    again = load(tmp_path / "fit.thali")
    assert same_draws(whole, again)
    assert again.posterior_.model == whole.posterior_.model
    assert np.array_equal(again.transform(X), whole.transform(X))
    kept = LatentFeatures(
        prior=prior, inference=QUICK, n_chains=1, random_state=0, verbose=False, checkpoint=tmp_path / "run",
        max_time=1e-3,
    )  # fmt: skip
    kept.fit(X, times=TIMES)
    assert same_draws(resume(tmp_path / "run", X, max_time=None), whole)


def test_large_distances_are_kept_as_numbers(tmp_path):
    from thali.storage.spec_json import from_json, to_json

    rng = np.random.default_rng(0)
    points = rng.normal(size=(120, 2))
    square = np.linalg.norm(points[:, None] - points, axis=2)
    arrays: dict[str, np.ndarray] = {}
    form = to_json([DistanceDependentIBP(distances=square), DistanceDependentIBP(distances=square)], arrays)
    assert len(str(form)) < 2000
    assert len(arrays) == 1
    assert from_json(form, arrays)[1] == DistanceDependentIBP(distances=square)
    with pytest.raises(InvalidFileError, match="no array"):
        from_json(form, {})


def test_a_function_is_refused_by_save_only(tmp_path):
    fit = fitted(DistanceDependentIBP(decay=lambda d: np.exp(-d)))
    assert same_draws(fit, fitted(DistanceDependentIBP(decay=ExponentialDecay(1.0))))
    with pytest.raises(InvalidFileError, match=r"no functions.*ExponentialDecay"):
        fit.save(tmp_path / "fit.thali")


def test_a_damaged_state_is_seen():
    """Links that do not lead to the bits."""
    from thali.core.model import Model
    from thali.core.protocols.engines.chains import ChainRows
    from thali.inference.calibration.noise_floor import calibrate
    from thali.rng import make_generator

    model = calibrate(Model(DistanceDependentIBP.from_times(TIMES), LinearGaussian()), X)
    data = model.observation.engine(ChainRows).prepare(X)
    rng = make_generator(0)
    state = DistanceDependentGibbs(n_warmup=2).init(rng, model, data, N_ROWS)
    QUICK.check_sound(state, data, N_ROWS)
    wrong = state.links.copy()
    on = np.argwhere((wrong >= 0) & (wrong != np.arange(N_ROWS)))[0]
    for value in (-1, N_ROWS, int(on[1])):
        wrong[*on] = value
        with pytest.raises(ValueError, match="its links"):
            QUICK.check_sound(state._replace(links=wrong), data, N_ROWS)


def test_new_rows_are_seen_by_their_neighbours():
    fit = fitted(inference=DistanceDependentGibbs(n_warmup=30, n_draws=20))
    blank = np.full((3, X.shape[1]), np.nan)
    middle = fit.transform(blank, times=TIMES[[4, 20, 36]] + 0.01)
    near = fit.transform(blank, distances=np.abs(np.subtract.outer(TIMES[[4, 20, 36]] + 0.01, TIMES)))
    assert np.allclose(middle, near)
    assert np.allclose(middle.argmax(axis=1), fit.transform(X)[[4, 20, 36]].argmax(axis=1))
    assert np.array_equal(fit.transform(X), fit.transform(X, times=TIMES))  # fitted rows have bits of their own
    filled = fit.impute(blank, times=TIMES[[4, 20, 36]])
    assert np.corrcoef(filled.ravel(), fit.impute(X)[[4, 20, 36]].ravel())[0, 1] > 0.9
    here, there = (fit.score_samples(X[:2] + 0.01, times=times).sum() for times in (TIMES[:2], [19.0, 19.5]))
    assert here > there
    with pytest.raises(InvalidDataError, match=r"New rows must say how far"):
        fit.transform(blank)
    with pytest.raises(InvalidDataError, match=r"each of the 3 rows\. Got 2"):
        fit.transform(blank, times=[0.0, 1.0])
    with pytest.raises(InvalidParameterError, match="fitted rows have times"):
        fit.transform(blank, coordinates=[[0.0], [1.0], [2.0]])


def test_new_rows_are_drawn_by_their_neighbours():
    """The mean of rows drawn at a time is that of the features near it, and none are drawn without distances."""
    fit = fitted(inference=DistanceDependentGibbs(n_warmup=30, n_draws=20))
    at = TIMES[[4, 20, 36]] + 0.01
    drawn = fit.sample(900, random_state=1, times=np.repeat(at, 300)).reshape(3, 300, -1)
    expected = fit.impute(np.full((3, X.shape[1]), np.nan), times=at)
    spread = drawn.std(axis=1) / np.sqrt(300)
    assert np.abs((drawn.mean(axis=1) - expected) / spread).max() < 5
    assert np.array_equal(fit.sample(1, random_state=1, times=at[:1]), fit.sample(1, random_state=1, times=at[:1]))
    with pytest.raises(InvalidDataError, match="how far they are"):
        fit.sample(1)
    with pytest.raises(InvalidDataError, match="for each of the 2 rows"):
        fit.sample(2, times=at)


def test_novelty_depends_on_where_a_row_is():
    """A row with an unknown feature is new wherever it is; one with features that are far off may well be."""
    fit = fitted(inference=DistanceDependentGibbs(n_warmup=30, n_draws=20))
    early = fit.inverse_transform(fit.transform(X))[[4]]
    near, strange = fit.novelty(early, times=[TIMES[4]])[0], fit.novelty(early + 4.0, times=[TIMES[4]])[0]
    assert strange > 0.9
    assert near < 0.5 < strange
    assert fit.novelty(early, times=[TIMES[4] + 1e6])[0] > near
    assert fit.score(early, times=[TIMES[4]]) > fit.score(early, times=[TIMES[36]])
    with pytest.raises(InvalidDataError, match="how far they are"):
        fit.novelty(early)
