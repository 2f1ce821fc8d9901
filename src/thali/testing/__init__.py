"""Proofs for samplers, public so that you can certify your own parts.

* `enumerate_posterior`: the exact posterior on tiny data; `compare_with_exact` compares a sampler with it.
* `flow_test`: detailed balance of a move, by its flows between classes of matrices.
* `geweke`, `geweke_sweeps`: joint-distribution tests, with a compiled form for millions of replicates.
* `sbc`: simulation-based calibration.
* `check_prior`, `check_observation`, `check_inference`: every contract that a component of any kind must keep.

docs/skeletons has a likelihood, a prior and a sampler to begin with, and shows how each is proved.

All tolerances are computed from Monte Carlo error: `z_limit(n)` is the largest |z| that n statistics may show together
with a false-alarm probability of 1e-4.
"""

from thali.testing.contracts.inference import check_inference
from thali.testing.contracts.observation import check_observation
from thali.testing.contracts.prior import check_prior
from thali.testing.enumerate import ExactPosterior, compare_with_exact, enumerate_posterior, sweep_against_exact
from thali.testing.flows import Flows, flow_test
from thali.testing.geweke import GewekeResult, geweke, geweke_sweeps
from thali.testing.sbc import SBCResult, sbc
from thali.testing.zscores import z_limit

__all__ = [
    "ExactPosterior", "enumerate_posterior", "compare_with_exact", "sweep_against_exact",
    "Flows", "flow_test",
    "GewekeResult", "geweke", "geweke_sweeps",
    "SBCResult", "sbc",
    "check_prior", "check_observation", "check_inference",
    "z_limit",
]  # fmt: skip
