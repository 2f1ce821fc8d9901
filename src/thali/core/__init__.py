"""The vocabulary: specs, distributions, models, binary matrices, and the protocols by which parts meet."""
