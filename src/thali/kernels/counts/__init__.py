"""Compiled loops of models of counts."""
