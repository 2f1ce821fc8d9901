"""What a fit warns of: that it was stopped, or else that it has not converged."""

import sys
import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning

_INSIDE = ("thali", "sklearn")


def warn_of(model: Any, *, judged: bool = True) -> None:
    """One warning at most: a run that was stopped has its own words, and whoever stopped it expects no convergence.

    A stream that goes on is not judged after each batch: `check()` does so when asked.
    """
    if model._stop_words:
        warn_caller(model._stop_words)
    elif judged and not model.converged_:
        warn_caller(f"{model._verdict.partition('. ')[0]}. check() says what to do.", ConvergenceWarning)


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called us, however deep below it we are: pipelines and `fit_transform` call us, too."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
