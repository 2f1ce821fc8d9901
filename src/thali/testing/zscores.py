"""Standard errors and the largest z-score that chance allows."""

import numpy as np
from scipy.special import ndtri

FALSE_ALARM = 1e-4


def z_limit(n_statistics: int, false_alarm: float = FALSE_ALARM) -> float:
    """|z| that the largest of n normal z-scores exceeds with probability at most `false_alarm` (Bonferroni)."""
    return float(-ndtri(0.5 * false_alarm / max(n_statistics, 1)))


def z_scores(estimates: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """z of the mean over the first axis (independent replicates) against what is expected.

    A statistic that does not vary scores 0 when it is right and infinity when it is wrong.
    """
    mean = estimates.mean(axis=0)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    gap = mean - expected
    tiny = 1e-12 * (1.0 + np.abs(expected))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.abs(gap) <= tiny, 0.0, gap / error)
