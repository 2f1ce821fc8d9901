"""Fits that are on disk: `load` opens one that is done, `resume` goes on with a run."""

import os
from typing import Any

import numpy as np

from thali.errors import InvalidParameterError
from thali.estimator import LatentFeatures
from thali.running.shapes import check_stream
from thali.storage import fit as saving
from thali.storage.archive import blamed
from thali.storage.checkpoint import Checkpoint
from thali.storage.fit import About


def load(path: str | os.PathLike[str]) -> LatentFeatures:
    """The fitted estimator in a `.thali` file. Nothing in the file is executed."""
    outcome = saving.load(path)
    with blamed(path):
        check_stream(outcome)
        estimator = _named(LatentFeatures(**outcome.about.params), outcome.about)
        estimator._adopt(outcome)
    return estimator


def resume(checkpoint: str | os.PathLike[str], X: Any, *, heldout: Any = None, **settings: Any) -> LatentFeatures:
    """Go on with the run in a checkpoint folder, with the same X, to the bits that it would have had without a stop.

    Settings that leave the draws as they are may be given anew: n_jobs, verbose, target_ess and max_time, which counts
    from now; a search for a start that was cut short comes to its end first. `heldout` is that of `fit`.
    """
    if not settings.keys() <= {"n_jobs", "verbose", "max_time", "target_ess"}:
        raise InvalidParameterError(
            "resume takes n_jobs, verbose, max_time and target_ess; the rest is as it was. "
            f"Got {', '.join(settings)}. Fit anew to change more."
        )
    if not isinstance(checkpoint, str | os.PathLike):
        raise InvalidParameterError(f"checkpoint must be the path of a folder. Got {checkpoint!r}.")
    run, tasks = Checkpoint.take_up(checkpoint)
    with run:
        with blamed(checkpoint):
            estimator = LatentFeatures(**run.about.params | {"checkpoint": checkpoint})
        fitting = estimator.set_params(**settings)._fitting(patient=True)
        outcome = fitting.resume(run, tasks, X, heldout)
        _named(estimator, run.about)._adopt(outcome)
    return estimator._told(outcome)


def _named(estimator: LatentFeatures, about: About) -> LatentFeatures:
    """The estimator with the dims of the data that it was made for."""
    estimator.n_features_in_ = about.n_dims
    if about.dim_names:
        estimator.feature_names_in_ = np.array(about.dim_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return estimator
