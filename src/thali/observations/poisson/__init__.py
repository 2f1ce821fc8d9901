"""What Poisson-gamma models of counts compute with."""
