"""What a fit warns of: that it was stopped, or else that it has not converged."""

from typing import Any

from sklearn.exceptions import ConvergenceWarning

from thali.core.caller import warn_caller


def warn_of(model: Any, stopped: str, *, judged: bool = True) -> None:
    """One warning at most: a run that was stopped has its own words, and whoever stopped it expects no convergence.

    A stream that goes on is not judged after each batch: `check()` does so when asked.
    """
    if stopped:
        warn_caller(stopped)
    elif judged and not model.converged_:
        warn_caller(f"{model._verdict.partition('. ')[0]}. check() says what to do.", ConvergenceWarning)
