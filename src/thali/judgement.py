"""Whether a fit can be trusted: chains by their diagnostics, an optimiser by its restarts."""

from typing import Any, NamedTuple

from thali.diagnostics import Agreement, Diagnosis, agree, diagnose, diagnose_filters, filter_verdict, verdict
from thali.optimiser_protocols import Optimiser
from thali.passes import Passes
from thali.restarts import Restarts
from thali.stream_protocols import Blockwise


class Judgement(NamedTuple):
    """What the estimator says about a fit."""

    diagnostics: dict[str, Diagnosis]  # of chains; an optimiser has none
    agreement: Agreement
    converged: bool
    words: str


def judge(inference: Any, posterior: Any, history: dict[str, Any]) -> Judgement:
    if isinstance(inference, Blockwise):
        passes = Passes.of(history, estimated=not inference.memoised)
        return Judgement({}, passes.agreement(), passes.settled, passes.verdict())
    if isinstance(inference, Optimiser):
        restarts = Restarts.of(history)
        return Judgement({}, restarts.agreement(), restarts.converged, restarts.verdict())
    filters = posterior.filters
    diagnostics = diagnose(posterior.draws) if filters is None else diagnose_filters(posterior.draws)
    agreement = agree(posterior.consensus.chain_features, posterior.draws["free_energy"])
    converged = all(d.good for d in diagnostics.values()) and not agreement.differing
    words = verdict(diagnostics, agreement) if filters is None else filter_verdict(filters, diagnostics, agreement)
    return Judgement(diagnostics, agreement, converged, words)
