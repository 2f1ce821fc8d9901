"""Priors over binary matrices. A new prior is one new file here and one line below."""

from thali.priors.beta_bernoulli import BetaBernoulli
from thali.priors.ibp import IBP

__all__ = ["IBP", "BetaBernoulli"]
