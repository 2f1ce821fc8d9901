"""Engines of sparse factor analysis."""
