"""Whether a fit can be trusted, in numbers and in words."""
