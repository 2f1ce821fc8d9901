"""Inference for rows that come one after the other."""
