"""Variational weights whose features change places or grow in number, and those of the IBP."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import betaln, gammaln, logsumexp

from thali import IBP, Beta, BetaBernoulli, BetaProcess, Gamma, InvalidParameterError, StickBreakingIBP
from thali.core.protocols.prior import AdaptiveWeights, VariationalWeights
from thali.numerics.series import log_beta_moment, series_nodes, sum_series
from thali.priors.beta_process import atoms
from thali.priors.sticks import weights as _stick_weights

N_ROWS = 6
COUNTS = np.array([4.0, 3.0, 1.0])  # of bits, so that the evidence is known
GROWING = {
    "sticks": StickBreakingIBP(mass=1.7),
    "sticks, exact": StickBreakingIBP(mass=1.7, log_complement="exact"),
    "beta process": BetaProcess(mass=1.4, concentration=2.2, rounds=3),
    "beta process, ordered": BetaProcess(mass=1.4, concentration=2.2, rounds=3, round_penalty="exact"),
    "IBP": IBP(mass=1.7),
    "IBP, two parameters": IBP(mass=1.4, concentration=2.2),
}
LEARNED = {
    "sticks": StickBreakingIBP(mass=Gamma(2.0, 1.5)),
    "beta process": BetaProcess(mass=Gamma(2.0, 1.5), concentration=Gamma(1.2, 0.7), rounds=3),
}
EXCHANGEABLE = {
    "finite": BetaBernoulli(mass=Gamma(2.0, 1.5), n_features=3),
    "IBP, two parameters": IBP(mass=Gamma(2.0, 1.5), concentration=2.2),
    **{f"rounds, {penalty}": BetaProcess(rounds=3, round_penalty=penalty) for penalty in ("none", "exact", "markov")},
}


def truncated(prior, n_features):
    """q of so many features, whatever the prior would choose."""
    prior = prior._truncated if isinstance(prior, IBP) else prior
    return (prior if isinstance(prior, BetaBernoulli) else prior.replace(truncation=n_features)).init_weights(N_ROWS)


def passes(prior, q, counts, n_passes=3):
    for _ in range(n_passes):
        q = prior.update_weights(q, counts, N_ROWS)
    return q


def with_zeros(counts, n_features):
    return np.concatenate([counts, np.zeros(n_features - len(counts))])


@pytest.mark.parametrize("prior", [*GROWING.values(), *EXCHANGEABLE.values()])
def test_capabilities(prior):
    assert isinstance(prior, AdaptiveWeights)
    assert isinstance(prior, VariationalWeights)


class TestOrder:
    ORDER = np.array([2, 0, 1])

    @pytest.mark.parametrize("name", EXCHANGEABLE)
    def test_the_bound_of_exchangeable_features_stays(self, name):
        prior = EXCHANGEABLE[name]
        q = passes(prior, truncated(prior, 3), COUNTS)
        moved = prior.reorder_weights(q, self.ORDER)
        bounds = [prior.weights_bound(q, COUNTS, N_ROWS), prior.weights_bound(moved, COUNTS[self.ORDER], N_ROWS)]
        assert bounds[1] == pytest.approx(bounds[0], rel=1e-12)
        assert prior.weights_bound(moved, COUNTS, N_ROWS) < bounds[0] - 0.1  # the counts must go along
        np.testing.assert_allclose(prior.expected_weights(moved), prior.expected_weights(q)[self.ORDER], rtol=1e-12)
        np.testing.assert_allclose(prior.expected_log_odds(moved), prior.expected_log_odds(q)[self.ORDER], rtol=1e-12)

    @pytest.mark.parametrize("name", EXCHANGEABLE)
    def test_there_and_back(self, name):
        prior = EXCHANGEABLE[name]
        q = passes(prior, truncated(prior, 3), COUNTS)
        back = prior.reorder_weights(prior.reorder_weights(q, self.ORDER), np.argsort(self.ORDER))
        for field, wanted in zip(back, q, strict=True):
            np.testing.assert_array_equal(field, wanted)

    def test_sticks_have_an_order(self):
        """The evidence and the bound at its optimum are best with the counts in decreasing order."""
        prior = StickBreakingIBP(mass=1.7, truncation=3)
        found = {}
        for order in itertools.permutations(range(3)):
            counts = COUNTS[list(order)]
            q = passes(prior, prior.init_weights(N_ROWS), counts, 200)
            found[order] = prior.weights_bound(q, counts, N_ROWS)
        assert max(found, key=found.get) == (0, 1, 2)
        assert max(found.values()) - min(found.values()) > 1.0


def log_evidence(prior, counts):
    """log p(Z, number of atoms) of the truncated model, for bits Z with these counts."""
    prior = prior._truncated if isinstance(prior, IBP) else prior
    if isinstance(prior, StickBreakingIBP):
        Z = np.arange(N_ROWS)[:, None] < counts
        return prior.replace(truncation=len(counts)).log_prob(Z.astype(np.uint8))
    n_rounds = prior.init_weights(1).rounds.shape[1]
    columns = [[log_column(prior.concentration, int(m), d) for d in range(1, n_rounds + 1)] for m in counts]
    terms = []
    for rounds in itertools.product(range(n_rounds), repeat=len(counts)):
        factorials = {"none": gammaln(len(counts) + 1), "exact": gammaln(np.bincount(rounds) + 1).sum()}
        placed = len(counts) * math.log(prior.mass) - prior.mass * (max(rounds) + 1)
        terms.append(placed - factorials[prior.round_penalty] + sum(columns[k][d] for k, d in enumerate(rounds)))
    return float(logsumexp(terms))


def log_column(concentration, m, d):
    """log E[w^m (1 - w)^(N_ROWS - m)] of a weight of round d, by its moments."""
    j = np.arange(N_ROWS - m + 1)
    log_choose = gammaln(N_ROWS - m + 1) - gammaln(j + 1) - gammaln(N_ROWS - m - j + 1)
    moments = math.log(concentration) + betaln(1 + m + j, concentration)
    moments += (d - 1) * np.log(concentration / (concentration + m + j))
    return math.log(np.sum((-1.0) ** j * np.exp(log_choose + moments)))


class TestGrowth:
    @pytest.mark.parametrize("name", [name for name in GROWING if "two" not in name])  # too many rounds to enumerate
    def test_a_grown_factor_bounds_the_evidence_of_the_larger_model(self, name):
        """At once and after updates, which make it tight; the bound of the smaller model is not one of the larger."""
        prior = GROWING[name]
        counts = with_zeros(COUNTS, 6)
        small = passes(prior, truncated(prior, 3), COUNTS, 100)
        q = prior.grow_weights(small, 6)
        evidence = log_evidence(prior, counts)
        bounds = [prior.weights_bound(q, counts, N_ROWS)]
        for _ in range(100):
            q = prior.update_weights(q, counts, N_ROWS)
            bounds.append(prior.weights_bound(q, counts, N_ROWS))
        assert np.diff(bounds).min() >= -1e-9 * abs(bounds[0])
        assert bounds[-1] <= evidence
        assert bounds[-1] > evidence - 3.0  # the multinomial bound is the loosest
        assert prior.weights_bound(small, COUNTS, N_ROWS) > evidence

    @pytest.mark.parametrize("name", GROWING)
    def test_the_old_features_keep_their_factors(self, name):
        prior = GROWING[name]
        q = passes(prior, truncated(prior, 3), COUNTS)
        grown = prior.grow_weights(q, 5)
        first = slice(0, 3)
        np.testing.assert_array_equal(prior.expected_weights(grown)[first], prior.expected_weights(q))
        np.testing.assert_allclose(prior.expected_log_odds(grown)[first], prior.expected_log_odds(q), rtol=1e-13)
        assert len(prior.expected_weights(grown)) == 5
        for same, field in zip(prior.grow_weights(q, 3), q, strict=True):
            np.testing.assert_array_equal(same, field)

    @pytest.mark.parametrize("name", ["sticks", "sticks, exact"])
    def test_new_sticks_cost_what_their_absence_costs(self, name):
        """The bound changes by n_rows E log(1 - weight) of the new features alone, since q of new sticks is p."""
        prior = GROWING[name]
        q = passes(prior, truncated(prior, 3), COUNTS)
        grown = prior.grow_weights(q, 5)
        change = prior.weights_bound(grown, with_zeros(COUNTS, 5), N_ROWS) - prior.weights_bound(q, COUNTS, N_ROWS)
        assert change == pytest.approx(N_ROWS * prior._complement(grown.tau)[3:].sum(), rel=1e-9)

    def test_new_atoms_are_the_last_in_order(self):
        prior = BetaProcess(1.4, 2.2, rounds=12)
        q = prior.grow_weights(prior.replace(truncation=4).init_weights(N_ROWS), 9)
        wanted = prior.replace(truncation=9).init_weights(N_ROWS)
        for got, field in zip(q.atoms, wanted.atoms, strict=True):
            np.testing.assert_allclose(got[4:], field[4:], rtol=1e-13)

    @pytest.mark.parametrize("name", LEARNED)
    def test_updates_end_where_no_number_can_be_improved(self, name):
        """Features that no row has, too, are at the optimum: the slopes of the bound vanish."""
        prior = LEARNED[name]
        counts = with_zeros(COUNTS, 5)
        q = passes(prior, prior.grow_weights(passes(prior, truncated(prior, 3), COUNTS), 5), counts, 2000)
        assert np.abs(slopes(prior, q, counts)).max() < 1e-4
        moved = q._replace(mass=q.mass._replace(shape=q.mass.shape * 1.01))
        assert np.abs(slopes(prior, moved, counts)).max() > 1e-3

    def test_what_cannot_grow(self):
        q = BetaBernoulli(n_features=4).init_weights(10)
        assert BetaBernoulli(n_features=4).grow_weights(q, 4) is q
        with pytest.raises(InvalidParameterError, match=r"BetaBernoulli has 4 features.*Got 5"):
            BetaBernoulli(n_features=4).grow_weights(q, 5)
        for prior in (StickBreakingIBP(truncation=4), BetaProcess(truncation=4)):
            with pytest.raises(InvalidParameterError, match=r"truncation=4\) allows no more features. Got 5"):
                prior.grow_weights(prior.init_weights(10), 5)
            with pytest.raises(InvalidParameterError, match="can grow from 4"):
                prior.grow_weights(prior.init_weights(10), 3)
        prior = BetaProcess(round_penalty="exact")
        with pytest.raises(InvalidParameterError, match="at most 500 atoms"):
            prior.grow_weights(prior.init_weights(10), 501)


def slopes(prior, q, counts, step=1e-5):
    """Derivatives of the bound by the logs of all free numbers of q; by logits for the tables of rounds."""
    arrays = ["tau"] if hasattr(q, "tau") else ["a", "b", "u", "v"]
    moves = [
        (name, lambda x, s, i=i: x * np.exp(s * (np.arange(x.size) == i)).reshape(x.shape))
        for name in arrays
        for i in range(getattr(q, name).size)
    ]
    if hasattr(q, "rounds"):
        n_atoms, n_rounds = q.rounds.shape
        moves += [
            ("rounds", lambda x, s, k=k, r=r: tilted(x, k, r, s)) for k in range(n_atoms) for r in range(n_rounds)
        ]
    scalars = ["mass", "concentration"] if hasattr(q, "concentration") else ["mass"]
    for name in scalars:
        moves += [(name, lambda f, s, part=part: f._replace(**{part: getattr(f, part) * math.exp(s)})) for part in
                  ("shape", "rate")]  # fmt: skip
    values = [
        [prior.weights_bound(q._replace(**{name: move(getattr(q, name), s)}), counts, N_ROWS) for s in (step, -step)]
        for name, move in moves
    ]
    return (np.array(values) @ [1, -1]) / (2 * step)


def tilted(rounds, k, r, step):
    rounds = rounds.copy()
    rounds[k, r] *= math.exp(step)
    rounds[k] /= rounds[k].sum()
    return rounds


class TestSticksConverge:
    """From a prior, and after features have changed places or one has gone: the old sticks are then far off."""

    ROWS = 200_000
    COUNTS = np.array([100e3, 88e3, 77e3, 66e3, 54e3, 43e3, 21e3, 9e3, 600.0, 200.0, *[0.0] * 12])
    SWAP = np.array([0, 1, 2, 3, 4, 5, 7, 6, *range(8, 22)])
    DROP = np.array([0, 1, 2, 4, 5, 6, 7, 8, 9, 3, *range(10, 22)])

    def check(self, before, order, after):
        """Five passes with the counts before, a new order, and five passes with the counts after."""
        prior = StickBreakingIBP(mass=1.7, truncation=22)

        def passed(q, counts, n_passes):
            for _ in range(n_passes):
                q = prior.update_weights(q, counts, self.ROWS)
            return q

        moved = prior.reorder_weights(passed(prior.init_weights(self.ROWS), before, 5), order)
        bounds = [prior.weights_bound(passed(moved, after, n), after, self.ROWS) for n in (5, 400)]
        assert bounds[0] > bounds[1] - 0.5

    def test_in_a_few_passes(self):
        self.check(self.COUNTS, np.arange(22), self.COUNTS)
        self.check(self.COUNTS[self.SWAP], self.SWAP, self.COUNTS)
        gone = np.where(np.arange(22) == 3, 0.0, self.COUNTS)
        self.check(self.COUNTS, self.DROP, gone[self.DROP])

    def test_passes_without_acceleration_are_seen(self, monkeypatch):
        monkeypatch.setattr(_stick_weights, "multinomial_ascent", _stick_weights.multinomial_update)
        with pytest.raises(AssertionError):
            self.check(self.COUNTS[self.SWAP], self.SWAP, self.COUNTS)


class TestSeriesOfAtoms:
    """Only the nodes that matter are summed."""

    SHAPES = np.array(
        [
            point
            for a in (0.01, 1.0, 30.0, 1e6)
            for b in (1e-3, 0.5, 20.0, 1e6)
            for u in (1e-3, 1.0, 40.0)
            for v in (0.05, 3.0, 1e5)
            for point in [(a, b, u, v)]
        ]
    ).T

    def whole(self):
        r, _ = series_nodes()
        a, b, u, v = self.SHAPES[:, :, None]
        terms = np.exp(log_beta_moment(a, b, r) - u * np.log1p(r / v) - np.log(r))
        decay = self.SHAPES[1] + self.SHAPES[2]
        by_b = sum_series(terms * (atoms.digamma(a + b) - atoms.digamma(a + b + r)), decay)
        by_b -= terms[:, -1] * r[-1] / decay**2
        return -np.stack([sum_series(terms, decay), by_b])

    def check(self):
        got = atoms.log_rest_gradient(*self.SHAPES)[[0, 2]]
        np.testing.assert_allclose(got, self.whole(), rtol=1e-11)
        np.testing.assert_allclose(atoms.expected_log_rest(*self.SHAPES), self.whole()[0], rtol=1e-12)

    def test_equals_the_whole_sum(self):
        self.check()
        n_nodes = atoms._nodes_in_use(*self.SHAPES)
        assert n_nodes.min() < 20
        assert n_nodes.max() == len(series_nodes()[0])

    def test_an_early_end_is_seen(self, monkeypatch):
        monkeypatch.setattr(atoms, "_NOTHING", 10.0)
        with pytest.raises(AssertionError):
            self.check()


class TestIBP:
    def test_one_parameter_is_broken_sticks(self):
        prior, wanted = IBP(mass=Gamma(2.0, 1.5)), StickBreakingIBP(mass=Gamma(2.0, 1.5))
        self.same(prior, wanted)

    @pytest.mark.parametrize("concentration", [2.5, Gamma(2.0, 1.0)])
    def test_two_parameters_are_a_beta_process(self, concentration):
        self.same(IBP(1.3, concentration), BetaProcess(1.3, concentration))

    def same(self, prior, wanted):
        q, other = prior.init_weights(50), wanted.init_weights(50)
        counts = 50 * 0.5 ** np.arange(1.0, len(wanted.expected_weights(other)) + 1)
        q, other = prior.update_weights(q, counts, 50), wanted.update_weights(other, counts, 50)
        assert type(q) is type(other)
        assert prior.weights_bound(q, counts, 50) == wanted.weights_bound(other, counts, 50)
        np.testing.assert_array_equal(prior.expected_log_odds(q), wanted.expected_log_odds(other))

    @pytest.mark.parametrize("discount", [0.3, Beta(1.0, 1.0)])
    def test_a_discount_is_refused(self, discount):
        with pytest.raises(InvalidParameterError, match=r"one- and two-parameter.*Got discount=.*use 0, or a sampler"):
            IBP(1.0, 1.0, discount).init_weights(10)
