"""`thali bound`: how likely rows are to need a feature beyond a truncation, and which truncation is enough."""

from enum import StrEnum
from typing import Annotated

import typer

from thali.cli.console import show, show_json
from thali.cli.prior_options import AnyPrior, make_any_prior
from thali.errors import InvalidParameterError


class Truncated(StrEnum):
    IBP = "ibp"
    STICK_BREAKING = "stick-breaking"
    BETA_PROCESS = "beta-process"


def bound(
    rows: Annotated[int, typer.Option(min=1, help="How many rows the data have.")],
    mass: Annotated[float, typer.Option(help="Expected features of a row.")],
    prior: Annotated[
        Truncated, typer.Option(help="What is cut off: features, or rounds of a beta process.")
    ] = Truncated.STICK_BREAKING,
    concentration: Annotated[
        float | None, typer.Option(help="beta-process, ibp: larger values share features less; by default 1.")
    ] = None,
    truncation: Annotated[
        int | None, typer.Option(min=1, help="Features, or rounds; by default what --tolerance asks for.")
    ] = None,
    max_features: Annotated[
        int | None, typer.Option(min=1, help="beta-process: features that are kept, if they are fewer than all.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="The probability that may be left out, between 0 and 1.")] = 0.01,
    json: Annotated[bool, typer.Option("--json", help="Write the answer as JSON.")] = False,
) -> None:
    """Say how likely ROWS rows are to have a feature that a truncated prior leaves out.

    The exact probability comes first, then the upper bounds of the papers. The unit is features for stick-breaking and
    for ibp with concentration 1, else rounds.
    """
    from thali.truncation import LABELS, suggest_truncation, truncation_bounds

    if max_features is not None and prior is not Truncated.BETA_PROCESS:
        raise typer.BadParameter("--max-features belongs to --prior beta-process; use --truncation.")
    try:
        model = make_any_prior(AnyPrior(prior), rows, {"mass": mass, "concentration": concentration})
        if max_features is not None:
            model = model.replace(truncation=max_features)
        enough = suggest_truncation(model, rows, tolerance)
        found = truncation_bounds(model, rows, enough if truncation is None else truncation)
    except InvalidParameterError as error:
        raise typer.BadParameter(str(error)) from error
    if json:
        show_json(
            {
                "prior": str(prior),
                "mass": mass,
                "concentration": 1.0 if concentration is None else concentration,
                "n_rows": rows,
                "unit": found.unit,
                "truncation": found.truncation,
                "probabilities": dict(found),
                "validity": found.validity,
                "validity_printed": found.validity_printed,
                "tolerance": tolerance,
                "suggested_truncation": enough,
            }
        )
        return
    show(f"P(some of {rows:,} rows has a feature beyond {found.truncation:,} {found.unit})".replace(",", " "))
    width = max(len(LABELS[name]) for name in found)
    for name, value in found.items():
        show(f"  {LABELS[name]:<{width}}  {value:.6g}", style="bold" if name == "exact" else None)
    if found.validity is not None:
        show(f"{max_features} features hold all of these rounds with probability {found.validity:.6g}")
    show(f"enough for {tolerance:g}: {enough:,} {found.unit}".replace(",", " "))
