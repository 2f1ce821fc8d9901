"""Priors of rows that are not exchangeable: near rows share features."""
