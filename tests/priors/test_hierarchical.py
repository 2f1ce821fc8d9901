"""The dependent hierarchical beta process: against brute force over groups and weights, and its draws."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betaln
from scipy.stats import poisson
from sklearn.base import clone
from thinned import thinned

from thali import IBP, Gamma, InvalidDataError, InvalidParameterError
from thali.priors.proximity.decays import ExponentialDecay, WindowDecay
from thali.priors.proximity.distance_dependent import DistanceDependentIBP
from thali.priors.proximity.distances import Times
from thali.priors.proximity.group_weights import beta_nodes
from thali.priors.proximity.hierarchical import HierarchicalBetaProcess
from thali.testing import check_prior, z_limit
from thali.testing.enumerate import all_classes
from thali.testing.zscores import z_scores

WEIGHTS = np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.5, 0.5, 0.0]])
KNOWN = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # the groups are known: rows 0 and 1 together, 2 alone
MIXINGS = ["row", "feature"]


def example(mixing, weights=WEIGHTS, **changes):
    settings = {"mass": 1.2, "concentration": 2.0, "group_concentration": 3.0} | changes
    return HierarchicalBetaProcess(weights=weights, mixing=mixing, **settings)


# --- probabilities from the definition ------------------------------------------------------------


def brute_rates(prior):
    """{groups: (probability, {history: rate})}: p integrated numerically, p* by beta functions."""
    c0, c1 = prior.concentration, prior.group_concentration
    n_rows, n_groups = prior.weights.shape
    histories = [h for h in itertools.product((0, 1), repeat=n_rows) if any(h)]
    found = {}
    for groups in itertools.product(range(n_groups), repeat=n_rows):
        probability = math.prod(prior.weights[i, m] for i, m in enumerate(groups))
        if probability == 0:
            continue
        rates = {}
        for history in histories:
            sizes = [groups.count(m) for m in set(groups)]
            held = [sum(h for h, g in zip(history, groups, strict=True) if g == m) for m in set(groups)]

            def density(p, sizes=sizes, held=held):
                inner = sum(
                    betaln(c1 * p + s, c1 * (1 - p) + n - s) - betaln(c1 * p, c1 * (1 - p))
                    for n, s in zip(sizes, held, strict=True)
                )
                return prior.mass * c0 / p * (1 - p) ** (c0 - 1) * math.exp(inner)

            rates[history] = quad(density, 0, 1, epsabs=1e-11)[0]
        found[groups] = (probability, rates)
    return found


def check_brute(prior):
    found = brute_rates(prior)
    if prior.mixing == "feature":
        mean = {h: sum(p * rates[h] for p, rates in found.values()) for h in next(iter(found.values()))[1]}
        found = {(): (1.0, mean)}
    for Z in all_classes(prior.n_rows, 2):
        columns, counts = np.unique(Z, axis=1, return_counts=True)
        total = 0.0
        for probability, rates in found.values():
            given = -sum(rates.values())
            for column, n in zip(columns.T, counts, strict=True):
                given += n * math.log(rates[tuple(int(bit) for bit in column)]) - math.lgamma(n + 1)
            total += probability * math.exp(given)
        assert prior.log_prob(Z) == pytest.approx(math.log(total), abs=1e-7)


@pytest.mark.parametrize("mixing", MIXINGS)
def test_log_prob_equals_brute_force(mixing):
    check_brute(example(mixing, WEIGHTS[:, :2] / WEIGHTS[:, :2].sum(axis=1, keepdims=True)))


@pytest.mark.parametrize(("c0", "c1"), [(0.5, 4.0), (6.0, 0.4)])
def test_other_concentrations(c0, c1):
    check_brute(example("row", KNOWN, concentration=c0, group_concentration=c1))


class RowForFeature(HierarchicalBetaProcess):
    """The two mixings taken for each other."""

    def log_prob(self, Z):
        other = {"row": "feature", "feature": "row"}[self.mixing]
        return HierarchicalBetaProcess(
            self.mass, self.concentration, self.group_concentration, self.weights, other
        ).log_prob(Z)


class NoGroups(HierarchicalBetaProcess):
    """p* = p: the concentration of the groups forgotten."""

    def log_prob(self, Z):
        return IBP(mass=self.mass, concentration=self.concentration).log_prob(Z)


class FirstRowWithP(HierarchicalBetaProcess):
    """The intensity without its p^-1."""

    def history_rates(self, has):
        return super().history_rates(has) / (1 + self.concentration)


class SwappedConcentrations(HierarchicalBetaProcess):
    def log_prob(self, Z):
        return HierarchicalBetaProcess(
            self.mass, self.group_concentration, self.concentration, self.weights, self.mixing
        ).log_prob(Z)


@pytest.mark.parametrize(
    "wrong", [RowForFeature, NoGroups, FirstRowWithP, SwappedConcentrations], ids=lambda w: w.__name__
)
def test_brute_force_sees_mutants(wrong):
    weights = WEIGHTS[:, :2] / WEIGHTS[:, :2].sum(axis=1, keepdims=True)
    with pytest.raises(AssertionError):
        check_brute(wrong(1.2, 2.0, 3.0, weights, "row"))


@pytest.mark.parametrize("mixing", MIXINGS)
def test_classes_sum_to_one_within_the_poisson_tail(mixing):
    """All classes with at most 4 features: the number of features is Poisson given the groups."""
    prior = example(mixing)
    total = sum(math.exp(prior.log_prob(Z)) for Z in all_classes(3, 4))
    if mixing == "row":
        wanted = float(prior.assignments.probability @ poisson.cdf(4, prior.total_rates))
    else:
        wanted = float(poisson.cdf(4, prior.assignments.probability @ prior.total_rates))
    assert total == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("mixing", ["row", pytest.param("feature", marks=pytest.mark.slow)])
def test_contract(mixing, rng):
    check_prior(example(mixing), rng, n_draws=3000)


# --- moments --------------------------------------------------------------------------------------


def test_golden_shared():
    """G18."""
    by_row = example("row", WEIGHTS[:2], mass=4.0)
    assert by_row.expected_shared()[0, 1] == pytest.approx(1.5066666667, rel=1e-9)
    assert by_row.shared_variance()[0, 1] == pytest.approx(1.5921777778, rel=1e-9)
    assert by_row.replace(mixing="feature").shared_variance()[0, 1] == pytest.approx(1.5066666667, rel=1e-9)
    known = example("row", KNOWN, mass=4.0).expected_shared()
    assert known[0, 1] == pytest.approx(2.0)
    assert known[0, 2] == pytest.approx(1.3333333333, rel=1e-9)
    np.testing.assert_allclose(np.diagonal(known), 4.0)


@pytest.mark.parametrize("mixing", MIXINGS)
def test_expected_shared_follows_from_log_prob(mixing):
    """E R_ij and Var R_ij by sums over the classes of two rows, all but a tail of 1e-6 of them."""
    prior = example(mixing, WEIGHTS[:2], mass=0.6)
    moments = np.zeros(3)
    for Z in all_classes(2, 14):
        both = float((Z[0] & Z[1]).sum())
        moments += math.exp(prior.log_prob(Z)) * np.array([1.0, both, both**2])
    assert moments[0] == pytest.approx(1.0, abs=1e-9)
    assert moments[1] == pytest.approx(prior.expected_shared()[0, 1], abs=1e-7)
    assert moments[2] - moments[1] ** 2 == pytest.approx(prior.shared_variance()[0, 1], abs=1e-7)


def shared_scores(draws, mean, variance):
    """z-scores of the mean and variance of each R_ij, i >= j."""
    i, j = np.tril_indices(len(mean))
    R = np.array([Z.astype(float) @ Z.T for Z in draws])[:, i, j]
    return z_scores(np.hstack([R, (R - mean[i, j]) ** 2]), np.concatenate([mean[i, j], variance[i, j]]))


@pytest.mark.parametrize("mixing", thinned(MIXINGS, "row"))
def test_shared_features_of_draws(mixing, rng):
    """Proposition 3 with the groups summed out: 20 statistics of four rows."""
    weights = np.vstack([WEIGHTS, [0.1, 0.1, 0.8]])
    prior = example(mixing, weights, mass=3.0, concentration=1.0, group_concentration=0.3)
    draws = [prior.simulate(rng, 4) for _ in range(2000)]
    z = shared_scores(draws, prior.expected_shared(), prior.shared_variance())
    assert len(z) == 20
    assert np.abs(z).max() <= z_limit(len(z)), z


def test_shared_features_see_mutants(rng):
    """The variance of the other mixing, and the mean of rows in different groups for all."""
    prior = example("row", WEIGHTS, mass=30.0, concentration=1.0, group_concentration=0.3)
    draws = [prior.simulate(rng, 3) for _ in range(1500)]
    mean, poisson_variance = prior.expected_shared(), prior.replace(mixing="feature").shared_variance()
    assert np.abs(shared_scores(draws, mean, poisson_variance)).max() > z_limit(12)
    apart = np.where(np.eye(3) > 0, mean, prior.mass / (1 + prior.concentration))
    assert np.abs(shared_scores(draws, apart, prior.shared_variance())).max() > z_limit(12)


class PoolsGroups(HierarchicalBetaProcess):
    """Draws as if all rows followed one group."""

    def simulate(self, rng, n_rows):
        one = np.ones((n_rows, 1))
        return HierarchicalBetaProcess(self.mass, self.concentration, self.group_concentration, one).simulate(
            rng, n_rows
        )


class KeepsAllProposals(HierarchicalBetaProcess):
    def propose_first(self, rng, paths, n_groups):
        p, seen, accepted = super().propose_first(rng, paths, n_groups)
        return p, seen, np.ones_like(accepted)


@pytest.mark.parametrize("wrong", [PoolsGroups, KeepsAllProposals], ids=lambda w: w.__name__)
def test_draws_see_mutants(wrong, rng):
    prior = wrong(1.2, 2.0, 0.5, WEIGHTS)
    draws = [prior.simulate(rng, 3) for _ in range(1500)]
    assert np.abs(shared_scores(draws, prior.expected_shared(), prior.shared_variance())).max() > z_limit(12)


@pytest.mark.parametrize("mass", [10.0, 100.0, 1000.0])
def test_shares_settle_as_the_mass_grows(mass, rng):
    """Proposition 4: given the groups R_ij is Binomial(R_i, E R_ij / E R_i), with another share for another group."""
    prior = example("row", KNOWN, mass=mass)
    draws = [prior.simulate(rng, 3) for _ in range(400)]
    for other, share in ((1, 0.5), (2, 1 / 3)):  # (c0 + c1 + 1) / ((c0 + 1)(c1 + 1)), 1 / (c0 + 1)
        own = np.array([float(Z[0].sum()) for Z in draws])
        both = np.array([float((Z[0] & Z[other]).sum()) for Z in draws])
        some = own > 0
        scaled = (both - share * own)[some] / np.sqrt(share * (1 - share) * own[some])
        z = z_scores(np.stack([scaled, scaled**2], axis=1), np.array([0.0, 1.0]))
        assert np.abs(z).max() <= z_limit(2), z


# --- special cases --------------------------------------------------------------------------------


@pytest.mark.parametrize("mixing", MIXINGS)
def test_a_group_for_each_row_is_the_ibp(mixing, rng):
    """With a group of its own a row has p* of mean p and no one to share it: Bernoulli(p), as in the IBP."""
    prior = example(mixing, np.eye(7), mass=1.4, concentration=2.5, group_concentration=0.3)
    ibp = IBP(mass=1.4, concentration=2.5)
    for _ in range(20):
        Z = ibp.simulate(rng, 7)
        assert prior.log_prob(Z) == pytest.approx(ibp.log_prob(Z), abs=1e-9)


@pytest.mark.parametrize("mixing", MIXINGS)
def test_groups_that_do_not_differ_are_the_ibp(mixing, rng):
    """group_concentration -> infinity, to first order in its inverse."""
    ibp = IBP(mass=1.2, concentration=2.0)
    for _ in range(10):
        Z = ibp.simulate(rng, 3)
        near, nearer = (example(mixing, group_concentration=c1).log_prob(Z) - ibp.log_prob(Z) for c1 in (1e3, 1e5))
        assert abs(nearer) < 1e-3
        assert nearer == pytest.approx(near / 100, rel=0.05, abs=1e-9)


@pytest.mark.parametrize("mixing", MIXINGS)
def test_rows_have_no_names(mixing, rng):
    """Rows with the same weights are exchangeable; with others, if the weights move along."""
    prior = example(mixing)
    for _ in range(10):
        Z, order = prior.simulate(rng, 3), rng.permutation(3)
        assert prior.replace(weights=WEIGHTS[order]).log_prob(Z[order]) == pytest.approx(prior.log_prob(Z), abs=1e-10)


def test_quadrature_is_exact():
    """E p^k of Beta(1, c), k <= n_rows, for small and large c."""
    for c in (0.01, 0.5, 1.0, 3.0, 1e6):
        for n_rows in (1, 2, 7, 40):
            nodes, weights = beta_nodes(c, n_rows)
            for k in (0, 1, n_rows // 2, n_rows):
                wanted = math.exp(math.lgamma(k + 1) + math.lgamma(c + 1) - math.lgamma(c + 1 + k))
                assert weights @ nodes**k == pytest.approx(wanted, rel=1e-7)


def test_weights_from_distances(rng):
    by_distance = HierarchicalBetaProcess.from_distances(Times(np.arange(5)), ExponentialDecay(0.5), mass=2.0)
    links = DistanceDependentIBP.from_times(np.arange(5), ExponentialDecay(0.5)).link_probs().toarray()
    np.testing.assert_array_equal(by_distance.group_probs, links)
    ordered = HierarchicalBetaProcess.from_distances(np.ones((4, 4)) - np.eye(4), "constant", sequential=True)
    np.testing.assert_allclose(ordered.group_probs, np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None])
    with pytest.raises(InvalidParameterError, match="Sort the rows"):
        HierarchicalBetaProcess.from_distances(Times([1, 0]), WindowDecay(1.0), sequential=True)
    assert by_distance.simulate(rng, 5).shape[0] == 5


@pytest.mark.parametrize("mixing", MIXINGS)
def test_many_rows(mixing, rng):
    prior = HierarchicalBetaProcess.from_distances(
        Times(np.arange(40)), WindowDecay(3.0), mass=2.0, concentration=2.0, group_concentration=0.5, mixing=mixing
    )
    ones = np.array([prior.simulate(rng, 40).sum(axis=1) for _ in range(150)], dtype=float)
    z = z_scores(ones, np.full(40, 2.0))
    assert np.abs(z).max() <= z_limit(40), z


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize(("c0", "c1"), [(1e-3, 1e-3), (1e6, 1e6), (1e-3, 1e6), (1e6, 1e-3)])
def test_extreme_concentrations(mixing, c0, c1, rng):
    prior = example(mixing, concentration=c0, group_concentration=c1)
    for _ in range(20):
        Z = prior.simulate(rng, 3)
        assert Z.any(axis=0).all()
        assert math.isfinite(prior.log_prob(Z))


# --- the spec, and bad input ----------------------------------------------------------------------


def test_it_is_a_spec(rng):
    prior = HierarchicalBetaProcess(Gamma(2.0, 1.0), Gamma(1.0, 1.0), 3.0, WEIGHTS.tolist())
    assert set(prior.learned) == {"mass", "concentration"}
    for other in (clone(prior), copy.deepcopy(prior), pickle.loads(pickle.dumps(prior))):
        assert other == prior
    assert prior.replace(mixing="feature") != prior
    assert math.isfinite(prior.log_hyper(prior.draw(rng)))
    assert prior.simulate(rng, 3).dtype == np.uint8
    with pytest.raises(InvalidParameterError, match="distribution"):
        prior.log_prob(np.ones((3, 1), dtype=int))
    with pytest.raises(InvalidParameterError, match="distribution"):
        prior.expected_shared()


def test_empty_columns_count_for_nothing():
    prior = example("row")
    Z = np.array([[1, 0], [1, 0], [0, 0]])
    assert prior.log_prob(Z) == prior.log_prob(Z[:, :1])
    assert math.isfinite(prior.log_prob(np.zeros((3, 0), dtype=int)))


BAD = {
    "nothing": (lambda: HierarchicalBetaProcess(1.0).n_rows, "needs weights, a matrix.*Got nothing"),
    "vector": (lambda: HierarchicalBetaProcess(1.0, weights=[0.5, 0.5]), "weights must be a matrix"),
    "ragged": (lambda: HierarchicalBetaProcess(1.0, weights=[[1.0], [0.5, 0.5]]), "weights must be a matrix"),
    "no rows": (lambda: HierarchicalBetaProcess(1.0, weights=np.zeros((0, 2))), "weights must be a matrix"),
    "words": (lambda: HierarchicalBetaProcess(1.0, weights=[["a"]]), "weights must be a matrix"),
    "sums": (lambda: example("row", [[0.5, 0.4]]), "sum to one"),
    "negative": (lambda: example("row", [[1.5, -0.5]]), "zero or more"),
    "NaN": (lambda: example("row", [[np.nan, 1.0]]), "zero or more"),
    "mixing": (lambda: example("column"), "mixing must be one of"),
    "mass": (lambda: example("row", mass=0.0), "mass must be a positive"),
    "concentration": (lambda: example("row", concentration=-1.0), "concentration must be a positive"),
    "group": (lambda: example("row", group_concentration=math.inf), "group_concentration must be a positive"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_parameters_are_refused(name):
    make, words = BAD[name]
    with pytest.raises(InvalidParameterError, match=words):
        make()


def test_wrong_rows_and_too_many_assignments_are_refused(rng):
    with pytest.raises(InvalidParameterError, match=r"those of 3 rows.*Got 4"):
        example("row").simulate(rng, 4)
    with pytest.raises(InvalidDataError, match=r"those of 3 rows.*Got 4"):
        example("row").log_prob(np.ones((4, 1), dtype=int))
    many = example("row", np.full((20, 3), 1 / 3))
    with pytest.raises(InvalidParameterError, match=r"assignments.*3\.49e\+09"):
        many.log_prob(np.ones((20, 1), dtype=int))
