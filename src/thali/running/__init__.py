"""How an inference runs: stopping, progress, threads, outcomes."""
