"""Features of a filter that are another one, or a sum of others."""

import numpy as np

from thali.observations.gaussian.recursive_features import RecursiveFeatures

Array = np.ndarray

_ALIKE = 0.25  # squared distance of features that are one, in units of the noise of a row
_RARER = 0.5  # a sum of features is none of its own if it is so much rarer than each of them


def parts_of(this: int, known: RecursiveFeatures, noise: float, ridge: float) -> list[int]:
    """Other features that are together what this one is; none if it is something else."""
    mean, n_dims = known.mean, known.mean.shape[1]
    spread = n_dims * noise / (ridge + known.rows.mean(axis=1))
    left, parts = mean[this].copy(), []
    others = [k for k in range(known.n_features) if k != this]
    while others:
        distance = ((left - mean[others]) ** 2).sum(axis=1)
        best = int(np.argmin(distance))
        if distance[best] >= (left**2).sum():
            break
        parts.append(others.pop(best))
        left = left - mean[parts[-1]]
    rare = len(parts) == 1 or all(known.counts[this] < _RARER * known.counts[k] for k in parts)
    # eq: own.merging
    limit = _ALIKE * n_dims * noise + 2.0 * (spread[this] + spread[parts].sum())
    return parts if parts and rare and (left**2).sum() < limit else []


def without(known: RecursiveFeatures, this: int, parts: list[int], ridge: float) -> RecursiveFeatures:
    """Without this feature. Where it was another one, that one has seen its rows, too."""
    mean, rows, counts = known.mean.copy(), known.rows.copy(), known.counts.copy()
    exists, age = known.exists.copy(), known.age.copy()
    for k in parts:
        if len(parts) == 1:
            own = ridge + rows[k]
            mean[k] = (own * mean[k] + rows[this] * mean[this]) / (own + rows[this])
            rows[k] += rows[this]
        counts[k] += max(counts[this] - known.together[k, this], 0.0)
        exists[k] = 1.0 - (1.0 - exists[k]) * (1.0 - exists[this])
        age[k] = max(age[k], age[this])
    rest = np.delete(np.arange(known.n_features), this)
    return known._replace(
        mean=mean[rest], rows=rows[rest], counts=counts[rest], exists=exists[rest], age=age[rest],
        number=known.number[rest], told=known.told[rest], together=known.together[np.ix_(rest, rest)],
        is_settled=known.is_settled[rest], settled=known.settled[rest],
    )  # fmt: skip
