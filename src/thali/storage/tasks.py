"""A line of work that goes on in steps and can be kept on disk in between: a chain, a restart, a filter, a fit by
blocks of rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

Generator = np.random.Generator


class Task:
    """Its stream, its state, the draws it kept and remarks on its steps. A step changes them together."""

    def __init__(
        self, number: int, rng: Generator, state: Any = None, kept: Sequence[Any] = (), infos: Sequence[Any] = ()
    ) -> None:
        self.number, self.rng, self.state = number, rng, state
        self.kept, self.infos = list(kept), list(infos)
        self.n_steps = 0  # that this process made
        self.cut = False  # whether its start was cut short by the clock: another run would begin elsewhere
        self.data: Any = None  # the working form of X, made when it begins
