"""The shapes of inference, by the name that an inference declares as its `shape`."""

from typing import Any

import numpy as np

from thali.data.row_blocks import RowBlocks
from thali.running.shapes import batches, flat_rows, rows
from thali.running.shapes.batches import Batches
from thali.running.shapes.chains import Chains
from thali.running.shapes.flat_rows import FlatBatches, FlatRows
from thali.running.shapes.passes import Passes
from thali.running.shapes.restarts import Restarts
from thali.running.shapes.rows import Rows
from thali.running.shapes.shape import Job, Shape
from thali.storage.fit import About, Outcome
from thali.storage.streams import Stream

SHAPES: dict[str, type[Shape]] = {"chains": Chains, "restarts": Restarts, "rows": Rows, "blocks": Passes}


def kind_of_shape(inference: Any) -> type[Shape]:
    """The shape of this inference."""
    return FlatRows if forgets_rows(inference) else SHAPES[inference.shape]


def shape_for(about: About, X: Any, rng: np.random.Generator, n_chains: int, target_ess: float | None = None) -> Shape:
    """The tasks of a run on the matrix X before their first step."""
    inference = about.choice.inference
    data = RowBlocks(X, inference.batch_size) if reads_blocks(inference) and not isinstance(X, RowBlocks) else X
    return kind_of_shape(inference).begin(Job(about, data, target_ess), rng, n_chains)


def takes_batches(inference: Any) -> bool:
    """Whether a fit can go on with more rows."""
    return getattr(inference, "shape", None) in ("rows", "blocks")


def forgets_rows(inference: Any) -> bool:
    """Whether rows come one after the other and none is kept."""
    return getattr(inference, "shape", None) == "rows" and not inference.keeps_rows


def takes_iterator(inference: Any) -> bool:
    """Whether data may come from an iterator of batches."""
    return reads_blocks(inference) or forgets_rows(inference)


def reads_blocks(inference: Any) -> bool:
    """Whether data may stay on disk and be read again."""
    return getattr(inference, "shape", None) == "blocks"


def going_on(job: Job, stream: Stream) -> Rows | FlatBatches | Batches:
    """The next rows of a stream: a matrix, or batches."""
    inference = job.about.choice.inference
    kind = Batches if reads_blocks(inference) else FlatBatches if forgets_rows(inference) else Rows
    return kind(job, stream.tasks, stream.seen)


def batch_kind(inference: Any) -> type[Batches | FlatBatches]:
    """The shape of batches that come once."""
    return Batches if reads_blocks(inference) else FlatBatches


def check_stream(outcome: Outcome) -> None:
    """A ValueError if the stream of a fit, which comes from a file, cannot go on."""
    if outcome.stream is None:
        return
    inference = outcome.about.choice.inference
    if reads_blocks(inference):
        batches.check_stream(outcome.stream, outcome.about)
    elif forgets_rows(inference):
        flat_rows.check_stream(outcome.stream, outcome.about)
    else:
        rows.check_stream(outcome.stream, outcome.posterior, outcome.about)
        outcome.posterior.filters = inference.filters(outcome.stream.tasks)
