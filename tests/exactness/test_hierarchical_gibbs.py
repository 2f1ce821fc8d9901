"""HierarchicalGibbs leaves the posterior as it is: moves of groups, sizes and hyperparameters on draws of the prior
alone, whole steps on draws of model and data, chains against enumeration, calibration; and mistakes that must be seen.
"""

import numpy as np
import pytest

from thali import (
    FactorAnalysis,
    Gamma,
    HierarchicalBetaProcess,
    HierarchicalGibbs,
    InverseGamma,
    LinearGaussian,
    LogNormal,
    PoissonGamma,
)
from thali.core.model import Model
from thali.kernels.groups import group_draws as kernels
from thali.priors.proximity import group_draws, group_hypers
from thali.rng import make_generator
from thali.testing.enumerate import compare_with_exact
from thali.testing.geweke import geweke
from thali.testing.sbc import sbc
from thali.testing.zscores import z_limit, z_scores

MIXINGS = ["row", "feature"]
WEIGHTS = np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.5, 0.5, 0.0], [0.1, 0.8, 0.1]])
X = np.array([[1.9, -1.3], [1.4, 2.1], [0.3, 0.5]])
GAUSSIAN = LinearGaussian(noise_var=0.5, feature_var=1.5)


def learning(mixing: str, n_rows: int = 4) -> HierarchicalBetaProcess:
    return HierarchicalBetaProcess(Gamma(4.0, 4.0), Gamma(4.0, 3.0), LogNormal(-0.3, 0.5), WEIGHTS[:n_rows], mixing)


def plentiful(mixing: str) -> HierarchicalBetaProcess:
    """With more to say of hyperparameters."""
    return HierarchicalBetaProcess(Gamma(16.0, 4.0), Gamma(4.0, 2.0), LogNormal(-1.0, 1.0), WEIGHTS, mixing)


def fixed(mixing: str, n_rows: int) -> HierarchicalBetaProcess:
    return HierarchicalBetaProcess(0.6, 1.5, 0.6, WEIGHTS[:n_rows], mixing)


# ---- the prior alone: bits, groups, sizes and hyperparameters from their exact law, then one move


def quantities(prior, Z, marks) -> dict[str, float]:
    groups = np.broadcast_to(marks.groups, Z.shape) if Z.shape[1] else np.zeros((len(Z), 0))
    p, odds = marks.sizes, np.log(marks.sizes) - np.log1p(-marks.sizes)
    shared, together = Z[0] & Z[1], groups[0] == groups[1]
    found = {
        "sizes": p.sum(), "squares": (p**2).sum(), "odds": odds.sum(), "sizes x ones": float(p @ Z.sum(axis=0)),
        "mass": np.log(prior.mass), "concentration": np.log(prior.concentration), "K x mass": len(p) * prior.mass,
        "group concentration": np.log(prior.group_concentration),
        "sizes x concentration": p.sum() * prior.concentration,
        "shared x group concentration": shared.sum() * np.log(prior.group_concentration),
        "mass x concentration": prior.mass * prior.concentration,
    }  # fmt: skip
    for m in range(3):
        found[f"group {m}"] = (marks.groups == m).mean() if marks.groups.size else 0.0
        found[f"ones in group {m}"] = float((Z * (groups == m)).sum())
    found["together"] = float(together.mean()) if len(p) else 0.0
    found["together and shared"] = float((shared & together).sum())
    found["together and not shared"] = float(((Z[0] != Z[1]) & together).sum())
    found["together x mass"] = found["together"] * prior.mass
    same = groups[:, None] == groups[None]
    unlike = float((same & (Z[:, None] != Z[None])).sum())
    found["unlike x group concentration"] = unlike * np.log(prior.group_concentration)
    found["share of unlike x group concentration"] = unlike / (1 + same.sum()) * np.log(prior.group_concentration)
    return found


def scores(spec, rng, n: int, move) -> dict[str, float]:
    before, after = [], []
    for _ in range(n):
        prior = spec.draw(rng)
        Z = prior.simulate(rng, 4)
        marks = prior.begin_marks(rng, Z)
        before.append(quantities(prior, Z, marks))
        after.append(quantities(*move(rng, spec, prior, Z, marks)))
    names = list(before[0])
    change = np.array([[b[name] - a[name] for name in names] for a, b in zip(before, after, strict=True)])
    return dict(zip(names, z_scores(change, np.zeros(len(names))), strict=True))


def marks_move(rng, spec, prior, Z, marks):
    return prior, Z, prior.redraw_marks(rng, Z, marks)


def hyper_move(rng, spec, prior, Z, marks):
    return spec.resample_grouped(rng, prior, Z, marks), Z, marks


MOVES = {"marks": marks_move, "hyperparameters": hyper_move}


def check_moves(mixing: str, name: str, n: int) -> None:
    spec = learning(mixing) if name == "marks" else plentiful(mixing)
    found = scores(spec, make_generator(4), n, MOVES[name])
    assert max(map(abs, found.values())) < z_limit(len(found)), found


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("mixing", MIXINGS)
def test_moves_keep_the_prior(mixing, name):
    check_moves(mixing, name, 1_500)


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("mixing", MIXINGS)
def test_moves_keep_the_prior_long(mixing, name):
    check_moves(mixing, name, 10_000)


def no_void(monkeypatch):
    """Rows go where they like whatever that says of features that no row has."""
    right = kernels.row_groups

    def row_groups(Z, groups, seen, held, p, c1, starts, targets, log_probs, mass, *rest):
        right(Z, groups, seen, held, p, c1, starts, targets, log_probs, 0.0, *rest)

    monkeypatch.setattr(kernels, "row_groups", row_groups)


def no_bits(monkeypatch):
    """Groups as if nobody had a feature."""
    right = kernels.feature_groups

    def feature_groups(Z, groups, seen, held, *rest):
        right(0 * Z, groups, seen, 0.0 * held, *rest)

    monkeypatch.setattr(kernels, "feature_groups", feature_groups)


def no_tables(monkeypatch):
    """Sizes as if every row had a table of its own."""
    monkeypatch.setattr(group_draws, "_draw_tables", lambda rng, amount, customers: customers.sum(axis=1))


def used_only(monkeypatch):
    """The number of features as if all that might be were found."""
    right = group_hypers.expected_above
    monkeypatch.setattr(group_hypers, "expected_above", lambda c0, cut, n_rows: 0.5 * right(c0, cut, n_rows))


def none_rejected(monkeypatch):
    """Unused features above the cut do not count."""

    def draw_unseen(rng, prior, cut):
        unseen = right(rng, prior, cut)
        n = len(unseen.unused.seen)
        none = group_hypers.Urns(*(part[:0] for part in unseen.unused))
        return unseen._replace(p=unseen.p[n:], unused=none)

    right = group_hypers.draw_unseen
    monkeypatch.setattr(group_hypers, "draw_unseen", draw_unseen)


def no_urns(monkeypatch):
    """The group concentration knows only of how many features there are."""
    monkeypatch.setattr(group_hypers._Law, "log_groups", lambda self, current: 0.0)


def all_found(monkeypatch):
    """As many features are expected of all rows as of one."""
    monkeypatch.setattr(HierarchicalBetaProcess, "expected_found", lambda self, groups: 1.0)


MISTAKES = [
    (no_void, "row", "marks"), (no_bits, "feature", "marks"), (no_tables, "row", "marks"),
    (used_only, "feature", "hyperparameters"), (no_urns, "row", "hyperparameters"),
    *(
        pytest.param(*parts, marks=pytest.mark.slow)
        for parts in (
            (no_tables, "feature", "marks"), (none_rejected, "feature", "hyperparameters"),
            (no_urns, "feature", "hyperparameters"), (all_found, "row", "hyperparameters"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "mixing", "name"), MISTAKES, ids=lambda it: getattr(it, "__name__", it))
def test_a_wrong_move_is_seen(mistake, mixing, name, monkeypatch):
    mistake(monkeypatch)
    spec = learning(mixing) if name == "marks" else plentiful(mixing)
    if mistake is no_void:
        spec = spec.replace(mass=4.0, concentration=1.0, group_concentration=0.3)
    found = scores(spec, make_generator(4), 1_500, MOVES[name])
    assert max(map(abs, found.values())) > z_limit(len(found)), found


# ---- whole steps


class Twice(HierarchicalGibbs):
    """Two steps, so that bits are drawn given groups that have moved."""

    def step(self, rng, state, model, data):
        state, _ = super().step(rng, state, model, data)
        return super().step(rng, state, model, data)


OBSERVATIONS = {
    "gaussian": LinearGaussian(noise_var=InverseGamma(6.0, 2.0), feature_var=1.5),
    "factors": FactorAnalysis(noise_var=0.5, feature_var=1.5, offset=None, noise_floor=0.0),
    "counts": PoissonGamma(weight_shape=1.0, weight_rate=1.0, feature_shape=1.0, feature_rate=1.0),
}


def whole_step(mixing: str, which: str, n: int, hidden: bool, seed: int = 1):
    missing = np.zeros((4, 2), dtype=bool)
    missing[1, 0] = missing[3, 1] = hidden
    return geweke(
        Model(learning(mixing), OBSERVATIONS[which]), Twice(), make_generator(seed), n_rows=4, n_dims=2, n_replicates=n,
        missing=missing if hidden else None,
    )  # fmt: skip


@pytest.mark.parametrize("mixing", MIXINGS)
def test_a_whole_step_keeps_the_joint_distribution(mixing):
    result = whole_step(mixing, "gaussian", 300, True)
    assert result.passed, result.worst


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("which", OBSERVATIONS)
@pytest.mark.parametrize("mixing", MIXINGS)
def test_a_whole_step_keeps_the_joint_distribution_long(mixing, which, hidden):
    result = whole_step(mixing, which, 6_000, hidden)
    assert result.passed, result.worst


def common_weights(monkeypatch):
    """Bits by the sizes of features, whatever the group."""
    right = HierarchicalBetaProcess.draw_slice

    def draw_slice(self, rng, Z, marks):
        found = right(self, rng, Z, marks)
        return found._replace(chances=np.tile(found.marks.sizes, (len(found.chances), 1)))

    monkeypatch.setattr(HierarchicalBetaProcess, "draw_slice", draw_slice)


def all_unused(monkeypatch):
    """Features above the slice are not thinned by those that some row would have had."""
    monkeypatch.setattr(group_draws, "log_urns", lambda p, c1, urns: np.zeros(len(p)))


def high_slice(monkeypatch):
    """A slice that is not below the smallest size in use."""
    right = group_draws.draw_unused

    def draw_unused(rng, prior, level, groups):
        return right(rng, prior, level**0.5, groups)

    monkeypatch.setattr(group_draws, "draw_unused", draw_unused)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [common_weights, all_unused, high_slice], ids=lambda it: it.__name__)
@pytest.mark.parametrize("mixing", MIXINGS)
def test_a_wrong_slice_is_seen(mixing, mistake, monkeypatch):
    mistake(monkeypatch)
    result = whole_step(mixing, "gaussian", 3_000, False)
    assert not result.passed, result.worst


# ---- chains against enumeration


@pytest.mark.parametrize("mixing", MIXINGS)
def test_chains_have_the_exact_posterior(mixing):
    model = Model(fixed(mixing, 2), GAUSSIAN)
    found = compare_with_exact(
        model, HierarchicalGibbs(n_warmup=0, start="empty"), X[:2], make_generator(3), n_chains=20, n_steps=100
    )
    assert max(map(abs, found.values())) < z_limit(len(found)), found


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [2, 3])
@pytest.mark.parametrize("mixing", MIXINGS)
def test_chains_have_the_exact_posterior_long(mixing, n_rows):
    model = Model(fixed(mixing, n_rows), GAUSSIAN)
    found = compare_with_exact(
        model, HierarchicalGibbs(n_warmup=0, start="empty"), X[:n_rows], make_generator(3), n_chains=40, n_steps=2000,
        max_features=8 if n_rows == 2 else 6,
    )  # fmt: skip
    assert max(map(abs, found.values())) < z_limit(len(found)), found


@pytest.mark.slow
@pytest.mark.parametrize("mixing", MIXINGS)
def test_a_flat_likelihood_keeps_the_prior(mixing):
    model = Model(fixed(mixing, 3), LinearGaussian(noise_var=1e12, feature_var=1.0))
    found = compare_with_exact(
        model, HierarchicalGibbs(n_warmup=0, start="empty"), X, make_generator(5), n_chains=40, n_steps=2000,
        max_features=6,
    )  # fmt: skip
    assert max(map(abs, found.values())) < z_limit(len(found)), found


@pytest.mark.slow
@pytest.mark.parametrize("mixing", MIXINGS)
def test_it_is_calibrated(mixing):
    model = Model(learning(mixing), OBSERVATIONS["gaussian"])
    result = sbc(
        model, HierarchicalGibbs(n_warmup=20), make_generator(2), n_rows=4, n_replicates=300, n_draws=15, n_warmup=60
    )
    assert {"mass", "concentration", "group_concentration"} <= result.p_values.keys()
    assert result.passed(), result.p_values
