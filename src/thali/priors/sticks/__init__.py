"""The stick-breaking construction of the IBP."""
