"""Convergence: R-hat and ESS of label-invariant summaries (by arviz-stats), and whether the chains found the same."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

R_HAT_LIMIT = 1.05
ESS_LIMIT = 100.0
FREE_ENERGY_LIMIT = 20.0  # nats by which chains may differ, beside their Monte Carlo error
_LARGE = 1e100  # squares of larger numbers may not fit
_NAMED = 3  # chains that differ and are described one by one


class Diagnosis(NamedTuple):
    """R-hat and effective sample size of one summary."""

    r_hat: float
    ess: float

    @property
    def good(self) -> bool:
        return self.r_hat <= R_HAT_LIMIT and self.ess >= ESS_LIMIT


class Filters(NamedTuple):
    """What is known of particle filters, one entry for each."""

    log_evidence: np.ndarray
    effective: np.ndarray  # number of particles at the end, before the draws are made
    n_roots: np.ndarray  # particles before the first row from which those at the end descend
    n_particles: int

    @property
    def evidence(self) -> tuple[float, float]:
        """(log of the mean estimate, its standard error in nats as the filters differ; nan with one filter)."""
        top = self.log_evidence.max()
        ratio = np.exp(self.log_evidence - top)
        # eq: own.pooled-evidence
        mean, n = float(ratio.mean()), len(ratio)
        error = float(ratio.std(ddof=1)) / mean / np.sqrt(n) if n > 1 else np.nan
        return float(top) + float(np.log(mean)), error


class Agreement(NamedTuple):
    """What each chain found. `best` is the chain with the highest mean free energy, the one that is reported."""

    best: int
    n_features: np.ndarray  # persistent ones
    free_energy: np.ndarray  # mean
    error: np.ndarray  # Monte Carlo error of that mean

    @property
    def other_number(self) -> np.ndarray:
        """Chains with another number of features than the best. From 10 on, one or 10 % more or less is the same."""
        k = self.n_features[self.best]
        return np.abs(self.n_features - k) > (0 if k < 10 else max(1.0, 0.1 * k))

    @property
    def lower(self) -> np.ndarray:
        """Chains that lie clearly below the best: in another mode, not only elsewhere in the same."""
        allowed = FREE_ENERGY_LIMIT + 3.0 * np.hypot(self.error, self.error[self.best])
        return self.free_energy[self.best] - self.free_energy > allowed

    @property
    def differing(self) -> list[int]:
        return [int(chain) for chain in np.flatnonzero(self.other_number | self.lower)]


def diagnose(draws: Mapping[str, np.ndarray]) -> dict[str, Diagnosis]:
    """Of each (chain, draw) array but the free energy: `agree` compares that, and it moves as the log joint does.

    A summary that never varies has converged if all chains agree on it.
    """
    from arviz_stats.base import array_stats

    result = {}
    for name, values in draws.items():
        values = np.asarray(values, dtype=float)
        if name == "free_energy":
            continue
        if np.ptp(values) == 0:
            result[name] = Diagnosis(1.0, float(values.size))
        elif (np.ptp(values, axis=1) == 0).all():
            result[name] = Diagnosis(np.inf, 1.0)  # every chain is constant, and they differ
        elif values.shape[1] < 4:
            result[name] = Diagnosis(np.nan, np.nan)
        else:
            if len(values) == 1:  # one chain is judged by its two halves
                values = values[:, : values.size // 2 * 2].reshape(2, -1)
            with np.errstate(divide="ignore", invalid="ignore"):  # half a chain may be constant
                ess = float(array_stats.ess(values, chain_axis=0, draw_axis=1, method="bulk"))
                r_hat = float(array_stats.rhat(values, chain_axis=0, draw_axis=1, method="rank"))
            result[name] = Diagnosis(r_hat, ess)
    return result


def diagnose_filters(draws: Mapping[str, np.ndarray]) -> dict[str, Diagnosis]:
    """As `diagnose`, for particles, which have no order: by the means of independent filters alone.

    The effective size is that of independent draws whose mean would vary as the mean of all filters does.
    """
    result = {}
    for name, values in draws.items():
        values = np.asarray(values, dtype=float)
        if name == "free_energy":
            continue
        n_filters = len(values)
        if n_filters == 1:
            result[name] = Diagnosis(np.nan, np.nan)
            continue
        size = float(np.abs(values).max())
        values = values / size if size > _LARGE else values  # only ratios of squares are asked for
        between = float(np.var(values.mean(axis=1), ddof=1))
        within = float(np.mean(np.var(values, axis=1)))
        if between == 0.0:
            result[name] = Diagnosis(1.0, float(values.size))
        else:
            ess = n_filters * (within + between) / between
            r_hat = np.sqrt(1.0 + between / within) if within > 0 else np.inf
            result[name] = Diagnosis(float(r_hat), float(min(ess, values.size)))
    return result


def agree(n_features: np.ndarray, free_energy: np.ndarray) -> Agreement:
    """From the number of persistent features of each chain and the free energy of each (chain, draw)."""
    from arviz_stats.base import array_stats

    mean = free_energy.mean(axis=1)
    error = np.zeros(len(mean))
    for chain, values in enumerate(free_energy):
        if len(values) >= 4 and np.ptp(values) > 0:
            ess = array_stats.ess(values[None], chain_axis=0, draw_axis=1, method="mean")
            error[chain] = np.std(values) / np.sqrt(ess)
    return Agreement(int(np.argmax(mean)), np.asarray(n_features), mean, error)


def verdict(diagnoses: Mapping[str, Diagnosis], agreement: Agreement, *, lacks_floor: bool = False) -> str:
    """In words: what is wrong, and what to do. A noise floor is advised to a model that could have one and lacks it."""
    bad = {name: d for name, d in diagnoses.items() if not d.good}
    one_chain = len(agreement.n_features) == 1
    if not bad and not agreement.differing:
        worst = max(d.r_hat for d in diagnoses.values())
        least = min(d.ess for d in diagnoses.values())
        found = "one chain: agreement between chains was not checked" if one_chain else _found(agreement)
        summaries = f"R-hat at most {worst:.2f} on {len(diagnoses)} label-free summaries, ESS at least {least:.0f}"
        return f"converged ({found}; {summaries})"
    wrong = [_difference(agreement, chain) for chain in agreement.differing[:_NAMED]]
    if len(agreement.differing) > _NAMED:
        wrong.append(f"{len(agreement.differing) - _NAMED} more chains differ from chain {agreement.best}")
    remedies = ["draw more (n_warmup, n_draws)"]
    if bad:
        wrong.append(", ".join(f"{name} (R-hat {d.r_hat:.2f}, ESS {d.ess:.0f})" for name, d in sorted(bad.items())))
    if one_chain:
        wrong.append("with one chain, agreement between chains was not checked")
        remedies.append("run several chains (n_chains)")
    if agreement.differing:
        remedies.append("run more chains (n_chains): the one with the highest free energy is reported")
    if agreement.differing and lacks_floor:
        remedies.append("on real data set noise_floor, without which the number of features has no end")
    return f"not converged: {'; '.join(wrong)}. What to do: {'; '.join(remedies)}."


def filter_verdict(filters: Filters, diagnoses: Mapping[str, Diagnosis], agreement: Agreement) -> str:
    """In words, for particle filters: how far they agree, how thin they have become, and what to do."""
    n, value = len(filters.n_roots), filters.evidence
    spread = f", filters within {np.ptp(filters.log_evidence):.1f} nats" if n > 1 else ""
    roots = f"{filters.n_roots.min()}" + (f" to {filters.n_roots.max()}" if np.ptp(filters.n_roots) else "")
    about = (
        f"log evidence {value[0]:.1f}{spread}; {filters.n_particles} particles in each, worth "
        f"{filters.effective.min():.0f} or more at the last row, all descended from {roots} at the first"
    )
    bad = {name: d for name, d in diagnoses.items() if not d.good}
    if n > 1 and not bad and not agreement.differing:
        return f"converged ({_found(agreement).replace('chains', 'filters')}; {about})"
    if n == 1:
        wrong, remedies = ["one filter: nothing to compare it with"], ["run several filters (n_chains)"]
    else:
        wrong = [_difference(agreement, chain).replace("chain", "filter") for chain in agreement.differing[:_NAMED]]
        apart = {name: d for name, d in sorted(bad.items()) if d.r_hat > R_HAT_LIMIT}
        for words, some in (("filters disagree on", apart), ("too few particles for", bad if not apart else {})):
            if some:
                found = ", ".join(f"{name} (R-hat {d.r_hat:.2f}, ESS {d.ess:.0f})" for name, d in sorted(some.items()))
                wrong.append(f"{words} {found}")
        remedies = []
    remedies += ["take more particles (n_particles)", "if all rows are at hand, CollapsedGibbs() can revise early ones"]
    return f"not converged: {'; '.join(wrong)}; {about}. What to do: {'; '.join(remedies)}."


def _found(agreement: Agreement) -> str:
    low, high = agreement.n_features.min(), agreement.n_features.max()
    number = _features(low) if low == high else f"{low} to {_features(high)}"
    return f"all {len(agreement.n_features)} chains found {number}"


def _difference(agreement: Agreement, chain: int) -> str:
    """chain 3 found 5 features where the others found 4, and its free energy is 130 nats lower"""
    best, k = agreement.best, int(agreement.n_features[chain])
    rest = np.delete(agreement.n_features, chain)
    below = agreement.free_energy[best] - agreement.free_energy[chain]
    energy = f"its free energy is {below:.0f} nats lower"
    if k == agreement.n_features[best]:
        return f"chain {chain} found as many features as chain {best} ({k}), but {energy}"
    where = "the others" if len(rest) > 1 and (rest == rest[0]).all() else f"chain {best}"
    return f"chain {chain} found {_features(k)} where {where} found {agreement.n_features[best]}, and {energy}"


def _features(n: int) -> str:
    return f"{n} feature" if n == 1 else f"{n} features"
