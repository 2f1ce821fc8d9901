"""The choice of a prior on the command line, where any prior will do: which options each of them takes."""

from enum import StrEnum
from typing import Any

import typer


class AnyPrior(StrEnum):
    IBP = "ibp"
    BETA_BERNOULLI = "beta-bernoulli"
    STICK_BREAKING = "stick-breaking"
    BETA_PROCESS = "beta-process"
    DISTANCE_DEPENDENT = "distance-dependent"
    HIERARCHICAL = "hierarchical"


class Decay(StrEnum):
    CONSTANT = "constant"
    WINDOW = "window"
    EXPONENTIAL = "exponential"
    LOGISTIC = "logistic"


_NAMES = {  # options -> fields, where they differ
    AnyPrior.BETA_BERNOULLI: {"max_features": "n_features"},
    AnyPrior.STICK_BREAKING: {"max_features": "truncation"},
}
_TAKES = {
    AnyPrior.IBP: ("mass", "concentration", "discount"),
    AnyPrior.BETA_BERNOULLI: ("mass", "max_features"),
    AnyPrior.STICK_BREAKING: ("mass", "max_features"),
    AnyPrior.BETA_PROCESS: ("mass", "concentration", "rounds"),
    AnyPrior.DISTANCE_DEPENDENT: ("mass", "decay", "decay_width"),
    AnyPrior.HIERARCHICAL: ("mass", "concentration", "group_concentration", "decay", "decay_width"),
}
_MOST_LINKS = 5e7  # of rows to earlier rows: some gigabytes


def make_any_prior(kind: AnyPrior, n_rows: int, options: dict[str, Any]) -> Any:
    """The prior that these options describe; None stands for an option that was not given."""
    from thali import IBP, BetaBernoulli, BetaProcess, StickBreakingIBP

    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in _TAKES[kind]:
            allowed = ", ".join(_flag(option) for option in _TAKES[kind])
            raise typer.BadParameter(f"{_flag(name)} is no option of --prior {kind}, which takes {allowed}.")
    if kind is AnyPrior.BETA_BERNOULLI and "max_features" not in given:
        raise typer.BadParameter("--prior beta-bernoulli needs --max-features.")
    if kind in (AnyPrior.DISTANCE_DEPENDENT, AnyPrior.HIERARCHICAL):
        return _over_time(kind, n_rows, given)
    kinds: dict[AnyPrior, Any] = {
        AnyPrior.IBP: IBP,
        AnyPrior.BETA_BERNOULLI: BetaBernoulli,
        AnyPrior.STICK_BREAKING: StickBreakingIBP,
        AnyPrior.BETA_PROCESS: BetaProcess,
    }
    names = _NAMES.get(kind, {})
    return kinds[kind](**{names.get(name, name): value for name, value in given.items()})


def _over_time(kind: AnyPrior, n_rows: int, given: dict[str, Any]) -> Any:
    """Rows follow each other in time, one unit apart, and link to earlier ones."""
    import numpy as np

    from thali import DistanceDependentIBP, HierarchicalBetaProcess, Times

    decay = _decay(given.pop("decay", Decay.EXPONENTIAL), given.pop("decay_width", None))
    n_links = n_rows * min(n_rows, decay.reach + 1 if kind is AnyPrior.DISTANCE_DEPENDENT else n_rows)
    if n_links > _MOST_LINKS:
        remedy = "Use fewer rows" if kind is AnyPrior.HIERARCHICAL else "Use fewer rows, or --decay window"
        raise typer.BadParameter(f"{n_rows} rows have about {n_links:.0e} links, which is too many. {remedy}.")
    times = Times(np.arange(n_rows, dtype=float))
    if kind is AnyPrior.DISTANCE_DEPENDENT:
        return DistanceDependentIBP(distances=times, decay=decay, sequential=True, **given)
    return HierarchicalBetaProcess.from_distances(times, decay, sequential=True, **given)


def _decay(kind: Decay, width: float | None) -> Any:
    """A decay over about `width` rows, 10 by default."""
    from thali import ConstantDecay, ExponentialDecay, LogisticDecay, WindowDecay

    if kind is Decay.CONSTANT:
        if width is not None:
            raise typer.BadParameter("--decay constant has no width; leave --decay-width out.")
        return ConstantDecay()
    width = 10.0 if width is None else width
    if not 1e-6 <= width <= 1e6:
        raise typer.BadParameter(f"--decay-width must be a number of rows from 1e-6 to 1e6. Got {width}.")
    if kind is Decay.WINDOW:
        return WindowDecay(width=width)
    return ExponentialDecay(rate=1 / width) if kind is Decay.EXPONENTIAL else LogisticDecay(rate=4 / width, shift=4.0)


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
