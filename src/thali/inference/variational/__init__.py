"""Variational inference: coordinate ascent on a bound."""
