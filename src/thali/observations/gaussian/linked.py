"""The sweep of a linear-Gaussian model whose features are handed on along links between rows."""

import numpy as np

from thali.core.observation import Engine
from thali.kernels.links.column_part import column_change
from thali.kernels.links.layout import Columns, Graph, work_space
from thali.kernels.links.link_sweep import link_sweep
from thali.kernels.links.ownership import ownership_sweep
from thali.observations.gaussian.data import GaussianData
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.room import room_for, with_room
from thali.observations.gaussian.rows import BitRows, GaussianRows

Array = np.ndarray

_SHIFTS = 4  # tries to move the first row of a feature, each sweep


class LinkedGaussian(Engine):
    """LinkedRows of a model whose codes are bits."""

    model: GaussianModel

    def column_change(self, data: GaussianData, local: GaussianRows, k: int, rows: Array) -> float:
        columns = self._columns(data, local, np.zeros((0, data.n_rows), np.int64), local.z.shape[1])
        noise = self.model.units[0]
        part, _ = work_space(columns)
        rows = np.asarray(rows, dtype=np.int64)
        return float(column_change(columns, part, local.z.shape[1], k, rows, noise, noise / self.model.feature_var))

    def linked_sweep(
        self,
        rng: np.random.Generator,
        data: GaussianData,
        local: GaussianRows,
        graph: Graph,
        links: Array,
        rates: Array,
        jointly: bool,
    ) -> tuple[GaussianRows, Array, dict[str, float]]:
        noise = self.model.units[0]
        ridge = noise / float(self.model.feature_var)
        K, total = local.z.shape[1], float(rates.sum())
        columns = self._columns(data, local, links, K + 8 + K // 4)
        part, tree = work_space(columns)
        flipped, shifted = link_sweep(graph, columns, part, tree, K, _SHIFTS, noise, ridge, rng)
        wanted = rng.poisson(rates)
        row, proposed, accepted = 0, 0, 0
        while row < data.n_rows:
            spare = columns._replace(**{name: getattr(columns, name).copy() for name in ("gram", "cross", "P", "mu")})
            owners = np.zeros(columns.Z.shape[1], np.int64)
            owners[:K] = (columns.links[:K] == np.arange(data.n_rows)).argmax(axis=1)
            K, row, n_proposed, n_accepted = ownership_sweep(
                graph, columns, spare, part, tree, K, owners, wanted, jointly, row, noise, ridge, rng
            )
            proposed, accepted = proposed + n_proposed, accepted + n_accepted
            if row < data.n_rows:
                need = int(wanted.sum()) if jointly else int(wanted[row])
                room = room_for(K + need, data.n_rows, data.n_dims, total / data.n_rows)
                columns = _with_room(columns, K, max(room, K + need))
                part, tree = work_space(columns)
        rows = BitRows(self.model)
        Z = np.ascontiguousarray(columns.Z[:, :K])
        local = rows.rows(data, Z, local.filled)
        if data.any_hidden:
            local = rows.draw_hidden(rng, data, local)
        remarks = {"flipped": flipped, "shifted": shifted, "proposed": proposed, "accepted": accepted}
        return local, columns.links[:K].copy(), remarks

    def _columns(self, data: GaussianData, local: GaussianRows, links: Array, room: int) -> Columns:
        X, _, _ = data.standardised(self.model.offset, self.model.units[1], local.filled)
        rows = BitRows(self.model)
        return _columns(X, local.z, local.gram, rows.standard_cross(local), links, max(room, 1))


def _columns(X: Array, Z: Array, gram: Array, cross: Array, links: Array, room: int) -> Columns:
    """Copies with so much room."""
    larger_links = np.full((room, len(Z)), -1, dtype=np.int64)
    larger_links[: len(links)] = links
    Z, gram, cross = with_room(Z, gram, cross, room)
    return Columns(X, Z, larger_links, gram, cross, np.zeros((room, room)), np.zeros((room, X.shape[1])))


def _with_room(columns: Columns, K: int, room: int) -> Columns:
    """The K columns in use with more room; P and mu are found anew."""
    gram, cross, links = columns.gram[:K, :K], columns.cross[:K], columns.links[:K]
    return _columns(columns.X, columns.Z[:, :K], gram, cross, links, room)
