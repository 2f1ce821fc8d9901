"""Convergence verdicts."""

import math

import numpy as np
import pytest

from thali.verdicts.chains import Agreement, Diagnosis, agree, diagnose, diagnose_filters, verdict


def one(values):
    return diagnose({"x": np.asarray(values)})["x"]


def test_constant_chains_that_agree_are_good():
    d = one(np.full((4, 50), 3))
    assert d == Diagnosis(1.0, 200.0)
    assert d.good


def test_constant_chains_that_differ_are_not():
    d = one(np.repeat([[1], [1], [1], [2]], 50, axis=1))
    assert d.r_hat == math.inf
    assert not d.good


def test_independent_draws_are_good(rng):
    d = one(rng.standard_normal((4, 500)))
    assert d.good
    # the ESS of n independent draws is n up to the error of its own estimate, of order sqrt(n) times a few
    assert 1000 < d.ess < 4000


def test_one_chain_is_judged_by_its_halves(rng):
    assert one(rng.standard_normal((1, 500))).good
    assert not one(rng.standard_normal((1, 500)) + np.linspace(0, 5, 500)).good


@pytest.mark.parametrize("shift", [1.0, 5.0])
def test_chains_apart_are_not_good(rng, shift):
    d = one(rng.standard_normal((4, 200)) + shift * np.arange(4)[:, None])
    assert d.r_hat > 1.05
    assert not d.good


def test_one_stuck_chain_is_not_good(rng):
    values = rng.standard_normal((4, 200))
    values[0] = 0.0
    values[0] += 4.0
    assert not one(values).good


def test_a_sticky_chain_has_a_small_ess(rng):
    values = np.repeat(rng.standard_normal((2, 10)), 20, axis=1)
    d = one(values)
    assert d.ess < 100
    assert not d.good


@pytest.mark.parametrize("n_draws", [2, 3])
def test_too_few_draws_to_judge(rng, n_draws):
    d = one(rng.standard_normal((2, n_draws)))
    assert math.isnan(d.r_hat)
    assert not d.good


def test_integers_and_several_summaries(rng):
    found = diagnose({"n_features": rng.integers(3, 6, size=(4, 500)), "mass": rng.gamma(2.0, size=(4, 500))})
    assert list(found) == ["n_features", "mass"]
    assert all(d.good for d in found.values())


def test_the_free_energy_is_not_judged_twice(rng):
    found = diagnose({"log_joint": rng.standard_normal((2, 50)), "free_energy": np.arange(100.0).reshape(2, 50)})
    assert list(found) == ["log_joint"]


# ---- whether the chains found the same


def agreement(n_features, free_energy, error=0.0):
    n = len(n_features)
    values = np.broadcast_to(np.asarray(free_energy, dtype=float), n)
    return Agreement(int(values.argmax()), np.array(n_features), values, np.broadcast_to(error, n))


@pytest.mark.parametrize(
    ("n_features", "free_energy", "error", "differing"),
    [
        ([4, 4, 4, 4], 0.0, 0.0, []),
        ([4, 4, 4, 5], [0, 0, 0, -1], 0.0, [3]),
        ([9, 8], [0, -1], 0.0, [1]),
        ([10, 11, 12], [0, -1, -1], 0.0, [2]),
        ([40, 44, 36, 35], [0, -1, -1, -1], 0.0, [3]),
        ([4, 4, 4], [0, -19, -21], 0.0, [2]),
        ([4, 4, 4], [0, -30, -40], 3.0, [2]),  # 20 + 3 * 3 * sqrt(2) = 32.7
        ([5], 0.0, 0.0, []),
    ],
)
def test_which_chains_differ(n_features, free_energy, error, differing):
    assert agreement(n_features, free_energy, error).differing == differing


def test_the_error_of_a_mean_is_that_of_so_many_independent_draws(rng):
    """Of independent draws sd / sqrt(n); of draws that come in runs of 10 about sqrt(10) as much."""
    values = np.vstack([rng.standard_normal(1000), np.repeat(rng.standard_normal(100), 10), np.zeros(1000)])
    found = agree(np.array([1, 1, 1]), values)
    np.testing.assert_allclose(found.free_energy, values.mean(axis=1))
    assert found.best == values.mean(axis=1).argmax()
    assert found.error[0] == pytest.approx(1 / np.sqrt(1000), rel=0.3)
    assert found.error[1] == pytest.approx(1 / np.sqrt(100), rel=0.5)
    assert found.error[2] == 0.0
    assert agree(np.array([1]), np.array([[1.0, 2.0]])).error.tolist() == [0.0]  # too few to say


# ---- in words


GOOD = {"mass": Diagnosis(1.01, 400.0), "n_on": Diagnosis(1.0, 300.0)}
SAME = agreement([4, 4, 4, 4], 0.0)


def test_words_for_a_good_run():
    text = verdict(GOOD, SAME)
    assert text.startswith("converged (all 4 chains found 4 features; ")
    assert "1.01" in text
    assert "300" in text
    assert "found 10 to 11 features" in verdict(GOOD, agreement([10, 11], 0.0))
    assert "agreement between chains was not checked" in verdict(GOOD, agreement([4], 0.0))


def test_words_for_bad_mixing():
    text = verdict(GOOD | {"n_features": Diagnosis(1.5, 20.0)}, SAME)
    assert text.startswith("not converged: n_features (R-hat 1.50, ESS 20). What to do: draw more (n_warmup, n_draws)")
    assert "mass" not in text
    assert "nan" in verdict({"mass": Diagnosis(math.nan, math.nan)}, SAME)
    alone = verdict({"mass": Diagnosis(1.5, 20.0)}, agreement([4], 0.0))
    assert "agreement between chains was not checked" in alone
    assert "n_chains" in alone


def test_words_for_chains_that_differ():
    text = verdict(GOOD, agreement([4, 4, 4, 5], [0, -1, -2, -130]))
    assert "chain 3 found 5 features where the others found 4, and its free energy is 130 nats lower" in text
    for remedy in ("n_warmup", "n_chains"):
        assert remedy in text
    assert "noise_floor" not in text  # it has one, or could have none
    assert "set noise_floor" in verdict(GOOD, agreement([4, 4, 4, 5], [0, -1, -2, -130]), lacks_floor=True)
    text = verdict(GOOD, agreement([4, 3, 4, 5], [0, -1, -2, -130]))
    assert "chain 1 found 3 features where chain 0 found 4, and its free energy is 1 nats lower" in text
    text = verdict(GOOD, agreement([5, 4], [-70, 0]))
    assert "chain 0 found 5 features where chain 1 found 4, and its free energy is 70 nats lower" in text
    text = verdict(GOOD, agreement([4, 4], [0, -50]))
    assert "chain 1 found as many features as chain 0 (4), but its free energy is 50 nats lower" in text
    text = verdict(GOOD, agreement([1, 2, 3, 4, 5, 6], [0, -1, -1, -1, -1, -1]))
    assert "2 more chains differ from chain 0" in text
    assert "chain 4 found" not in text


def test_filters_of_huge_numbers():
    draws = {"mass": np.array([[1e200, 2e200, 3e200], [1e200, 2e200, 4e200]])}
    small = {"mass": draws["mass"] / 1e200}
    found, wanted = (diagnose_filters(some)["mass"] for some in (draws, small))
    assert found.r_hat == pytest.approx(wanted.r_hat)
    assert found.ess == pytest.approx(wanted.ess)
