"""Mean field for X = offset + Z A + noise: the factor of a row is q(z_nk = 1) = z_prob[n, k], one for each bit."""

from typing import NamedTuple

import numpy as np

from thali.core.protocols.engines.mean_field import Family
from thali.core.registry import stored
from thali.errors import InvalidParameterError
from thali.kernels.bits.mean_field_rows import BLOCK, update_bits
from thali.numerics.threads import in_spans
from thali.observations.gaussian.mean_field.features import MeanFieldGaussian
from thali.observations.gaussian.mean_field.sums import GaussianFeatures, GaussianSums, evidence, gaussian_sums
from thali.observations.gaussian.row_data import RowData

Array = np.ndarray

_CHUNKS = 64  # at most, of rows that are summed in one go: sums have the same bits on any number of threads
_LEAST_WORK = 3_000_000  # multiplications of a thread: with fewer it takes longer to wake it


@stored("BitFactors")
class BitFactors(NamedTuple):
    """q(z_nk = 1)."""

    z_prob: Array  # (n_rows, n_features)


class MeanFieldBits(MeanFieldGaussian):
    """MeanFieldRows of a model whose codes are its bits."""

    def init_features(self, data: RowData, n_features: int, family: Family) -> GaussianFeatures:
        if family.codes != "joint":
            raise InvalidParameterError(
                f"{type(self.model).__name__} has no weights of which bits could be {family.codes}. "
                "Leave codes out, or use FactorAnalysis or ICA."
            )
        return super().init_features(data, n_features, family)

    def init_rows(self, data: RowData, codes: Array) -> BitFactors:
        return BitFactors(np.array(codes, dtype=float))

    def update_rows(
        self,
        data: RowData,
        q: GaussianFeatures,
        local: BitFactors,
        log_odds: Array,
        n_passes: int = 1,
        n_threads: int | None = None,
    ) -> tuple[BitFactors, GaussianSums]:
        """On at most `n_threads` threads, None for one per core; the bits do not depend on it."""
        X = data.single if q.family.precision == "single" else data.double
        K, n_dims = q.n_features, data.n_dims
        features, forms, of_dims = (
            np.ascontiguousarray(part, X.dtype) for part in evidence(q, any_missing=data.any_missing)
        )
        odds, old = np.asarray(log_odds, X.dtype), np.ascontiguousarray(local.z_prob, X.dtype)
        new = np.empty_like(old)
        chunk = BLOCK * max(-(-data.n_rows // (BLOCK * _CHUNKS)), 1)
        n_chunks = -(-data.n_rows // chunk)
        counts, entropies = np.empty((n_chunks, K)), np.empty(n_chunks)
        grams, crosses = np.empty((n_chunks, K, K)), np.empty((n_chunks, K, n_dims))

        def work(chunks: slice) -> None:
            update_bits(
                X, data.missing_start, data.missing_dim, features, forms, of_dims, odds, old, new, n_passes,
                q.family.bits == "hard", chunk, chunks.start, counts[chunks], grams[chunks], crosses[chunks],
                entropies[chunks],
            )  # fmt: skip

        in_spans(work, n_chunks, 1, max(_LEAST_WORK // (chunk * (K + 1) * (K + n_dims)), 1), n_threads)
        total, gram = counts.sum(axis=0), grams.sum(axis=0)
        np.fill_diagonal(gram, total)
        sums = gaussian_sums(data, total, gram, crosses.sum(axis=0), new, new, float(entropies.sum()), n_threads)
        return BitFactors(new), sums

    def add_column(self, local: BitFactors, codes: Array) -> BitFactors:
        return BitFactors(np.column_stack([local.z_prob, codes]).astype(local.z_prob.dtype, copy=False))

    def draw_rows(self, rng: np.random.Generator, local: BitFactors) -> tuple[Array, Array]:
        bits = (rng.random(local.z_prob.shape) < local.z_prob).astype(np.uint8)
        return bits, bits

    def expected_codes(self, local: BitFactors) -> Array:
        return np.asarray(local.z_prob, dtype=float)
