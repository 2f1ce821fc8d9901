"""The probability beyond a truncation: exact values, the papers' bounds, and which of the printed steps are none."""

import itertools
import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammainc

from thali import (
    IBP,
    BetaBernoulli,
    BetaProcess,
    Gamma,
    InvalidParameterError,
    StickBreakingIBP,
    suggest_truncation,
    truncation_bounds,
)
from thali.testing import z_limit
from thali.testing.zscores import z_scores
from thali.truncation import rounds, sticks

GOLDEN = Path(__file__).parents[1] / "golden/ibp-gibbs-variational.json"

# --- sticks ---------------------------------------------------------------------------------------

STICK_GRID = [
    (mass, n_rows, truncation)
    for mass in (1e-3, 0.5, 1.0, 5.0, 40.0)
    for n_rows in (1, 2, 30, 5000, 10**6)
    for truncation in (1, 2, 10, 60, 400)
]
STICK_ORDER = ("exact", "linear", "row_by_row", "eq_12", "taylor", "appendix_f")


def stick_draws(rng, mass, n_rows, truncation, n_draws):
    """P(a feature beyond the truncation | sticks), sticks drawn one by one."""
    sticks_drawn = rng.beta(mass, 1.0, size=(n_draws, truncation + int(40 * (1 + mass))))
    weights = np.cumprod(sticks_drawn, axis=1)[:, truncation:]
    return -np.expm1(n_rows * np.log1p(-weights).sum(axis=1))


def test_golden_values_of_the_sticks():
    cases = next(c for c in json.loads(GOLDEN.read_text()) if c["id"] == "G17")["outputs"]
    names = {"exact": "exact", "eq_12": "eq12", "taylor": "taylor50", "appendix_f": "appF"}
    for text, wanted in cases.items():
        n_rows, mass, truncation = (float(part.split("=")[1]) for part in text.split(","))
        found = truncation_bounds(IBP(mass=mass), int(n_rows), int(truncation))
        for ours, theirs in names.items():
            assert found[ours] == pytest.approx(wanted[theirs], rel=1e-9), (text, ours)


@pytest.mark.parametrize(
    ("n_rows", "mass", "truncation", "values"),
    [
        (30, 5.0, 20, (0.843575, 0.980012, 0.980916, 0.999600)),
        (30, 5.0, 40, (0.088047, 0.097022, 0.097070, 0.184630)),
        (30, 5.0, 60, (0.002641, 0.002659, 0.002659, 0.005310)),
        (500, 3.0, 20, (0.718170, 0.991407, 0.991525, 0.999926)),
    ],
)
def test_table_of_the_reference(n_rows, mass, truncation, values):
    found = sticks.bounds(mass, n_rows, truncation)
    got = tuple(found[name] for name in ("exact", "eq_12", "taylor", "appendix_f"))
    assert got == pytest.approx(values, abs=6e-7)


def test_stick_bounds_are_in_order():
    for case in STICK_GRID:
        found = sticks.bounds(*case)
        values = [found[name] for name in STICK_ORDER]
        assert all(low <= high * (1 + 1e-11) for low, high in itertools.pairwise(values)), (case, found)
        assert found["exact"] <= found["jensen"] * (1 + 1e-11) <= found["eq_12"] * (1 + 2e-11), case
        assert all(0 <= value <= 1 for value in values), case


@pytest.mark.parametrize("mass", [0.3, 1.0, 5.0])
def test_the_taylor_bound_is_never_tighter_than_eq_12(mass):
    """DV09 calls it tighter; its first term is Eq. 12 and the others only add."""
    for truncation in (1, 5, 30):
        values = [sticks.taylor(mass, 1, truncation, n_terms) for n_terms in (1, 2, 5, 50, 5000)]
        assert values[0] == pytest.approx(sticks.bounds(mass, 1, truncation)["eq_12"], rel=1e-12)
        assert all(low <= high * (1 + 1e-15) for low, high in itertools.pairwise(values))
        assert values[-1] > values[0]


@pytest.mark.parametrize(("mass", "n_rows", "truncation"), [(5.0, 30, 20), (5.0, 30, 40), (1.0, 10, 3), (3.0, 500, 20)])
def test_the_exact_value_is_that_of_simulated_sticks(mass, n_rows, truncation, rng):
    draws = stick_draws(rng, mass, n_rows, truncation, 20_000)
    exact = sticks.probability(mass, n_rows, truncation)
    assert abs(z_scores(draws[:, None], np.array([exact]))[0]) <= z_limit(1)
    off_by_one = sticks.probability(mass, n_rows, truncation - 1)
    assert abs(z_scores(draws[:, None], np.array([off_by_one]))[0]) > z_limit(1)


def test_the_printed_middle_step_is_wrong(rng):
    """DV09 Section 6 takes the power N out of the Poisson process' integral, and then loses it."""
    mass, n_rows, truncation = 5.0, 30, 20
    draws = stick_draws(rng, mass, n_rows, truncation, 20_000)
    lost = sticks.probability(mass, 1, truncation, linear=True)  # 1 - E exp(-mass w)
    outside = sticks.probability(mass, n_rows, truncation, linear=True)  # 1 - E exp(-mass w)^N
    assert 1 - sticks.probability(mass, n_rows, truncation) == pytest.approx(0.156425, abs=6e-7)
    assert (1 - outside, 1 - lost) == pytest.approx((0.140606, 0.882979), abs=6e-7)
    for wrong in (lost, outside):
        assert abs(z_scores(draws[:, None], np.array([wrong]))[0]) > 2 * z_limit(1)


@pytest.mark.parametrize("n_rows", [1, 2, 64, 65, 1000])
def test_the_rate_of_unseen_sticks_is_the_sum(n_rows):
    y = np.concatenate([np.geomspace(1e-12, 1, 50), np.linspace(1, 60, 200)])
    j = np.arange(1, n_rows + 1)[:, None]
    wanted = (-np.expm1(j * np.log1p(-np.exp(-y))) / j).sum(axis=0)
    assert sticks.unseen_rate(y, n_rows) == pytest.approx(wanted, rel=1e-12)


def test_the_rate_for_many_rows_is_its_integral():
    """g(y) - g(y + 1) = integral of 1 - (1 - exp(-t))^N, across the place where the form changes."""
    x, weights = np.polynomial.legendre.leggauss(40)
    for y in np.linspace(0.2, 40, 60):
        t = y + 0.5 * (1 + x)
        wanted = float(np.sum(0.5 * weights * -np.expm1(1e6 * np.log1p(-np.exp(-t)))))
        found = sticks.unseen_rate(np.array([y, y + 1]), 10**6)
        assert found[0] - found[1] == pytest.approx(wanted, rel=1e-11, abs=1e-13 * found[0])


def test_the_rate_at_the_ends():
    """All of the stick, and a weight below the smallest number; without a warning."""
    harmonic = sum(1 / j for j in range(1, 1001))
    assert sticks.unseen_rate(np.array([0.0, 2000.0]), 1000) == pytest.approx([harmonic, 0.0], rel=1e-12)
    assert sticks.unseen_rate(0.0, 3) == pytest.approx(11 / 6)


def test_jensen_has_a_closed_form_for_few_rows():
    mass, n_rows, truncation = 2.0, 12, 5
    mean = sum(
        (1 - sum((-1) ** i * math.comb(j, i) * (mass / (mass + i)) ** truncation for i in range(j + 1))) / j
        for j in range(1, n_rows + 1)
    )
    assert sticks.jensen(mass, n_rows, truncation) == pytest.approx(-math.expm1(-mass * mean), rel=1e-11)


# --- rounds ---------------------------------------------------------------------------------------

ROUNDS_ORDER = ("exact", "simple", "eq_25", "eq_26", "pi_squared", "theorem_1")


def alternating(concentration: Fraction, n_rows: int, n_rounds: int) -> float:
    """The exponent over mass, in exact arithmetic."""
    c, total, beta = concentration, Fraction(0), 1 / concentration
    for j in range(1, n_rows + 1):
        beta = beta if j == 1 else beta * Fraction(j - 1) / (c + j - 1)
        total += (-1) ** (j + 1) * math.comb(n_rows, j) * beta * (c / (c + j)) ** n_rounds
    return float(c * total)


def round_draws(rng, mass, concentration, n_rows, n_rounds, n_draws):
    """P(a feature of a later round | features), features drawn round by round."""
    beyond = n_rounds + int(40 * (1 + concentration))
    r = np.arange(n_rounds + 1, beyond)
    number = rng.poisson(mass, size=(n_draws, len(r)))
    owner = np.repeat(np.tile(np.arange(n_draws)[:, None], len(r)).ravel(), number.ravel())
    shape = np.repeat(np.tile(r - 1, n_draws), number.ravel())
    weights = rng.beta(1, concentration, size=len(owner)) * np.exp(-rng.gamma(shape, 1 / concentration))
    return -np.expm1(n_rows * np.bincount(owner, np.log1p(-weights), minlength=n_draws))


def test_golden_values_of_the_rounds():
    assert rounds.features_beyond(1.5, 2.0, 5, 5) == pytest.approx(0.854108298093, rel=1e-10)
    found = truncation_bounds(IBP(mass=1.5, concentration=2.0), 5, 5)
    assert found.exact == pytest.approx(0.574337413957, rel=1e-10)
    assert found["simple"] == pytest.approx(0.627550686286, rel=1e-10)
    assert found["theorem_1"] == pytest.approx(0.861281508714, rel=1e-10)
    assert rounds.validity(2.0, 3, 8) == pytest.approx(0.847237493985, rel=1e-10)
    assert rounds.validity_printed(2.0, 3, 8) == pytest.approx(0.743979760454, rel=1e-10)
    found = truncation_bounds(IBP(mass=3.0, concentration=2.0), 5000, 30)
    got = found.exact, found["simple"], found["theorem_1"]
    assert got == pytest.approx((0.0685, 0.0752, 0.1448), abs=6e-5)


@pytest.mark.parametrize("concentration", ["1/100", "1/2", "2", "37/10", "150", "1000000"])
def test_the_exponent_is_the_alternating_sum(concentration):
    """Both sides of the place where the second term is lost in rounding included."""
    c = Fraction(concentration)
    for n_rows in (1, 2, 3, 20, 99, 101, 200):
        for n_rounds in (1, 2, 12, 40, 130):
            wanted = alternating(c, n_rows, n_rounds)
            found = rounds.features_beyond(1.0, float(c), n_rows, n_rounds)
            assert found == pytest.approx(wanted, rel=1e-11, abs=1e-290), (n_rows, n_rounds)


@pytest.mark.parametrize(("concentration", "n_rows", "n_rounds"), [(1.0, 20, 1), (1.0, 10**6, 12), (3.0, 5000, 20)])
def test_the_exponent_is_the_printed_integral(concentration, n_rows, n_rounds):
    """c integral of P(R - 1, c t) E_V[1 - (1 - V exp(-t))^N] dt, with 1 - V = u^2 and u^(2c-1) in the density."""
    x, weights = np.polynomial.legendre.leggauss(60)
    t = (0.5 * np.arange(160)[:, None] + 0.25 * (1 + x)).ravel()
    t_weights = np.tile(0.25 * weights, 160)
    u = ((np.arange(20)[:, None] + 0.5 * (1 + x)) / 20).ravel()
    u_weights = np.tile(weights / 40, 20) * 2 * concentration * u ** (2 * concentration - 1)
    seen = -np.expm1(n_rows * np.log1p(-np.exp(-t)[:, None] * (1 - u**2)))
    reached = gammainc(n_rounds - 1, concentration * t) if n_rounds > 1 else np.ones_like(t)
    wanted = float(np.sum(t_weights * concentration * reached * (seen @ u_weights)))
    assert rounds.features_beyond(1.0, concentration, n_rows, n_rounds) == pytest.approx(wanted, rel=1e-8)


def test_round_bounds_are_in_order():
    for mass in (0.1, 3.0):
        for concentration in (1e-3, 0.5, 1.0, 4.0, 1e3, 1e6):
            for n_rows in (1, 2, 30, 5000, 10**6, 10**12):
                for n_rounds in (1, 2, 30, 3000):
                    found = rounds.bounds(mass, concentration, n_rows, n_rounds)
                    values = [found[name] for name in ROUNDS_ORDER]
                    steps = itertools.pairwise(values)
                    assert all(low <= high * (1 + 1e-9) for low, high in steps), (concentration, n_rows, found)


def test_series_of_the_round_bounds():
    assert rounds.printed_series(7.3, 1) == pytest.approx(math.pi**2 / 6, rel=1e-9)
    m = np.arange(1.0, 10**6)
    ratio = (2.5 + 1) / (2.5 + m)  # q_m / q_1
    moment = np.cumprod(m / (2.5 + m))  # E V^m
    assert rounds.jensen_series(2.5, 3) == pytest.approx(np.sum((2.5 + m) * moment / m**2 * ratio**3), rel=1e-9)
    assert rounds.printed_series(2.5, 3) == pytest.approx(np.sum((2.5 + m) / 3.5 / m**2 * ratio**3), rel=1e-9)


@pytest.mark.parametrize(("mass", "concentration", "n_rows", "n_rounds"), [(3.0, 2.0, 5000, 25), (1.5, 0.5, 20, 2)])
def test_the_exact_value_is_that_of_simulated_rounds(mass, concentration, n_rows, n_rounds, rng):
    draws = round_draws(rng, mass, concentration, n_rows, n_rounds, 10_000)
    exact = rounds.probability(mass, concentration, n_rows, n_rounds)
    assert abs(z_scores(draws[:, None], np.array([exact]))[0]) <= z_limit(1)
    off_by_one = rounds.probability(mass, concentration, n_rows, n_rounds - 1)
    assert abs(z_scores(draws[:, None], np.array([off_by_one]))[0]) > z_limit(1)


def test_first_round_and_later_ones_are_the_whole_ibp():
    """Features of the first round that some row has, and those of later rounds, are all features."""
    prior = IBP(mass=2.0, concentration=1.7)
    after_one = rounds.features_beyond(2.0, 1.7, 50, 1)
    seen_in_one = 2.0 * (1 - 1.7 / (1.7 + 50))  # mass E[1 - (1 - V)^N]
    assert after_one + seen_in_one == pytest.approx(prior.expected_features(50), rel=1e-11)


def test_validity_is_that_of_poisson_counts_and_the_printed_one_is_not(rng):
    held = rng.poisson(2.0, size=(20_000, 3)).sum(axis=1) <= 8
    assert abs(z_scores(held[:, None], np.array([rounds.validity(2.0, 3, 8)]))[0]) <= z_limit(1)
    assert abs(z_scores(held[:, None], np.array([rounds.validity_printed(2.0, 3, 8)]))[0]) > z_limit(1)
    assert rounds.validity_printed(2.0, 3, 8) == pytest.approx(1 - gammainc(8, 2.0 * 3))  # Gamma(K, mass) below R
    assert (rounds.validity(1.0, 2, 2), rounds.validity_printed(1.0, 2, 2)) == pytest.approx((0.6767, 0.4060), abs=6e-5)


# --- the public functions -------------------------------------------------------------------------


def test_result_reads_as_a_mapping_and_as_a_table():
    found = truncation_bounds(IBP(mass=5.0), 30, 30)
    assert next(iter(found)) == "exact"
    assert found.exact == found["exact"] == min(found.values())
    assert (found.unit, found.n_rows, found.truncation, found.validity) == ("features", 30, 30, None)
    assert found.total_variation == found.exact
    assert found.total_variation_printed == 2 * found.exact
    lines = repr(found).splitlines()
    assert "30 features" in lines[0]
    assert len(lines) == 1 + len(found)
    assert "0.369689" in lines[1]
    with pytest.raises(AttributeError):
        found.n_rows = 3
    with pytest.raises(KeyError):
        found["eq_13"]


def test_two_parameters_mean_rounds():
    assert truncation_bounds(IBP(mass=5.0, concentration=1.1), 30, 30).unit == "rounds"


@pytest.mark.parametrize("n_rows", [1, 30, 10**6])
@pytest.mark.parametrize("tolerance", [0.9, 0.01, 1e-8])
@pytest.mark.parametrize("prior", [IBP(mass=0.01), IBP(mass=5.0), IBP(mass=2.0, concentration=3.0)], ids=str)
def test_suggestion_is_the_smallest_that_keeps_the_tolerance(prior, n_rows, tolerance):
    truncation = suggest_truncation(prior, n_rows, tolerance)
    assert truncation_bounds(prior, n_rows, truncation).exact <= tolerance
    if truncation > 1:
        assert truncation_bounds(prior, n_rows, truncation - 1).exact > tolerance


def test_extreme_tolerances_and_numpy_numbers():
    assert suggest_truncation(IBP(mass=1.0), 10**12, 1e-300) == pytest.approx(
        math.log2(1e12) - math.log2(1e-300), abs=2
    )
    assert suggest_truncation(IBP(mass=1.0), 5, 1 - 1e-16) == 1
    assert suggest_truncation(IBP(mass=5.0), np.int32(30), np.float32(0.01)) == suggest_truncation(IBP(mass=5.0), 30)
    assert truncation_bounds(IBP(mass=5.0), np.int32(30), np.int64(30)) == truncation_bounds(IBP(mass=5.0), 30, 30)


@pytest.mark.parametrize("truncation", [10**6, 10**9, 10**12])
@pytest.mark.parametrize("prior", [IBP(mass=1.0), IBP(mass=1e6), IBP(mass=1.0, concentration=1e6)], ids=str)
def test_a_huge_truncation_has_an_answer(prior, truncation):
    found = truncation_bounds(prior, 10**12, truncation)
    assert all(0 <= value <= 1 for value in found.values())
    assert found.exact == 0.0 or truncation < 10**9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((IBP(mass=1.0), 10, 0), "truncation .a number of features. must be an integer from 1"),
        ((IBP(mass=1.0, concentration=2.0), 10, 0), "a number of rounds"),
        ((IBP(mass=1.0), 10, 2.0), "Got 2.0"),
        ((IBP(mass=1.0), 10, True), "Got True"),
        ((IBP(mass=1.0), 10, 10**13), "up to|from 1 to"),
        ((IBP(mass=1.0), 10, None), "IBP as given has no truncation"),
        ((IBP(mass=1.0), 0, 5), "n_rows must be"),
        ((IBP(mass=1.0), "10", 5), "n_rows must be"),
        ((IBP(mass=1.0), math.nan, 5), "n_rows must be"),
        ((IBP(), 10, 5), r"IBP.mass is given by a distribution.*replace\(mass="),
        ((IBP(mass=1.0, concentration=Gamma(1.0, 1.0)), 10, 5), r"replace\(concentration="),
        ((IBP(mass=1.0, discount=0.3), 10, 5), "discount = 0.3; set it to 0"),
        ((BetaBernoulli(mass=1.0), 10, 5), "BetaBernoulli .* not covered"),
        (("ibp", 10, 5), "known for IBP, StickBreakingIBP and BetaProcess. Got 'ibp'"),
    ],
)
def test_bad_input_is_refused(arguments, words):
    with pytest.raises(InvalidParameterError, match=words):
        truncation_bounds(*arguments)


@pytest.mark.parametrize("tolerance", [0, 1, -0.1, 1.5, math.nan, "0.1", None, True])
def test_bad_tolerances_are_refused(tolerance):
    with pytest.raises(InvalidParameterError, match="tolerance must be a number between 0 and 1"):
        suggest_truncation(IBP(mass=1.0), 10, tolerance)


def test_bad_taylor_terms_are_refused():
    with pytest.raises(InvalidParameterError, match="taylor_terms"):
        truncation_bounds(IBP(mass=1.0), 10, 5, taylor_terms=0)


def test_expected_features(rng):
    prior = IBP(mass=2.0, concentration=1.5, discount=0.3)
    sizes = np.array([[prior.simulate(rng, 40).shape[1]] for _ in range(4000)], dtype=float)
    assert abs(z_scores(sizes, np.array([prior.expected_features(40)]))[0]) <= z_limit(1)
    with pytest.raises(InvalidParameterError, match="mass"):
        IBP().expected_features(40)


# --- truncated priors -----------------------------------------------------------------------------


def test_truncated_priors_know_their_truncation():
    assert truncation_bounds(StickBreakingIBP(mass=5.0, truncation=30), 30) == truncation_bounds(IBP(mass=5.0), 30, 30)
    found = truncation_bounds(BetaProcess(mass=3.0, concentration=2.0, rounds=30, truncation=100), 5000)
    assert dict(found) == dict(truncation_bounds(IBP(mass=3.0, concentration=2.0), 5000, 30))
    poisson = [math.exp(k * math.log(90) - 90 - math.lgamma(k + 1)) for k in range(101)]
    assert (found.validity, found.validity_printed) == pytest.approx((sum(poisson), sum(poisson[:-1])), rel=1e-9)
    assert "probability 0.865" in repr(found)
    with pytest.raises(InvalidParameterError, match=r"no truncation.*a number of rounds"):
        truncation_bounds(BetaProcess(mass=3.0), 5000)


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        (StickBreakingIBP(mass=2.0), StickBreakingIBP(mass=2.0, truncation=4)),
        (BetaProcess(mass=1.0, concentration=2.0), BetaProcess(mass=1.0, concentration=2.0, rounds=3)),
    ],
    ids=["sticks", "rounds"],
)
def test_draws_are_no_farther_apart_than_the_bound(whole, part, rng):
    """The probabilities of events under the truncated and the infinite prior differ by at most the exact value."""
    n_rows, n_draws = 10, 3000
    draws = [[prior.simulate(rng, n_rows) for _ in range(n_draws)] for prior in (whole, part)]
    used = [np.array([Z.any(axis=0).sum() for Z in some]) for some in draws]
    gaps = np.abs([np.mean(used[0] >= k) - np.mean(used[1] >= k) for k in range(1, 15)])
    found = truncation_bounds(part, n_rows)
    assert 0.1 < gaps.max() <= found.total_variation + z_limit(len(gaps)) * math.sqrt(0.5 / n_draws)


def test_the_benchmark_prints_its_tables(tmp_path):
    script = Path(__file__).parents[2] / "benchmarks/papers/truncation.py"
    command = [sys.executable, script, "--draws", "500", "--json", tmp_path / "truncation.json"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "FAILS" not in result.stdout
    report = json.loads((tmp_path / "truncation.json").read_text())
    assert report["sticks"][0]["exact"] == pytest.approx(0.843575, abs=6e-7)
    assert all(report["statements"].values())
