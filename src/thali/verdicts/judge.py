"""Whether a fit can be trusted: chains by their diagnostics, an optimiser by its restarts."""

from typing import Any, NamedTuple

import numpy as np

from thali.verdicts.chains import Agreement, Diagnosis, agree, diagnose, diagnose_filters, filter_verdict, verdict
from thali.verdicts.passes import Passes
from thali.verdicts.restarts import Restarts
from thali.verdicts.seen_once import SeenOnce

Array = np.ndarray

_ALONE = 1.5  # expected rows below which a feature is that of one row


class Judgement(NamedTuple):
    """What the estimator says about a fit."""

    diagnostics: dict[str, Diagnosis]  # of chains; an optimiser has none
    agreement: Agreement
    converged: bool
    words: str


def judge(inference: Any, posterior: Any, history: dict[str, Any]) -> Judgement:
    """The verdict of whatever made the posterior, and a remark on features that only one row has."""
    judgement = _judge(inference, posterior, history)
    by_rows = posterior.model.observation.owners == "rows"
    remark = owned_by_one(posterior.row_counts) if by_rows else ""
    return judgement._replace(words=f"{judgement.words.removesuffix('.')}. {remark}") if remark else judgement


def owned_by_one(row_counts: Array) -> str:
    """5 of 9 features have one row: outliers? Nothing, if no feature is like that."""
    n_single, n_all = int(np.sum(row_counts < _ALONE)), len(row_counts)
    if n_single == 0:
        return ""
    which = "The only feature" if n_all == 1 else f"{n_single} of {n_all} features"
    return f"{which} {'has' if n_single == 1 else 'have'} one row: {'an outlier' if n_single == 1 else 'outliers'}?"


def _stopped_early(inference: Any, history: dict[str, Any]) -> str:
    """What is wrong with draws that were taken before the warm-up was over; nothing, if they were not."""
    n_steps = history["n_features"].shape[1]
    if n_steps > inference.n_warmup:
        return ""
    return (
        f"not converged: the time was over in the warm-up, after {n_steps} of {inference.n_warmup} steps; "
        "what is shown is where the search had come to, and no posterior. "
        "What to do: more time (max_time), less warm-up (n_warmup), or MeanField()."
    )


def _judge(inference: Any, posterior: Any, history: dict[str, Any]) -> Judgement:
    if inference.shape == "blocks":
        passes = Passes.of(history, estimated=not inference.memoised)
        return Judgement({}, passes.agreement(), passes.settled, passes.verdict())
    if inference.shape == "restarts":
        restarts = Restarts.of(history)
        return Judgement({}, restarts.agreement(), restarts.converged, restarts.verdict())
    if inference.shape == "rows" and not inference.keeps_rows:
        once = SeenOnce.of(history)
        return Judgement({}, once.agreement(), False, once.verdict())
    filters = posterior.filters
    if filters is None and (words := _stopped_early(inference, history)):
        agreement = agree(posterior.consensus.chain_features, posterior.draws["free_energy"])
        return Judgement(diagnose(posterior.draws), agreement, False, words)
    diagnostics = diagnose(posterior.draws) if filters is None else diagnose_filters(posterior.draws)
    agreement = agree(posterior.consensus.chain_features, posterior.draws["free_energy"])
    converged = all(d.good for d in diagnostics.values()) and not agreement.differing
    if filters is None:
        words = verdict(diagnostics, agreement, lacks_floor=posterior.model.observation.floor_share == 0.0)
    else:
        words = filter_verdict(filters, diagnostics, agreement)
    return Judgement(diagnostics, agreement, converged, words)
