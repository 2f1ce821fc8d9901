"""The sweep of models with weights whose features are handed on along links between rows.

Features are drawn beside the codes, as in `WeightedSweeps`: given them, what a bit with its weight integrated out does
to its row is one number, and links move rows by the sum of these. A feature is born and dies with its values integrated
out, given all others.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thali.core.observation import Engine
from thali.kernels.links.evident_links import evident_links
from thali.kernels.links.layout import Graph, Tree, tree_space
from thali.kernels.links.ownership import draw_linked
from thali.kernels.weights.slab_rows import draw_slabs, log_slabs
from thali.kernels.weights.slabs import draw_scale
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.weight_law import draw_scales
from thali.observations.gaussian.weighted_rows import WeightedChain, WeightedRows
from thali.observations.gaussian.weighted_sweeps import WeightedSweeps

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.gaussian.weighted import WeightedGaussian

Array = np.ndarray
Generator = np.random.Generator

_SHIFTS = 4  # tries to move the first row of a feature, each sweep


class WeightedLinks(Engine):
    """LinkedRows of a model with weights."""

    model: "WeightedGaussian"

    def __init__(self, model: "WeightedGaussian") -> None:
        super().__init__(model)
        self.rows = WeightedChain(model)

    def column_change(self, data: GaussianData, local: WeightedRows, k: int, rows: Array) -> float:
        """Of log p(X, W | Z), rows that get the feature having the code 1."""
        codes = local.v.copy()
        codes[rows, k] = np.where(codes[rows, k] != 0, 0.0, 1.0)
        changed = self.rows.rows(data, codes, local.filled)
        return self.rows.log_evidence(data, changed) - self.rows.log_evidence(data, local)

    def linked_sweep(
        self,
        rng: Generator,
        data: GaussianData,
        local: WeightedRows,
        graph: Graph,
        links: Array,
        rates: Array,
        jointly: bool,
    ) -> tuple[WeightedRows, Array, dict[str, float]]:
        model, (noise, scale) = self.model, self.model.units
        X, _, _ = data.standardised(model.offset, scale, local.filled)
        V, links, A = local.v.copy(), links.copy(), self.rows.drawn_features(rng, local)
        flipped = self._sweep_columns(rng, graph, tree_space(data.n_rows), X, V, A, links, noise)
        features = _Features(V, A, links, X - V @ A)
        proposed = accepted = 0
        wanted = rng.poisson(rates)
        owners = [np.arange(data.n_rows)] if jointly else np.arange(data.n_rows)[:, None]
        for some in owners:
            changed = self._propose(rng, graph, features, some, wanted, noise)
            if changed is not None:
                proposed += 1
                accepted += changed is not features
                features = changed
        V = features.V * WeightedSweeps(model).stretch(rng, features.V, features.A)
        local = self.rows.rows(data, V, local.filled)
        if data.any_hidden:
            local = self.rows.draw_hidden(rng, data, local)
        return local, features.links, {"flipped": flipped, "shifted": 0, "proposed": proposed, "accepted": accepted}

    def _sweep_columns(
        self, rng: Generator, graph: Graph, tree: Tree, X: Array, V: Array, A: Array, links: Array, noise: float
    ) -> int:
        """Links, bits and weights of every feature; V and links change in place. How many bits changed."""
        rate, precision, log_norm = self.model.law
        scales, E, evidence, flipped = draw_scales(rng, self.model, V), X - V @ A, np.zeros(len(X)), 0
        for k in rng.permutation(len(A)):
            E += np.outer(V[:, k], A[k])
            bits = (V[:, k] != 0).astype(np.uint8)
            before = bits.copy()
            pulls = scales[k] * (E @ A[k]) / noise
            curve = scales[k] ** 2 * float(A[k] @ A[k]) / noise
            log_slabs(pulls, curve, rate, precision, log_norm, evidence)
            evident_links(graph, bits, links[k], evidence, tree, _SHIFTS, rng)
            codes = np.zeros(len(X))
            draw_slabs(bits, pulls, curve, scales[k], rate, precision, codes, rng)
            V[:, k] = codes
            flipped += int((bits != before).sum())
            E -= np.outer(codes, A[k])
        return flipped

    def _propose(
        self, rng: Generator, graph: Graph, features: "_Features", some: Array, wanted: Array, noise: float
    ) -> "_Features | None":
        """Another number of features that these rows own, by Metropolis-Hastings; None if it is the same.

        New ones have links and weights from the prior, as many as must go are picked uniformly. Values of features are
        integrated out of both, and drawn anew.
        """
        V, A, links, E = features
        owned = links[:, some] == some
        dead, born = [], []
        for row, mine in zip(some, owned.T, strict=True):
            more = int(wanted[row] - mine.sum())
            if more < 0:
                dead += rng.permutation(np.flatnonzero(mine))[: mine.sum() - wanted[row]].tolist()
            born += [row] * max(more, 0)
        if not dead and not born:
            return None
        fresh, new_links = self._born(rng, graph, born, len(V))
        E = E + V[:, dead] @ A[dead]
        ridge = noise / float(self.model.feature_var)
        gain = _log_gain(fresh, E, noise, ridge) - _log_gain(V[:, dead], E, noise, ridge)
        # eq: own.dd-weighted-birth
        if math.log(1.0 - rng.random()) >= gain:
            return features
        P = np.linalg.inv(fresh.T @ fresh + ridge * np.eye(len(born)))
        spread = math.sqrt(noise) * np.linalg.cholesky(P) @ rng.standard_normal((len(born), E.shape[1]))
        values = P @ (fresh.T @ E) + spread
        kept = np.setdiff1d(np.arange(len(A)), dead)
        return _Features(
            np.hstack([V[:, kept], fresh]),
            np.vstack([A[kept], values]),
            np.vstack([links[kept], new_links]),
            E - fresh @ values,
        )

    def _born(self, rng: Generator, graph: Graph, owners: list[int], n_rows: int) -> tuple[Array, Array]:
        """Codes and links of new features, from the prior."""
        model, tree = self.model, tree_space(n_rows)
        codes, links = np.zeros((n_rows, len(owners))), np.full((len(owners), n_rows), -1, dtype=np.int64)
        for k, owner in enumerate(owners):
            n_on = draw_linked(graph, owner, tree, links[k], rng)
            scale = draw_scale(model.ard or 0.0, model.law.rate, rng)
            codes[tree.stack[:n_on], k] = scale * model.draw_weights(rng, n_on)
        return codes, links


class _Features(NamedTuple):
    """Codes, features and links, and what they leave of the standardised data."""

    V: Array
    A: Array
    links: Array
    E: Array


def _log_gain(U: Array, E: Array, noise: float, ridge: float) -> float:
    """log p(E | codes U) - log p(E | none), features integrated out."""
    H = U.T @ U + ridge * np.eye(U.shape[1])
    cross = U.T @ E
    log_det = float(np.linalg.slogdet(H / ridge)[1])
    return -0.5 * E.shape[1] * log_det + 0.5 * float(np.sum(cross * np.linalg.solve(H, cross))) / noise
