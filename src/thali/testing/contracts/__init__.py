"""Every contract that a prior, an observation model or an inference must keep, and the check of each."""
