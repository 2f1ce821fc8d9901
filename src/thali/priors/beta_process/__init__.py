"""The beta process by rounds of atoms."""
