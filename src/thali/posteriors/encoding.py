"""Which features rows have, and with which codes: rows that were fitted by their own draws, others by the encoder.

A fitted row has bits of its own in every draw, and their average is its posterior given all data. The encoder knows the
features of one draw alone, and is surer than it should be. Rows are told one by one, by their content: whatever their
company and order, a row has the same answer. Equal rows are exchangeable, so they share the mean of theirs.
"""

from typing import Any, NamedTuple

import numpy as np

from thali.data.row_digests import KnownRows, row_digests
from thali.posteriors.base import Posterior

Array = np.ndarray


class Codes(NamedTuple):
    """Of the persistent features, for each row."""

    presence: Array  # P(row has feature)
    codes: Array  # expected codes


def encode(posterior: Posterior, X: Any) -> Codes:
    """Given that the features are there: how sure that is, `stability_` says."""
    if posterior.row_digests is None:
        return _by_encoder(posterior, X)
    known = KnownRows(posterior.row_digests)
    group = known.find(row_digests(X))
    new = np.flatnonzero(group < 0)
    if len(new) == len(group):
        return _by_encoder(posterior, X)
    consensus = posterior.consensus
    has_presence = posterior.model.observation.owners == "rows"  # else each row has a code of every feature
    presence = consensus.presence if has_presence else np.ones(consensus.codes.shape)
    presence = known.mean(presence)[group]  # eq: own.fitted-rows
    codes = presence.copy() if posterior.codes_are_bits else known.mean(consensus.codes)[group]
    if len(new):
        presence[new], codes[new] = _by_encoder(posterior.of_new(new), X[new])
    return Codes(presence, codes)


def _by_encoder(posterior: Posterior, X: Any) -> Codes:
    encoded = posterior.encoder.encode(X)
    return Codes(encoded.presence, encoded.codes)
