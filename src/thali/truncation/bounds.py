"""Is a truncation large enough? Every bound of the papers, and the exact value, for a prior.

Doshi-Velez et al. (2009) cut the sticks of the one-parameter IBP after K features, Paisley et al. (2011) the beta
process after R rounds, and bound the probability that N rows have a feature beyond. The infinite and the truncated
model agree unless that happens, so this probability also bounds their distance in total variation. All of this is
about the prior: it says nothing on the quality of a fit.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from thali.core.spec import Domain, Spec, between, positive
from thali.errors import InvalidParameterError
from thali.priors import IBP, BetaBernoulli, BetaProcess, StickBreakingIBP
from thali.priors.truncation_size import enough
from thali.truncation import rounds, sticks

_MOST = 10**12
_count = between(1, _MOST)
_share = Domain("a number between 0 and 1", lambda v: positive.contains(v) and v < 1)

LABELS = {
    "exact": "exact",
    "linear": "1 - (1 - x)^N <= N x",
    "row_by_row": "rows apart (Eq. 11)",
    "jensen": "Jensen, exact rate",
    "eq_12": "Eq. 12",
    "taylor": "Taylor (Eq. 23)",
    "appendix_f": "Appendix F",
    "simple": "1 - (1 - x)^N <= N x",
    "eq_25": "Jensen (Eq. 25)",
    "eq_26": "Eq. 26",
    "pi_squared": "Eq. 26 with pi^2/6",
    "theorem_1": "Theorem 1",
}
_WIDTH = 2 + max(map(len, LABELS.values()))


@dataclass(frozen=True, repr=False)
class TruncationBounds(Mapping[str, float]):
    """P(some of `n_rows` rows has a feature beyond the truncation): "exact", then upper bounds, by name.

    `unit` says what is counted, "features" or "rounds". Rounds hold a random number of features: if the prior also
    keeps at most so many features, `validity` is the probability that these hold all of the rounds, without which
    the other numbers are about a larger model; `validity_printed` is that of the paper, which is too small.
    """

    n_rows: int
    truncation: int
    unit: str
    values_by_name: Mapping[str, float]
    validity: float | None = None
    validity_printed: float | None = None

    @property
    def exact(self) -> float:
        return self["exact"]

    @property
    def total_variation(self) -> float:
        """Largest distance (half of the L1 distance) of the data's laws under the truncated and the infinite prior."""
        # eq: own.coupling
        return self.exact

    @property
    def total_variation_printed(self) -> float:
        """What the papers' factor 1/4 in place of 1/2 makes of it."""
        return min(1.0, 2 * self.exact)

    def __getitem__(self, name: str) -> float:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def __repr__(self) -> str:
        lines = [f"P(a feature beyond {self.truncation:,} {self.unit}, {self.n_rows:,} rows)"]
        lines += [f"  {LABELS[name]:<{_WIDTH}}{value:.6g}" for name, value in self.items()]
        if self.validity is not None:
            lines.append(f"  the kept features hold all of these rounds with probability {self.validity:.6g}")
        return "\n".join(lines)


def truncation_bounds(
    prior: Any, n_rows: int, truncation: int | None = None, *, taylor_terms: int = 50
) -> TruncationBounds:
    """How likely n_rows rows are to have a feature beyond a truncation: the exact value and every bound.

    `truncation` is a number of features for StickBreakingIBP and the one-parameter IBP, a number of rounds for
    BetaProcess and the two-parameter IBP; by default the prior's own. `taylor_terms` of the series of DV09 are summed.
    """
    kind = _kind(prior)
    _check("n_rows", n_rows, _count)
    _check("taylor_terms", taylor_terms, between(1, 10**6))
    given = kind.own if truncation is None else truncation
    if given is None:
        raise InvalidParameterError(
            f"{type(prior).__name__} as given has no truncation. Give a number of {kind.unit} as the third argument; "
            "suggest_truncation has one."
        )
    _check(f"truncation (a number of {kind.unit})", given, _count)
    n_rows, truncation = int(n_rows), int(given)
    if kind.unit == "features":
        values = sticks.bounds(prior.mass, n_rows, truncation, taylor_terms)
        return TruncationBounds(n_rows, truncation, kind.unit, values)
    values = rounds.bounds(prior.mass, prior.concentration, n_rows, truncation)
    kept = kind.kept_features
    if kept is None:
        return TruncationBounds(n_rows, truncation, kind.unit, values)
    validity = rounds.validity(prior.mass, truncation, kept), rounds.validity_printed(prior.mass, truncation, kept)
    return TruncationBounds(n_rows, truncation, kind.unit, values, *validity)


def suggest_truncation(prior: Any, n_rows: int, tolerance: float = 0.01) -> int:
    """The smallest truncation whose exact value is at most `tolerance`.

    A number of features or of rounds, as in `truncation_bounds`. Takes a few milliseconds at most.
    """
    kind = _kind(prior)
    _check("n_rows", n_rows, _count)
    _check("tolerance", tolerance, _share)
    n_rows, tolerance = int(n_rows), float(tolerance)
    sure = enough(prior.mass, kind.base, n_rows, tolerance)  # and not far off
    return _smallest(sure, lambda truncation: kind.probability(n_rows, truncation) <= tolerance)


def _smallest(upper: int, holds: Callable[[int], bool]) -> int:
    """The smallest integer >= 1 for which `holds`, which is monotone, given one that surely does."""
    step = 1
    while upper - step >= 1 and holds(upper - step):
        upper -= step
        step *= 2
    short = max(upper - step, 0)
    while upper - short > 1:
        middle = (upper + short) // 2
        if holds(middle):
            upper = middle
        else:
            short = middle
    return upper


class _Kind(NamedTuple):
    """What of a prior is cut off."""

    unit: str
    base: float  # x such that a further unit lessens the expected weight by x / (1 + x)
    probability: Callable[[int, int], float]  # of n_rows and truncation
    own: int | None = None  # the prior's own truncation
    kept_features: int | None = None  # beside a number of rounds


def _kind(prior: Any) -> _Kind:
    if isinstance(prior, BetaBernoulli):
        raise InvalidParameterError(
            "BetaBernoulli has n_features features and cuts none off; how far it is from the IBP is not covered by "
            "these bounds. Use IBP or StickBreakingIBP with the same mass."
        )
    if not isinstance(prior, IBP | StickBreakingIBP | BetaProcess):
        raise InvalidParameterError(
            "truncation bounds are known for IBP, StickBreakingIBP and BetaProcess. "
            f"Got {type(prior).__name__ if isinstance(prior, Spec) else repr(prior)}."
        )
    if prior.learned:
        name = next(iter(prior.learned))
        raise InvalidParameterError(
            f"truncation bounds need numbers, but {type(prior).__name__}.{name} is given by a distribution. "
            f"Use .replace({name}=<number>), such as its mean."
        )
    if isinstance(prior, StickBreakingIBP):
        return _Kind("features", prior.mass, partial(sticks.probability, prior.mass), own=prior.truncation)
    by_rounds = partial(rounds.probability, prior.mass, prior.concentration)
    if isinstance(prior, BetaProcess):
        return _Kind("rounds", prior.concentration, by_rounds, own=prior.rounds, kept_features=prior.truncation)
    if prior.discount > 0:
        raise InvalidParameterError(
            f"truncation bounds are known for an IBP without discount. Got discount = {prior.discount}; set it to 0."
        )
    if prior.concentration == 1:
        return _Kind("features", prior.mass, partial(sticks.probability, prior.mass))
    return _Kind("rounds", prior.concentration, by_rounds)


def _check(name: str, value: Any, domain: Domain) -> None:
    if not domain.contains(value):
        raise InvalidParameterError(f"{name} must be {domain.words}. Got {value!r}.")
