"""Compiled loops of models whose codes are bits."""
