"""The sweeps of linked features leave the exact posterior as it is: all outcomes of the package's own source, with
their probabilities, on two and three rows.

The posterior is that of at most so many features. More are proposed, too, and refused; a refusal is part of the move,
so that the law is exact, and what differs from it by more than rounding is a mistake.
"""

import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from outcomes import outcomes, plain_kernels
from scipy.stats import poisson

from thali import DistanceDependentIBP, ExponentialDecay, LinearGaussian, WindowDecay
from thali.core.protocols.engines.chains import MarginalRows

X = np.array([[1.9, -1.3], [1.4, 2.1], [0.3, 0.5]])
STEPS = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
SKEWED = STEPS + np.where(np.triu(np.ones((3, 3)), 1) > 0, 0.7, 0.0)
NOISE, FEATURE = 1.0, 1.21
FEW_TRIES = ("links/trees.py", "_TRIES = 8", "_TRIES = 1")  # of a draw that does not depend on their number
State = tuple[tuple[int, ...], ...]  # the links of each feature, in the order of the columns
Law = dict[State, float]


def prior(kind: str, n_rows: int, mass: float = 1.3) -> DistanceDependentIBP:
    some = np.ix_(range(n_rows), range(n_rows))
    if kind == "window":
        return DistanceDependentIBP(mass, STEPS[some], WindowDecay(1.0))
    distances = SKEWED if kind == "skewed" else STEPS
    return DistanceDependentIBP(mass, distances[some], ExponentialDecay(1.0), sequential=kind == "ordered")


def features(given: DistanceDependentIBP, n_rows: int) -> dict[tuple[int, ...], float]:
    """Every feature by its links, with its rate: that of the owner, of the links, and of rows that lack it."""
    a, rates = given.link_probs().toarray(), given.owner_rates()
    found: dict[tuple[int, ...], float] = defaultdict(float)
    for owner in range(n_rows):
        for links in itertools.product(range(n_rows), repeat=n_rows):
            if links[owner] != owner:
                continue  # its own link is free
            rate = rates[owner] * np.prod([a[i, j] for i, j in enumerate(links) if i != owner])
            at = np.arange(n_rows)
            for _ in range(n_rows):
                at = np.array(links)[at]
            on = at == owner
            found[tuple(np.where(on, links, -1).tolist())] += float(rate)
    return {links: rate for links, rate in found.items() if rate > 0}


def posterior(given: DistanceDependentIBP, n_rows: int, most: int) -> Law:
    """Of the features in every order, at most so many of them."""
    model = LinearGaussian(noise_var=NOISE, feature_var=FEATURE).engine(MarginalRows)
    rates = features(given, n_rows)
    law: Law = {}
    for K in range(most + 1):
        for state in itertools.product(rates, repeat=K):
            Z = (np.array(state).reshape(K, n_rows) >= 0).T.astype(np.uint8)
            weight = math.prod(rates[links] for links in state) / math.factorial(K)
            law[state] = weight * math.exp(model.log_marginal(X[:n_rows], Z))
    total = sum(law.values())
    return {state: weight / total for state, weight in law.items()}


class Moves:
    """The sweeps, exactly, of plain kernels."""

    def __init__(self, given: DistanceDependentIBP, n_rows: int, most: int, kernels: dict[str, Any]) -> None:
        self.given, self.n_rows, self.most, self.kernels = given, n_rows, most, kernels
        self.graph, self.rows = given.kernel_graph(), np.arange(n_rows)
        self.ridge = NOISE / FEATURE
        self._known: dict[tuple[str, State], Law] = {}

    def _columns(self, state: State) -> Any:
        K, rows = self.most, X[: self.n_rows]
        links = np.full((K, self.n_rows), -1)
        links[: len(state)] = np.array(state).reshape(len(state), self.n_rows)
        Z = np.ascontiguousarray((links >= 0).T.astype(np.uint8))
        dense = Z.astype(float)
        return self.kernels["layout"].Columns(
            rows, Z, links, dense.T @ dense, dense.T @ rows, np.zeros((K, K)), np.zeros((K, rows.shape[1]))
        )

    def _state(self, columns: Any, K: int) -> State:
        assert np.array_equal(columns.Z[:, :K], columns.links[:K].T >= 0)
        return tuple(tuple(links) for links in columns.links[:K].tolist())

    def links(self, state: State) -> Any:
        def run(rng: Any) -> State:
            columns = self._columns(state)
            part, tree = self.kernels["layout"].work_space(columns)
            self.kernels["link_sweep"].link_sweep(
                self.graph, columns, part, tree, len(state), 1, NOISE, self.ridge, rng
            )
            return self._state(columns, len(state))

        return outcomes(run)

    def ownership(self, state: State, jointly: bool) -> Any:
        n_wanted = self.most + 2  # the last stands for all that are more than there is room for
        rates = self.given.owner_rates()
        chance = [np.append(poisson.pmf(range(n_wanted - 1), r), poisson.sf(n_wanted - 2, r)) for r in rates]
        for wanted in itertools.product(range(n_wanted), repeat=self.n_rows):

            def run(rng: Any, wanted: tuple[int, ...] = wanted) -> State:
                columns, spare, K, row = self._columns(state), self._columns(()), len(state), 0
                part, tree = self.kernels["layout"].work_space(columns)
                while row < self.n_rows:
                    owners = np.zeros(self.most, np.int64)
                    owners[:K] = (columns.links[:K] == self.rows).argmax(axis=1) if K else 0
                    K, row, _, _ = self.kernels["ownership"].ownership_sweep(
                        self.graph, columns, spare, part, tree, K, owners, np.array(wanted), jointly, row, NOISE,
                        self.ridge, rng,
                    )  # fmt: skip
                    row += self.n_rows if jointly else 1  # what has no room is refused
                return self._state(columns, K)

            share = math.prod(float(chance[row][number]) for row, number in enumerate(wanted))
            for probability, found in outcomes(run):
                yield share * probability, found

    def _after(self, kind: str, state: State) -> Law:
        if (kind, state) not in self._known:
            law: Law = defaultdict(float)
            for probability, found in self.links(state) if kind == "L" else self.ownership(state, kind == "J"):
                law[found] += probability
            self._known[kind, state] = dict(law)
        return self._known[kind, state]

    def __call__(self, law: Law, kinds: str) -> Law:
        """The law after these moves: L of links, O of ownership by row, J of all rows at once."""
        for kind in kinds:
            after: Law = defaultdict(float)
            for state, weight in law.items():
                for found, probability in self._after(kind, state).items():
                    after[found] += weight * probability
            law = dict(after)
        return law


def unordered(law: Law) -> Law:
    found: Law = defaultdict(float)
    for state, weight in law.items():
        found[tuple(sorted(state))] += weight
    return found


def distance(one: Law, other: Law) -> float:
    """Total variation between two laws of unordered features."""
    a, b = unordered(one), unordered(other)
    return 0.5 * sum(abs(a.get(state, 0.0) - b.get(state, 0.0)) for state in a.keys() | b.keys())


def moved(kind: str, n_rows: int, most: int, kinds: str, *mistakes: tuple[str, str, str]) -> float:
    given = prior(kind, n_rows)
    law = posterior(given, n_rows, most)
    after = Moves(given, n_rows, most, plain_kernels(FEW_TRIES, *mistakes))(law, kinds)
    assert sum(after.values()) == pytest.approx(1.0, abs=1e-12)
    return distance(after, law)


def test_the_composed_sweep_of_two_rows():
    assert moved("symmetric", 2, 2, "OL") < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["L", "O", "J", "JL", "OLOL"])
@pytest.mark.parametrize("kind", ["symmetric", "skewed", "ordered"])
def test_every_move_of_two_rows(kind, kinds):
    assert moved(kind, 2, 2, kinds) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["L", "O", "J", "OLOL"])
@pytest.mark.parametrize("kind", ["symmetric", "skewed", "ordered", "window"])
def test_every_move_of_three_rows(kind, kinds):
    assert moved(kind, 3, 1, kinds) < 1e-12


# new features come last; if the columns are then taken in order, the law depends on labels: by 1e-4, which no
# simulation sees
APPENDED = ("links/link_sweep.py", "k = order[place]", "k = place")
ONE_ROW = ("links/link_sweep.py", "part, K, tree.stack, n_moved, sign, visit)", "part, K, tree.stack, 1, sign, visit)")
BINOMIAL = (
    "links/ownership.py",
    "        # eq: DD.ownership-ratio\n",
    "        gain += math.log(n_born + 1.0) - math.log(n_dead + 1.0)\n",
)
LAST_GOES = ("links/ownership.py", "place = t + int(rng.random() * (n_mine - t))", "place = n_mine - 1 - t")


def test_columns_in_order_are_seen():
    assert 1e-6 < moved("symmetric", 2, 2, "OL", APPENDED) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_rows", "most", "kinds", "mistake"),
    [(3, 1, "L", ONE_ROW), (2, 2, "O", BINOMIAL), (2, 2, "J", BINOMIAL)],  # of two rows no link moves more than one
)
def test_a_mistake_is_seen(n_rows, most, kinds, mistake):
    assert moved("symmetric", n_rows, most, kinds, mistake) > 1e-4


@pytest.mark.slow
def test_which_feature_goes_is_seen():
    """The last one of its owner in place of any."""
    assert moved("symmetric", 2, 2, "OLOL", LAST_GOES) > 1e-8
