"""Where inference begins."""
