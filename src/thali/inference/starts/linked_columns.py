"""Columns of a start that was found with exchangeable rows, once rows are linked.

To exchangeable rows it is all the same whether two features are {A or B, B} or {A, B}: they explain the data alike.
Links tell them apart: a feature whose rows lie together has far more probability than one with a gap in it, and a chain
does not go from the one to the other in reasonable time. So columns are replaced by what they make with another one, as
long as that makes the joint larger. Nothing here needs to be reversible.
"""

from typing import Any

import numpy as np

from thali.core.protocols.engines.chains import ChainRows

Array = np.ndarray

_WORTH = 1.0  # nats by which the joint must grow
_LARGE = 500  # rows with a feature, beyond which its probability takes too long to compute
_PASSES = 4  # over all pairs of columns


def gather_columns(prior: Any, observation: Any, data: Any, local: Any) -> Any:
    """The row variables with columns changed, one after the other, to their symmetric difference with, union with or
    difference from another column, wherever that makes log p(X, Z) larger."""
    rows, Z = observation.engine(ChainRows), local.z.copy()
    if Z.shape[1] < 2 or Z.sum(axis=0).max() > _LARGE:
        return local
    X, evidence, rates = rows.completed(data, local), rows.log_evidence(data, local), prior.log_columns(Z)
    for _ in range(_PASSES):
        changed = False
        for k in range(Z.shape[1]):
            for j in range(Z.shape[1]):
                for column in _together(Z[:, k], Z[:, j]) if j != k else []:
                    rate = prior.log_columns(column[:, None])[0]
                    if rate - rates[k] <= _WORTH:
                        continue
                    candidate = Z.copy()
                    candidate[:, k] = column
                    placed = rows.place(data, candidate, X)
                    explained = rows.log_evidence(data, placed)
                    if rate - rates[k] + explained - evidence > _WORTH:
                        Z, local, evidence, rates[k], changed = candidate, placed, explained, rate, True
        if not changed:
            break
    return local


def _together(one: Array, other: Array) -> list[Array]:
    """What two columns make, if it is none of them and not empty."""
    made = (one ^ other, one | other, one & (1 - other))
    return [column for column in made if column.any() and (column != one).any() and (column != other).any()]
