"""`thali inspect`: what is in a `.thali` file, and in the folder of a run that leads to one.

The file does not have the verb's name: that is a module of the standard library.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thali.cli.after_fit import run_folder
from thali.cli.console import count, say, show, show_json
from thali.cli.verbs.resume import recall
from thali.errors import ThaliError
from thali.storage.claims import holds_run, sweep

if TYPE_CHECKING:
    from thali.estimator import LatentFeatures

_TOP = 4  # dims shown of a feature


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .thali file, or the .run folder of one.")],
    json: Annotated[bool, typer.Option("--json", help="Write all of it as JSON.")] = False,
) -> None:
    """Show what is in a fit: its data, model, chains and features, and whether it can be trusted.

    If the run that leads to it was stopped, tells how far it came and how to go on.
    """
    from thali import load

    folder = run_folder(file)
    sweep(folder)
    if holds_run(file):
        folder = file
    elif holds_run(file.parent) and re.fullmatch(r"(run|command|chain-.*)\.thali", file.name):
        folder = file.parent
    if folder.suffix == ".run":
        file = folder.with_suffix("")
    fit = _fit(load(file)) if os.path.isfile(file) or not holds_run(folder) else None
    run = None
    try:
        run = _run(file, folder) if holds_run(folder) else None
    except ThaliError as error:
        if fit is None:
            raise
        say(f"warning: {error}", style="yellow")  # the fit is sound, whatever became of its run
    if json:
        show_json({"file": str(file), "fit": fit, "run": run})
        return
    if fit:
        _show_fit(file, fit)
    if run:
        _show_run(folder, run)


def _data(about: dict[str, Any]) -> str:
    size = f"{count(about['n_rows'], 'row')} x {count(about['n_dims'], 'dim')}"
    return f"{size}, fingerprint {about['data_fingerprint'][:12]}"


# ---- a fit


def _fit(model: "LatentFeatures") -> dict[str, Any]:
    """Plain data, ready for JSON."""
    import numpy as np

    from thali.cli.summary import summarise
    from thali.storage.spec_json import to_json

    posterior, agreement = model.posterior_, model.agreement_
    names = _dim_names(model)
    summary = summarise(model)
    del summary["n_features_by_chain"]
    by_dims = posterior.model.observation.owners == "dims"
    presence = model.loadings_presence_ if by_dims else np.ones(model.components_.shape)
    features = [
        {
            "frequency": float(share),
            "stability": float(stability),
            "largest": [
                {"dim": names[d], "value": float(feature[d])} for d in np.lexsort((-np.abs(feature), -chances))[:_TOP]
            ],
            **({"presence": dict(zip(names, chances.tolist(), strict=True))} if by_dims else {}),
        }
        for share, stability, feature, chances in zip(
            posterior.row_counts / posterior.n_owners, model.stability_, model.components_, presence, strict=True
        )
    ]
    return {
        "n_rows": posterior.n_rows,
        "n_dims": model.n_features_in_,
        "dim_names": names,
        "data_fingerprint": model.data_fingerprint_,
        "model": f"{_brief(_asked(model, 'observation'))} x {_brief(_asked(model, 'prior'))}",
        "prior": to_json(posterior.model.prior),
        "observation": to_json(posterior.model.observation),
        "inference": to_json(model.inference_.inference),
        "reason": f"{_brief(model.inference_.inference)}: {model.inference_.reason.partition(': ')[2]}",
        "seed": model.random_state,
        "n_draws_asked": getattr(model.inference_.inference, "n_draws", posterior.n_draws),  # of an optimiser: all
        **summary,
        "check": model.check(),
        "chains": [
            {"n_features": int(k), "free_energy": float(energy), "reported": chain == agreement.best}
            for chain, (k, energy) in enumerate(zip(agreement.n_features, agreement.free_energy, strict=True))
        ],
        "features": features,
    }


def _dim_names(model: "LatentFeatures") -> list[str]:
    """Those of the data, or dim_0, dim_1, ..."""
    names = getattr(model, "feature_names_in_", None)
    return [f"dim_{d}" for d in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def _asked(model: "LatentFeatures", part: str) -> Any:
    """A part of the model before it was adapted to the data."""
    asked = getattr(model, part)
    return type(getattr(model.posterior_.model, part))() if asked is None else asked


def _brief(spec: Any) -> str:
    """A spec by what differs from its defaults: LinearGaussian(noise_floor=0.2)."""
    from thali.core.spec import Spec

    plain = type(spec)().get_params(deep=False)
    changes = []
    for name, value in spec.get_params(deep=False).items():
        if repr(value) != repr(plain[name]):
            text = _brief(value) if isinstance(value, Spec) else repr(value)
            changes.append(f"{name}={text if len(text) <= 60 else '...'}")
    return f"{type(spec).__name__}({', '.join(changes)})"


def _show_fit(file: Path, fit: dict[str, Any]) -> None:
    import numpy as np

    from thali.cli.summary import found, plus_minus

    def line(name: str, text: str, style: str | None = None) -> None:
        show(f"{name:12}  {text}", style=style)

    made = count(fit["n_draws"], "draw")
    asked = "" if fit["n_draws"] == fit["n_draws_asked"] else f" of {fit['n_draws_asked']}"
    show(str(file), style="bold")
    line("data", _data(fit))
    line("model", fit["model"])
    line("inference", fit["reason"])
    line("draws", f"{count(fit['n_chains'], 'chain')} x {made}{asked}, seed {fit['seed']}")
    line("convergence", fit["check"], "green" if fit["converged"] else "yellow")
    line("found", found(fit | {"hyperparameters": {}}), "bold")
    line("in use", "  ".join(f"{k}: {share:.3f}" for k, share in fit["k_posterior"].items()))
    if fit["noise_floor"] is not None:
        line("noise floor", f"{np.mean(fit['noise_floor']):g}")
    for name, value in fit["hyperparameters"].items():
        line(name, plus_minus(**value))
    show("")
    show("chain   features  free energy" if fit["diagnostics"] else "start   features   -objective")
    for number, chain in enumerate(fit["chains"]):
        reported = "  reported" if chain["reported"] else ""
        show(f"{number:<6}  {chain['n_features']:8}  {chain['free_energy']:11.1f}{reported}")
    if fit["features"]:
        show("")
        show("feature  frequency  stability  largest values")
    for number, feature in enumerate(fit["features"]):
        dims = "  ".join(f"{cell['dim']} {cell['value']:+.3g}" for cell in feature["largest"])
        show(f"{number:<7}  {feature['frequency']:9.2f}  {feature['stability']:9.2f}  {dims}")


# ---- a run that was stopped


def _run(file: Path, folder: Path) -> dict[str, Any]:
    from thali.storage.checkpoint import Checkpoint

    run, chains = Checkpoint.read(folder)
    inference = run.about.choice.inference
    data = recall(folder).get("file")
    return {
        "folder": str(folder),
        "n_rows": run.n_rows,
        "n_dims": run.about.n_dims,
        "data_fingerprint": run.about.data_fingerprint,
        "data_file": data,
        **_asked_steps(inference),
        "chains": [
            {
                "n_steps": len(chain.infos),
                "n_draws": len(chain.kept),
                "n_features": float(chain.infos[-1].n_features) if chain.infos else None,
            }
            for chain in chains
        ],
        "go_on_with": _go_on(file, folder, data),
    }


def _asked_steps(inference: Any) -> dict[str, int | None]:
    """How many steps and draws a chain was asked for; nobody knows how many passes an optimiser needs."""
    if inference.shape != "chains":
        return {"n_steps_asked": None, "n_draws_asked": None}
    n_steps = inference.n_warmup + inference.n_draws * inference.thin
    return {"n_steps_asked": n_steps, "n_draws_asked": inference.n_draws}


def _go_on(file: Path, folder: Path, data: str | None) -> str:
    if folder.suffix != ".run":  # begun from Python, with a name of its own
        return f"thali.resume({str(folder)!r}, X)"
    return f"thali resume {file}" + ("" if data else " --data FILE")


def _show_run(folder: Path, run: dict[str, Any]) -> None:
    show(f"{folder}: a run that is not finished", style="yellow")
    show(f"data          {_data(run)}{', ' + run['data_file'] if run['data_file'] else ''}")
    samples = run["n_steps_asked"] is not None
    steps = f"sweeps (of {run['n_steps_asked']})" if samples else "steps"
    draws = f"  draws (of {run['n_draws_asked']})" if samples else ""
    show(f"{'chain' if samples else 'part':<6}  {steps}{draws}  features in use")
    for number, chain in enumerate(run["chains"]):
        made = f"  {chain['n_draws']:{len(draws) - 2}}" if samples else ""
        in_use = "-" if chain["n_features"] is None else f"{chain['n_features']:g}"
        show(f"{number:<6}  {chain['n_steps']:{len(steps)}}{made}  {in_use:>15}")
    show(f"go on with it: {run['go_on_with']}")
