"""Warnings that point at the line of the user's that called us."""

import sys
import warnings

_INSIDE = ("thali", "sklearn")


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called us, however deep below it we are: pipelines and `fit_transform` call us, too."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
