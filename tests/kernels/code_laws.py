"""Laws of a weight for the tests of variational factors."""

import math

from hypothesis import strategies as st

from thali.kernels.weights import slabs

NORMAL = (0.0, 1.0 / 1.3, 0.5 * math.log(2 * math.pi * 1.3))
LAPLACE = (1.4, 0.0, math.log(2 / 1.4))
LAWS = {"normal": NORMAL, "laplace": LAPLACE, "both": (0.7, 0.4, slabs.log_slab(0.0, 0.0, 0.7, 0.4, 0.0))}
moderate = st.floats(-30, 30)
curves = st.floats(1e-6, 1e3)
