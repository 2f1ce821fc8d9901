"""What `thali stream` is made of: rows come in, are handed over in batches, and what happens is told."""
