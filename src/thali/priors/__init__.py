"""Priors over binary matrices. A new prior is one new file here and one line below."""

from thali.priors.beta_bernoulli import BetaBernoulli
from thali.priors.beta_process import BetaProcess
from thali.priors.distance_dependent import DistanceDependentIBP
from thali.priors.hierarchical import HierarchicalBetaProcess
from thali.priors.ibp import IBP
from thali.priors.stick_breaking import StickBreakingIBP

__all__ = [
    "IBP",
    "BetaBernoulli",
    "BetaProcess",
    "DistanceDependentIBP",
    "HierarchicalBetaProcess",
    "StickBreakingIBP",
]
