"""Fits whose rows follow groups: what the user gives, what is said, kept and gone on with."""

import numpy as np
import pytest

from thali import (
    ExponentialDecay,
    FactorAnalysis,
    Gamma,
    HierarchicalBetaProcess,
    HierarchicalGibbs,
    IncompatibleModelError,
    InvalidDataError,
    InvalidParameterError,
    LatentFeatures,
    LinearGaussian,
    SparseFactorAnalysis,
    load,
    resume,
)
from thali.priors.proximity.group_hypers import draw_unseen, expected_above
from thali.rng import make_generator
from thali.running.choose import choose
from thali.testing.zscores import z_limit, z_scores

N_ROWS = 40
TIMES = np.arange(N_ROWS) * 0.5
QUICK = HierarchicalGibbs(n_warmup=3, n_draws=4)
DECAY = ExponentialDecay(0.3)


def stretches(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X with some missing cells, X without noise, Z): three features, each on for a stretch of time."""
    rng = np.random.default_rng(seed)
    Z = np.zeros((N_ROWS, 3))
    for k, (first, last) in enumerate([(0, 18), (10, 30), (24, 40)]):
        Z[first:last, k] = 1
    signal = Z @ rng.normal(size=(3, 6)) * 2
    X = signal + 0.3 * rng.normal(size=(N_ROWS, 6))
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, signal, Z


X, SIGNAL, Z = stretches()
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def prior_of(mixing: str = "row", **changes) -> HierarchicalBetaProcess:
    settings = {"decay": DECAY, "group_concentration": Gamma(2.0, 2.0)} | changes
    return HierarchicalBetaProcess(mixing=mixing, **settings)


def fitted(prior=None, inference=QUICK, observation=None, **near) -> LatentFeatures:
    near = near or {"times": TIMES}
    prior = prior_of() if prior is None else prior
    model = LatentFeatures(observation, prior, inference, n_chains=1, n_jobs=1, random_state=0, verbose=False)
    return model.fit(X, **near)


def same_draws(a: LatentFeatures, b: LatentFeatures) -> bool:
    return np.array_equal(a.history_["log_joint"], b.history_["log_joint"]) and all(
        np.array_equal(a.posterior_.Z(0, i), b.posterior_.Z(0, i)) for i in range(a.posterior_.n_draws)
    )


@pytest.mark.parametrize("mixing", ["row", "feature"])
def test_features_of_stretches_are_found(mixing):
    fit = fitted(prior_of(mixing), HierarchicalGibbs(n_warmup=30, n_draws=30))
    assert fit.posterior_.k == 3
    signal = fit.inverse_transform(fit.transform(X))
    assert np.sqrt(np.mean((signal - SIGNAL) ** 2)) < 0.2
    assert np.isfinite(fit.impute(X)).all()


def test_all_ways_to_say_what_is_near_agree():
    square = np.abs(np.subtract.outer(TIMES, TIMES))
    by_hand = np.exp(-0.3 * square)
    fits = [
        fitted(times=TIMES),
        fitted(coordinates=TIMES[:, None]),
        fitted(distances=square),
        fitted(prior_of(distances=square), times=None),
        fitted(HierarchicalBetaProcess.from_distances(square, DECAY, group_concentration=Gamma(2.0, 2.0)), times=None),
    ]
    assert all(same_draws(fits[0], fit) for fit in fits[1:])
    weights = by_hand / by_hand.sum(axis=1, keepdims=True)
    found = fitted(HierarchicalBetaProcess(weights=weights), times=None)
    assert found.posterior_.n_rows == N_ROWS


def test_auto_picks_it():
    found = choose("auto", prior_of().with_distances(np.zeros((5, 5))), LinearGaussian(), 5, 2)
    assert isinstance(found.inference, HierarchicalGibbs)


WEIGHTED = HierarchicalBetaProcess(weights=np.full((N_ROWS, 2), 0.5))


@pytest.mark.parametrize(
    ("prior", "near", "error", "words"),
    [
        (prior_of(), {"times": None}, InvalidParameterError, r"needs weights.*fit\(X, times="),
        (prior_of(), {"times": TIMES[:5]}, InvalidDataError, "those of 5 rows.*Got 40"),
        (prior_of(sequential=True), {"times": -TIMES}, InvalidParameterError, "Sort the rows"),
        (WEIGHTED, {"times": TIMES}, InvalidParameterError, "prior has weights.*Leave one"),
        (HierarchicalBetaProcess(weights=np.eye(5)), {"times": None}, InvalidDataError, "those of 5 rows.*Got 40"),
    ],
)
def test_what_cannot_be_is_said(prior, near, error, words):
    with pytest.raises(error, match=words):
        LatentFeatures(prior=prior, n_chains=1, verbose=False).fit(X, **near)


def test_parameters_that_cannot_be_are_refused():
    with pytest.raises(InvalidParameterError, match="does not learn its decay"):
        prior_of(decay=ExponentialDecay(Gamma(2.0, 2.0)))
    with pytest.raises(InvalidParameterError, match="Got both"):
        HierarchicalBetaProcess(weights=np.eye(2), distances=np.zeros((2, 2)))
    with pytest.raises(IncompatibleModelError, match=r"Inference that fits .*: none yet"):
        fitted(observation=SparseFactorAnalysis(sparse="rows"))


@pytest.mark.parametrize("mixing", ["row", "feature"])
def test_new_rows_have_the_features_of_those_near_them(mixing):
    fit = fitted(prior_of(mixing), HierarchicalGibbs(n_warmup=20, n_draws=10))
    chances, _ = fit.posterior_.concrete(0, 0).prior.new_row_chances(
        np.abs(TIMES[[2, 38], None] - TIMES), fit.posterior_.bits(0, 0)
    )
    early, late = (
        int(np.argmax([np.mean(fit.posterior_.bits(0, 0)[:, j] == Z[:, k]) for j in range(chances.shape[1])]))
        for k in (0, 2)
    )
    assert chances[0, early] > chances[1, early] + 0.2
    assert chances[1, late] > chances[0, late] + 0.2
    new = np.where(np.isnan(X), 0.0, X)[[2, 38]] + 0.01
    with pytest.raises(InvalidDataError, match="must say how far they are"):
        fit.transform(new)
    assert fit.transform(new, times=TIMES[[2, 38]]).shape[0] == 2
    assert np.isfinite(fit.score_samples(new, times=TIMES[[2, 38]])).all()


def test_weights_say_nothing_of_new_rows():
    fit = fitted(WEIGHTED, times=None)
    with pytest.raises(InvalidParameterError, match="weights, which say nothing of rows"):
        fit.transform(X[:2] + 1.0, times=TIMES[:2])


@pytest.mark.parametrize("mixing", ["row", "feature"])
def test_new_row_chances_are_those_of_the_prior(mixing, rng):
    """The last row of draws of the prior, given the others: whose features it has, and how many are its own alone."""
    times = np.arange(4.0)
    near = {"decay": DECAY, "sequential": True, "mixing": mixing}
    whole = HierarchicalBetaProcess.from_distances(np.abs(np.subtract.outer(times, times)), mass=1.5, **near)
    known = HierarchicalBetaProcess.from_distances(np.abs(np.subtract.outer(times[:3], times[:3])), mass=1.5, **near)
    gaps = []
    for _ in range(60):
        drawn = whole.simulate(rng, 4)
        old = drawn[:3].any(axis=0)
        chance, rate = known.new_row_chances(np.abs(times[3:] - times[None, :3]), drawn[:3, old])
        gaps.append([drawn[3, old].sum() - chance.sum(), drawn[3, ~old].sum() - rate[0]])
    assert np.abs(z_scores(np.array(gaps), np.zeros(2))).max() < z_limit(2)


@pytest.mark.parametrize("observation", [LinearGaussian(), FactorAnalysis(noise_floor=0.1)], ids=["bits", "factors"])
def test_a_file_keeps_it_and_a_run_goes_on(observation, tmp_path):
    whole = fitted(observation=observation)
    whole.save(tmp_path / "fit.thali")
    again = load(tmp_path / "fit.thali")
    assert same_draws(whole, again)
    assert again.posterior_.model == whole.posterior_.model
    kept = LatentFeatures(
        observation, prior_of(), QUICK, n_chains=1, n_jobs=1, random_state=0, verbose=False,
        checkpoint=tmp_path / "run", max_time=1e-3,
    )  # fmt: skip
    kept.fit(X, times=TIMES)
    assert kept.stopped_by_ == "max_time"
    assert same_draws(resume(tmp_path / "run", X, max_time=None), whole)


def test_expected_features_above_and_below_a_cut(rng):
    """Those that some row has, and those that none has, are all there might be."""
    prior = HierarchicalBetaProcess(1.2, 2.0, 0.7, np.array([[0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]), "feature")
    found = float(prior.assignments.probability @ prior.total_rates)
    numbers = np.array([[len(draw_unseen(rng, prior, 0.25).p)] for _ in range(3000)], dtype=float)
    wanted = 1.2 * expected_above(2.0, 0.25, 3) - found
    assert abs(z_scores(numbers, np.array([wanted]))[0]) < z_limit(1)


@pytest.mark.parametrize(("c0", "cut"), [(2.0, 0.1), (0.3, 0.01), (500.0, 0.2), (1.0, 0.5)])
def test_expected_above_equals_quadrature(c0, cut):
    from scipy.integrate import quad

    above = quad(lambda p: c0 * (1 - p) ** (c0 - 1) / p, cut, 1, epsabs=1e-12, limit=200)[0]
    assert expected_above(c0, cut, 4) == pytest.approx(above + 4 * (1 - (1 - cut) ** c0), rel=1e-7)


@pytest.mark.parametrize("n_rows", [3, 40, 700])
def test_few_nodes_are_enough(n_rows):
    """Against the sum over rows that might be the first to have a feature, by as many nodes as are exact."""
    from thali.priors.proximity.group_weights import beta_nodes

    rng, c0, c1 = make_generator(3), 1.7, 0.6
    prior = HierarchicalBetaProcess(1.0, c0, c1, np.full((n_rows, 5), 0.2))
    groups = rng.integers(5, size=n_rows)
    p, weights = beta_nodes(c0, n_rows)
    seen, none, total = np.zeros(5), np.ones_like(p), 0.0
    for m in groups:
        total += weights @ (none * c1 / (c1 + seen[m]))
        none *= (c1 * (1 - p) + seen[m]) / (c1 + seen[m])
        seen[m] += 1
    assert prior.expected_found(groups) == pytest.approx(total, rel=1e-9)


def test_hostile_marks_are_found(tmp_path):
    from thali.core.model import Model
    from thali.core.protocols.engines.chains import ChainRows

    prior = prior_of(distances=np.abs(np.subtract.outer(TIMES, TIMES)))
    model = Model(prior, LinearGaussian(noise_var=0.1, feature_var=4.0))
    data = model.observation.engine(ChainRows).prepare(X)
    state = HierarchicalGibbs(start=Z).init(make_generator(0), model, data, N_ROWS)
    QUICK.check_sound(state, data, N_ROWS)
    groups, sizes = state.marks
    for wrong in (
        {"groups": groups[:-1]}, {"groups": groups + 1000}, {"groups": groups.astype(float)}, {"groups": -1 - groups},
        {"sizes": sizes[:-1]}, {"sizes": sizes + 1.0}, {"sizes": np.full_like(sizes, np.nan)},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="groups are those of other bits"):
            QUICK.check_sound(state._replace(marks=state.marks._replace(**wrong)), data, N_ROWS)
    with pytest.raises(ValueError, match="another sampler"):
        QUICK.check_sound(state.local, data, N_ROWS)
