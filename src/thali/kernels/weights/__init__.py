"""Compiled loops of models whose features have real weights."""
