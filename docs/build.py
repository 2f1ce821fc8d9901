"""Regenerate what the docs show: the compatibility table, the picture of the README and those of the priors.

usage: python docs/build.py [--check]      (--check: fail if the table in the repository is out of date)
"""

import sys
from pathlib import Path

import numpy as np
import prior_pictures

import thali
from thali import observations, priors
from thali.core.model import lacking
from thali.report import figures
from thali.running import choose as auto

DOCS = Path(__file__).parent
EXAMPLES = {  # priors that need to be told something
    "DistanceDependentIBP": thali.DistanceDependentIBP.from_times([0.0, 1.0]),
    "HierarchicalBetaProcess": thali.HierarchicalBetaProcess(weights=np.eye(2)),
}


def compatibility() -> str:
    """Which inference serves which prior and observation model, by the same function that checks a fit."""
    lines = [
        "# What fits together",
        "",
        "Made by `python3 dev.py docs` from the parts themselves; a test keeps it up to date.",
        "",
        "| prior | observation | inference |",
        "|---|---|---|",
    ]
    for prior in priors.__all__:
        for observation in observations.__all__:
            parts = EXAMPLES.get(prior) or getattr(priors, prior)(), getattr(observations, observation)()
            fits = [kind.__name__ for kind in auto.ALL if not lacking(*parts, kind())]
            lines.append(f"| {prior} | {observation} | {', '.join(fits) or '-'} |")
    return "\n".join(lines) + "\n"


def picture() -> None:
    """Rows of the bars, and the features that were found in them."""
    data = thali.datasets.bars()
    model = thali.LatentFeatures(random_state=0).fit(data.X)
    share = model.presence(data.X).mean(axis=0)
    order = np.argsort(-share)
    figure = figures.feature_images(model.components_[order], data.image_shape, prevalence=share[order])
    figures.save(figure, DOCS / "images" / "bars.png")
    print(f"bars: K = {model.n_components_}, {model.check()}")


def main() -> int:
    table = DOCS / "compatibility.md"
    if "--check" in sys.argv:
        if table.read_text() != compatibility():
            print("docs/compatibility.md is out of date: run python3 dev.py docs", file=sys.stderr)
            return 1
        return 0
    table.write_text(compatibility())
    (DOCS / "images").mkdir(exist_ok=True)
    picture()
    prior_pictures.draw(DOCS / "images")
    return 0


if __name__ == "__main__":
    sys.exit(main())
