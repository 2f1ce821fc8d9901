"""What is estimated from the data before inference begins: scales, and how far noise may be learned away."""
