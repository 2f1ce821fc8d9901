"""Make the pictures of docs/explanation/priors.md and truncation.md, and print the numbers that those pages quote."""

from pathlib import Path

import numpy as np

from thali import (
    IBP,
    BetaBernoulli,
    BetaProcess,
    DistanceDependentIBP,
    ExponentialDecay,
    StickBreakingIBP,
    suggest_truncation,
    truncation_bounds,
)
from thali.priors.recursion import marginals
from thali.report import figures, prior_figures
from thali.truncation import LABELS, rounds, sticks

DV09 = {"n_rows": 30, "mass": 5.0}  # their Figure 3
P11 = {"n_rows": 5000, "mass": 3.0, "concentration": 2.0}  # their Figure 2


def draw(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name, figure in {
        "prior-draws": draws(rng),
        "prior-features": expected(rng),
        "prior-marginals": recursive(rng),
        "truncation-sticks": stick_truncation(rng),
        "truncation-rounds": round_truncation(rng),
    }.items():
        figures.save(figure, folder / f"{name}.png")
    numbers()


def draws(rng):
    """A draw of each kind, 60 rows, mass 4."""
    times = np.arange(60.0)
    priors = {
        "IBP": IBP(mass=4.0),
        "concentration 5": IBP(mass=4.0, concentration=5.0),
        "discount 0.5": IBP(mass=4.0, discount=0.5),
        "at most 8": BetaBernoulli(mass=4.0, n_features=8),
        "near in time": DistanceDependentIBP.from_times(times, ExponentialDecay(rate=0.1), sequential=True, mass=4.0),
    }
    return prior_figures.draws_of_z({name: prior.simulate(rng, 60) for name, prior in priors.items()})


def expected(rng, n_rows=10_000, n_draws=8):
    """The number of features of the first n rows, expected and in draws."""
    priors = {
        "IBP(mass=4)": IBP(mass=4.0),
        "IBP(mass=4, concentration=5)": IBP(mass=4.0, concentration=5.0),
        "IBP(mass=4, discount=0.25)": IBP(mass=4.0, discount=0.25),
    }
    x = np.unique(np.geomspace(1, n_rows, 120).round().astype(int))
    lines = {name: [prior.expected_features(int(n)) for n in x] for name, prior in priors.items()}
    drawn = {}
    for name, prior in priors.items():
        first = [prior.simulate(rng, n_rows).argmax(axis=0) for _ in range(n_draws)]  # rows of first appearance
        drawn[name] = [np.searchsorted(rows, x, side="left") for rows in first]
    return prior_figures.features_against_rows(x, lines, drawn)


def recursive(rng, n_rows=50, n_features=20, n_draws=4000):
    """Marginals of the two-parameter IBP, features in order of appearance."""
    prior = IBP(mass=3.0, concentration=2.0)
    seen = np.zeros((n_rows, n_features))
    for _ in range(n_draws):
        Z = prior.simulate(rng, n_rows)[:, :n_features]
        seen[:, : Z.shape[1]] += Z
    exact = marginals(prior.mass, prior.concentration, n_rows, n_features)
    return prior_figures.marginals_against_draws(exact, seen / n_draws, n_draws)


def stick_truncation(rng, n_draws=4000):
    K = np.arange(1, 81)
    found = [sticks.bounds(DV09["mass"], DV09["n_rows"], int(k)) for k in K]
    names = ("exact", "eq_12", "taylor", "appendix_f")
    prior = StickBreakingIBP(mass=DV09["mass"], truncation=200)
    weights = np.array([prior.draw_sticks(rng) for _ in range(n_draws)])
    at = np.arange(5, 81, 5)
    used = [_some_bit(rng, weights[:, k:], DV09["n_rows"]) for k in at]
    simulated = _simulated(at, used)
    return prior_figures.truncation_curves(K, {LABELS[n]: [b[n] for b in found] for n in names}, simulated, "features")


def round_truncation(rng, n_draws=4000):
    R = np.arange(1, 51)
    n_rows, mass, c = P11["n_rows"], P11["mass"], P11["concentration"]
    found = [rounds.bounds(mass, c, n_rows, int(r)) for r in R]
    prior = BetaProcess(mass=mass, concentration=c, rounds=120)
    drawn = [prior.simulate_weights(rng) for _ in range(n_draws)]
    at = np.arange(5, 51, 5)
    used = [[bool(rng.binomial(n_rows, w[index > r]).any()) for w, index in drawn] for r in at]
    lines = {LABELS[n]: [b[n] for b in found] for n in ("exact", "simple", "pi_squared", "theorem_1")}
    return prior_figures.truncation_curves(R, lines, _simulated(at, used), "rounds")


def _some_bit(rng, weights, n_rows):
    return rng.binomial(n_rows, weights).any(axis=1)


def _simulated(at, used):
    share = np.array([np.mean(u) for u in used])
    return prior_figures.Simulated(at, share, np.sqrt(share * (1 - share) / len(used[0])))


def numbers() -> None:
    """What the pages quote."""
    for n_rows in (100, 10_000, 1_000_000):
        features = IBP(mass=4.0).expected_features(n_rows)
        print(f"IBP(mass=4), {n_rows} rows: {features:.1f} features expected")
        for mass in (1.0, 5.0):
            enough = [suggest_truncation(StickBreakingIBP(mass=mass), n_rows, e) for e in (0.1, 0.01, 0.001)]
            print(f"sticks, mass {mass:g}, {n_rows} rows, tolerance 0.1, 0.01, 0.001: {enough}")
    print(truncation_bounds(StickBreakingIBP(mass=5.0, truncation=40), 30))
    print(truncation_bounds(BetaProcess(mass=3.0, concentration=2.0, rounds=30, truncation=100), 5000))
