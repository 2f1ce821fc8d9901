"""X = offset + Z A + noise, with Gaussian features A integrated out (Griffiths & Ghahramani 2005)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from thali.core.binary import Array, check_binary
from thali.core.registry import stored
from thali.kernels.bits.collapsed_rows import collapsed_sweep
from thali.kernels.bits.encode_rows import encode_rows
from thali.kernels.bits.encode_sampled import encode_sampled
from thali.observations.encoded import Encoded
from thali.observations.gaussian.column_moves import ColumnProposals
from thali.observations.gaussian.conditional import ConditionalGaussian
from thali.observations.gaussian.data import GaussianData, GaussianRows, with_room
from thali.observations.gaussian.mean_field.bits import MeanFieldBits
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.parallel import ParallelGaussian
from thali.observations.gaussian.particles import GaussianParticles
from thali.observations.gaussian.point import HardGaussian
from thali.rng import make_generator

_ENUMERATED = 8  # with more features new rows are encoded by sampling
_SCANS, _DRAWS = 120, 120


@stored("LinearGaussian")
@dataclass(frozen=True, eq=False)
class LinearGaussian(
    ColumnProposals,
    ConditionalGaussian,
    GaussianParticles,
    ParallelGaussian,
    HardGaussian,
    MeanFieldBits,
    GaussianModel,
):
    """Binary features that add up, with Gaussian noise.

    noise_var: a positive number; an array with one per dim; a distribution (learned); PerDim() (learned, one per dim).
    feature_var: a number or a distribution (learned); None takes a vague one that suits the kind of noise.
    offset: None as in the papers, a vector, or NormalOffset() (learned). It is undone in reconstructions.
    noise_floor: a learned noise variance stays above this share of the dim's variance (of the mean one, if there is
    one noise level). On real data the number of features is a function of it.
    scale: the variance of each dim, to which relative priors and the floor refer; None takes it from the data.
    origin: numbers, one per dim, from which data and offset are counted, so that squares keep their digits; None takes
    round ones near the data in dims that lie 2^10 sds or more from zero, if there is an offset.
    """

    # ---- codes are the bits

    def check_codes(self, codes: Any) -> Array:
        return check_binary(codes).astype(float)

    def draw_codes(self, rng: np.random.Generator, Z: Array) -> Array:
        return Z

    def codes(self, Z: Array, codebook: dict[str, Array]) -> Array:
        return Z

    def codes_of(self, local: GaussianRows) -> Array:
        return local.z

    def totals(self, local: GaussianRows) -> Array:
        return np.diag(local.gram)

    def definite(self, rng: np.random.Generator, codebook: dict[str, Array]) -> dict[str, Array]:
        return codebook  # features are integrated out of `encode`

    def rows(self, data: GaussianData, codes: Array, filled: Array) -> GaussianRows:
        return GaussianRows(np.ascontiguousarray(codes, dtype=np.uint8), *self.statistics(data, codes, filled), filled)

    # ---- CollapsedRows

    def sweep(
        self,
        rng: np.random.Generator,
        data: GaussianData,
        local: GaussianRows,
        log_odds: Array,
        new_rate: float,
        group: int = 1,
        keys: Array | None = None,
    ) -> tuple[GaussianRows, dict[str, float]]:
        noise, scale = self.units
        offset = self.offset
        X, products, square = data.standardised(offset, scale, local.filled)
        K = local.z.shape[1]
        room = K + (0 if new_rate == 0 else 8 + K // 4)
        order = rng.random(room) if keys is None else np.concatenate([keys, np.zeros(room - K)])
        Z, gram, cross = with_room(local.z, local.gram, self.standard_cross(local), room)
        row, pending, changed, rebuilt = 0, -1, 0, 0
        while row < data.n_rows:
            K, row, pending, n_changed, n_rebuilt, drift = collapsed_sweep(
                X, square, products, data.missing_start, data.missing_dim, Z, K, gram, cross,
                log_odds, new_rate, noise, float(self.feature_var), group, order, row, pending, rng,
            )  # fmt: skip
            changed, rebuilt = changed + n_changed, rebuilt + n_rebuilt
            if row < data.n_rows:
                room = self.room_for(K + pending, data, new_rate)
                Z, gram, cross = with_room(Z[:, :K], gram[:K, :K], cross[:K], room)
                order = np.concatenate([order[:K], np.zeros(room - K)])
        filled = data.take_filled(offset, scale, local.filled)
        info = {"changed": changed / data.n_rows, "rebuilt": rebuilt / data.n_rows, "drift": drift}
        return self.from_standard(Z, K, gram, cross, filled), info

    def from_standard(self, Z: Array, K: int, gram: Array, cross: Array, filled: Array) -> GaussianRows:
        """Row variables from a kernel's arrays, which have room for more than K columns and standardised data."""
        scale = self.units[1]
        gram = gram[:K, :K].copy()
        cross = np.array(cross[:K]) if scale is None else cross[:K] * scale
        if self.offset is not None:
            cross = cross + np.outer(np.diag(gram), self.offset)
        return GaussianRows(np.ascontiguousarray(Z[:, :K]), gram, cross, filled)

    def encode(self, X: Array, codebook: dict[str, Array], log_odds: Array, new_rate: float) -> Encoded:
        noise, scale = self.units
        observed = ~np.isnan(X)
        Y = np.where(observed, self.from_origin(X), 0.0)
        if self.offset is not None:
            Y = np.where(observed, Y - self.offset, 0.0)
        features = codebook["features"]
        change = np.zeros(len(X))
        if scale is not None:
            Y, features = Y / scale, features / scale
            change = observed @ np.log(scale)
        arguments = (
            np.ascontiguousarray(Y), observed, np.ascontiguousarray(features), codebook["gram_inv"],
            np.asarray(log_odds, float), float(new_rate), noise, float(self.feature_var),
        )  # fmt: skip
        if len(features) <= _ENUMERATED:
            presence, log_density = encode_rows(*arguments)
        else:  # the same uniforms every time: encoding is a function of the row alone
            uniforms = make_generator(0).random((_SCANS + _DRAWS, len(features)))
            presence, log_density = encode_sampled(*arguments, uniforms[:_SCANS], uniforms[_SCANS:])
        return Encoded(presence, presence, log_density - change)

    def sample_codes(self, rng: np.random.Generator, encoded: Encoded, owner: Array) -> Array:
        """Bits of the rows `owner`, drawn independently by their probabilities."""
        return rng.random((len(owner), encoded.presence.shape[1])) < encoded.presence[owner]
