"""What a dependent hierarchical beta process says of rows that come after those it has groups for."""

from typing import TYPE_CHECKING

import numpy as np

from thali.priors.proximity.group_draws import Urns, begin_marks, log_urns, redraw_marks
from thali.rng import make_generator

if TYPE_CHECKING:  # which builds on this module
    from thali.priors.proximity.hierarchical import HierarchicalBetaProcess

Array = np.ndarray

_SWEEPS = 20  # over groups and sizes, whose chances are averaged
_PROPOSALS = 2_000  # of features that the new row may be the first to have, if groups are mixed by feature


def new_row_chances(prior: "HierarchicalBetaProcess", near: Array, Z: Array) -> tuple[Array, Array]:
    """(P(new row has feature), rates of features that it alone has). A new row's own group is one that no other row
    follows; the same random numbers every time, for a prediction is a function of the row alone."""
    rng = make_generator(0)
    f = np.where(np.isfinite(near), np.asarray(prior.decay(near), dtype=float), 0.0)
    own = float(np.asarray(prior.decay(np.zeros(1)))[0])
    totals = f.sum(axis=1) + own
    follows, alone = f / totals[:, None], own / totals
    c1, M, by_row = prior.group_concentration, prior.n_groups, prior.mixing == "row"
    marks = begin_marks(rng, prior, Z)
    chance, rate = np.zeros((len(near), Z.shape[1])), np.zeros(len(near))
    _, weights = prior.void_nodes
    for _ in range(_SWEEPS):
        marks = redraw_marks(rng, prior, Z, marks)
        seen, held = Urns.of(Z, np.broadcast_to(marks.groups, Z.shape), M)
        # eq: own.dhbp-new-row
        chance += follows @ ((c1 * marks.sizes[:, None] + held) / (c1 + seen)).T + alone[:, None] * marks.sizes
        if by_row:
            rows = np.bincount(marks.groups[:, 0], minlength=M).astype(float)
            none = float(weights @ np.exp(prior.log_none(rows)))
            rate += prior.mass * none * (follows @ (c1 / (c1 + rows)) + alone)
    if not by_row:
        p = -np.expm1(-rng.exponential(size=_PROPOSALS) / prior.concentration)
        paths = prior.draw_paths(rng, _PROPOSALS)
        urns = Urns.of(np.zeros(paths.T.shape, np.uint8), paths.T, M)
        none = np.exp(log_urns(np.clip(p, 1e-300, 1.0), c1, urns))
        first = follows @ (none[:, None] * c1 / (c1 + urns.seen)).mean(axis=0) + alone * none.mean()
        return chance / _SWEEPS, prior.mass * first
    return chance / _SWEEPS, rate / _SWEEPS
