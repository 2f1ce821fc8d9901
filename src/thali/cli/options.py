"""Options that several verbs have, with the same words everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from thali.cli.model_options import Noise, Observation, Offset, Prior, Sparse

DataFile = Annotated[Path, typer.Argument(metavar="FILE", help="Data: csv, tsv, txt (also .gz), npy, npz, parquet.")]
ObservationModel = Annotated[Observation, typer.Option(help="How a row comes about from its features.")]
PriorOfFeatures = Annotated[Prior, typer.Option(help="Features without bound, or at most --max-features.")]
MaxFeatures = Annotated[int | None, typer.Option(min=1, help="The bound of beta-bernoulli.")]
Mass = Annotated[float | None, typer.Option(help="Features that a row is expected to have; learned if not given.")]
NoiseLevels = Annotated[
    Noise | None, typer.Option(help="One noise level for all dims (linear-gaussian), or one for each (others).")
]
NoiseFloor = Annotated[
    float | None,
    typer.Option(help="Least noise, as a share of a dim's variance; 0 (linear-gaussian) or found (others)."),
]
OffsetOfRows = Annotated[
    Offset | None, typer.Option(help="A row without features is zero (linear-gaussian), or learned (others).")
]
WhoseLoadings = Annotated[
    Sparse | None, typer.Option(help="Whose loadings are sparse, with sparse-factors; by default those of dims.")
]
Chains = Annotated[int, typer.Option(min=1, help="Chains, compared to judge convergence.")]
Warmup = Annotated[int | None, typer.Option(min=0, help="Sweeps before the first draw; by default 500.")]
NumberOfDraws = Annotated[int | None, typer.Option(min=1, help="Draws kept from each chain; by default 500.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Makes the run repeatable; drawn and shown if not given.")]
MaxTime = Annotated[
    float | None, typer.Option(min=1, help="Stop after so many seconds from now, with what there is by then.")
]
TargetEss = Annotated[float | None, typer.Option(min=1, help="Stop once the draws are worth so many independent ones.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Threads; by default all cores. The result is the same.")]
SummaryAsJson = Annotated[bool, typer.Option("--json", help="Write a summary to standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but warnings and errors.")]
