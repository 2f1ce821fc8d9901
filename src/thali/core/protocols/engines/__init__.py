"""What engines of observation models can do, by the inference that asks for it.

An engine is made from a model (`observation.engine(CollapsedRows)`). Some things are its own, and opaque to whoever
hands them on:

`Data`      the working form of X that it makes (`prepare`, `row_data`, `point_data`)
`Local`     its NamedTuple of row variables, of which others know `z` (or `z_prob`) and that the first axis is rows
`Particles` its population of hypotheses
"""

from typing import Any, TypeAlias

import numpy as np

Array = np.ndarray
Generator = np.random.Generator

Data: TypeAlias = Any  # opaque: each engine has its own
Local: TypeAlias = Any  # opaque but for `z`: each engine has its own
Particles: TypeAlias = Any  # opaque but for what `ParticleRows` says of it
