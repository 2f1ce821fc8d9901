"""How near a fit came to the truth behind simulated data."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from thali.datasets import Dataset
    from thali.estimator import LatentFeatures


def recovery(model: "LatentFeatures", data: "Dataset") -> str:
    """In words: features matched one to one to the true ones, their errors, and the rows that have them."""
    from scipy.optimize import linear_sum_assignment

    truth, Z = data.features, data.Z
    assert truth is not None
    assert Z is not None
    distances = np.linalg.norm(truth[:, None] - model.components_[None], axis=2)
    true_index, found_index = linear_sum_assignment(distances)
    parts = [f"true K = {len(truth)}, found {model.n_components_}"]
    if len(true_index):
        errors = distances[true_index, found_index] / np.linalg.norm(truth[true_index], axis=1)
        agree = (model.presence(data.X)[:, found_index] > 0.5) == Z[:, true_index]
        parts.append(f"relative error of the features at most {100 * errors.max():.0f} %")
        parts.append(f"right about who has them in {100 * agree.mean():.1f} % of cases")
    return "; ".join(parts)
