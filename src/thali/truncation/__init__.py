"""How far a truncated prior is off: the probability that N rows would have used a feature beyond the truncation."""

from thali.truncation.bounds import LABELS, TruncationBounds, suggest_truncation, truncation_bounds

__all__ = ["LABELS", "TruncationBounds", "suggest_truncation", "truncation_bounds"]
