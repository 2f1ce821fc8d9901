"""`thali demo`: fit data with a known answer and real data, say what was found, draw it."""

import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thali.cli.console import count, file_size, say
from thali.cli.warm_up import compile_kernels
from thali.errors import InvalidFileError

if TYPE_CHECKING:
    from thali.datasets import Dataset
    from thali.estimator import LatentFeatures

_FOLDER = Path("thali-demo")
_NEXT = """\
Next: `thali fit your.csv`, or in Python

    import thali
    fit = thali.load("{file}")  # or thali.LatentFeatures().fit(X)
    X = thali.datasets.bars().X  # one row per object; NaN where a cell is missing
    print(fit.n_components_, fit.k_posterior_)  # how many features, how sure
    print(fit.presence(X).round(2))  # which rows have which"""


def demo(
    output_dir: Annotated[Path, typer.Option(help="Folder for pictures and fits; made if not there.")] = _FOLDER,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same demo.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rows and sweeps: a look, not a result.")] = False,
) -> None:
    """Show what thali does, in about a minute.

    Fits simulated data with a known answer and real data, and draws pictures of what it finds.
    """
    start = time.monotonic()
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidFileError(
            f"cannot make the folder {output_dir}: {error.strerror}. Choose another with --output-dir"
        ) from error
    if find_spec("matplotlib") is None:
        say('no pictures without matplotlib: pip install "thali[report]"', style="yellow")
    compile_kernels()

    from thali import datasets
    from thali.cli.recovery import recovery

    say("1. Simulated data: is the known answer found?", style="bold")
    bars = datasets.bars()
    model = _fit(bars, _bars_model(seed, quick), output_dir)
    say(f"   {recovery(model, bars)}")

    say()
    say("2. Real data: no answer is known, and features are parts of pen strokes.", style="bold")
    digits = datasets.digits()
    if quick:
        digits = digits._replace(X=digits.X[:200], description=f"the first 200 of {digits.description}")
    _fit(digits, _digits_model(seed, quick), output_dir)

    say()
    say(f"done in {time.monotonic() - start:.0f} s; pictures and fits are in {output_dir}", style="bold")
    say()
    say(_NEXT.format(file=(output_dir / "bars.thali").as_posix()))


def _bars_model(seed: int, quick: bool) -> "LatentFeatures":
    from thali import CollapsedGibbs, LatentFeatures

    n = 50 if quick else 500
    return LatentFeatures(inference=CollapsedGibbs(n_warmup=n, n_draws=n), random_state=seed, verbose=True)


def _digits_model(seed: int, quick: bool) -> "LatentFeatures":
    """Real pixels differ in mean and in noise, and without a floor ever more features would replace the noise."""
    from thali import CollapsedGibbs, LatentFeatures, LinearGaussian, NormalOffset, PerDim

    observation = LinearGaussian(noise_var=PerDim(), noise_floor=0.3, offset=NormalOffset())
    inference = CollapsedGibbs(n_warmup=20, n_draws=20) if quick else CollapsedGibbs(n_warmup=200, n_draws=100, thin=2)
    return LatentFeatures(observation, inference=inference, n_chains=2, random_state=seed, verbose=True)


def _fit(data: "Dataset", model: "LatentFeatures", folder: Path) -> "LatentFeatures":
    """Fit, say what was found, save, draw."""
    from thali.cli.summary import disagreement, found, summarise

    n_rows, n_dims = data.X.shape
    say(f"   {data.name}: {data.description}")
    known = "" if data.features is None else f"; true K = {len(data.features)}, noise var {data.noise_var:g}"
    say(f"   {count(n_rows, 'row')} x {count(n_dims, 'dim')}, {count(model.n_chains, 'chain')}{known}")
    begin = time.monotonic()
    model.fit(data.X)
    summary = summarise(model)
    say(f"   {model.check()}", style="green" if model.converged_ else "yellow")
    if not model.converged_:
        say(f"   {disagreement(summary)}", style="yellow")
    say(f"   {found(summary)}", style="bold")
    model.set_params(verbose=None)
    path = folder / f"{data.name}.thali"
    model.save(path)
    drawn = _draw(model, data, folder) if find_spec("matplotlib") is not None else []
    pictures = f", {count(len(drawn), 'picture')} {data.name}-*.png" if drawn else ""
    say(f"   {time.monotonic() - begin:.0f} s; wrote {path.name} ({file_size(path)}){pictures}")
    return model


def _draw(model: "LatentFeatures", data: "Dataset", folder: Path) -> list[Path]:
    """A picture each of: the number of features, the features, who has them, the chains, a few rows."""
    from thali.report import figures

    assert data.image_shape is not None
    rows = data.X[:500]
    presence = model.presence(rows)
    fitted = model.inverse_transform(presence[:8])
    draws = model.posterior_.draws
    drawings: dict[str, Any] = {
        "k-posterior": figures.k_posterior(
            model.k_posterior_, None if data.features is None else len(data.features), model.posterior_.k
        ),
        "features": figures.feature_images(model.components_, data.image_shape, presence.mean(axis=0)),
        "presence": figures.presence_heatmap(presence),
        "traces": figures.traces(draws, [n for n in ("n_features", "log_joint", "noise_var", "mass") if n in draws]),
        "rows": figures.data_and_reconstruction(rows[:8], fitted, data.image_shape),
    }
    return [figures.save(figure, folder / f"{data.name}-{name}.png") for name, figure in drawings.items()]
