"""Fits and runs on disk."""
