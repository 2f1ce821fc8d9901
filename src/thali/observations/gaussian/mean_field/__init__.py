"""Mean field for Gaussian models."""
