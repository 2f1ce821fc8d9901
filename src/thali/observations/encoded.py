"""What a draw says of rows that were not fitted."""

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Encoded(NamedTuple):
    """What a draw says of new rows, each on its own."""

    presence: Array  # (n_rows, n_features) P(row has feature)
    codes: Array  # (n_rows, n_features) expected codes
    log_density: Array  # (n_rows,)
    draws: Array | None = None  # (n_rows, n_draws, n_features) codes from their posterior, where they are kept
