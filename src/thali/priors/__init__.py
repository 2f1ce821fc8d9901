"""Priors over binary matrices. A new prior is one new file here and one line below."""

from thali.priors.beta_bernoulli import BetaBernoulli
from thali.priors.beta_process.prior import BetaProcess
from thali.priors.ibp import IBP
from thali.priors.proximity.distance_dependent import DistanceDependentIBP
from thali.priors.proximity.hierarchical import HierarchicalBetaProcess
from thali.priors.sticks.prior import StickBreakingIBP

__all__ = [
    "IBP",
    "BetaBernoulli",
    "BetaProcess",
    "DistanceDependentIBP",
    "HierarchicalBetaProcess",
    "StickBreakingIBP",
]
