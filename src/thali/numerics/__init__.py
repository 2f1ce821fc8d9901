"""Numerical methods that know nothing of features: series, slice sampling, threads, BLAS."""
