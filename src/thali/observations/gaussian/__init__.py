"""What Gaussian models X = offset + V A + noise compute with."""
