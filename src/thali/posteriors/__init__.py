"""What a fit has found: draws or factors, summaries that need no labels, predictions."""
