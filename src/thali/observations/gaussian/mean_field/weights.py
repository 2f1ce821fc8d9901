"""Mean field for X = offset + (Z * W) A + noise: the factor of each bit and its weight, in any row.

It is joint, or a product as in Doshi-Velez et al. 2009 (`weight_factors`). Hard bits (Paisley et al. 2011) are 0 or 1,
chosen together with their weights.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from thali.core.protocols.engines.mean_field import Family
from thali.errors import InvalidParameterError
from thali.kernels.weights.mean_field_codes import draw_joint, independent_rows, joint_rows
from thali.numerics.threads import in_spans
from thali.observations.gaussian.codebook import GaussianCodebook, WeightedCodebook
from thali.observations.gaussian.mean_field.features import MeanFieldGaussian
from thali.observations.gaussian.mean_field.sums import GaussianFeatures, GaussianSums, evidence, gaussian_sums
from thali.observations.gaussian.mean_field.weight_factors import (
    Codes,
    JointCodes,
    as_independent,
    in_family,
    near,
    scaled,
    sizes,
)
from thali.observations.gaussian.row_data import RowData

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.gaussian.weighted import WeightedGaussian

Array = np.ndarray

_ROWS, _CHUNKS = 256, 64  # of rows that are summed in one go: sums have the same bits on any number of threads
_LEAST_BITS = 4_000  # of a thread: with fewer it takes longer to wake it
_STEPS = 30  # of Newton's method


class MeanFieldWeights(MeanFieldGaussian):
    """MeanFieldRows and ScaledFeatures of a model with weights."""

    model: "WeightedGaussian"

    def init_features(self, data: RowData, n_features: int, family: Family) -> GaussianFeatures:
        if self.model.ard is not None:
            raise InvalidParameterError(
                f"Variational inference needs {type(self.model).__name__}.ard to be None "
                f"(one variance for all features). Got {self.model.ard!r}; leave it out, or use Gibbs or SliceSampler."
            )
        return super().init_features(data, n_features, family)

    def init_rows(self, data: RowData, codes: Array) -> JointCodes:
        return near(np.asarray(codes, dtype=float), self.model.law, self.model.weight_var)

    def update_rows(
        self,
        data: RowData,
        q: GaussianFeatures,
        local: Codes,
        log_odds: Array,
        n_passes: int = 1,
        n_threads: int | None = None,
    ) -> tuple[Codes, GaussianSums]:
        """On at most `n_threads` threads, None for one per core; the bits do not depend on it."""
        X = data.single if q.family.precision == "single" else data.double
        K, n_rows = q.n_features, data.n_rows
        features, forms, of_dims = map(np.ascontiguousarray, evidence(q, any_missing=data.any_missing))
        features, odds = features.T.astype(X.dtype), np.asarray(log_odds, dtype=float)
        sharpness = math.inf if q.family.bits == "hard" else 1.0
        local = in_family(local, q.family, self.model.law)
        update = joint_rows if isinstance(local, JointCodes) else independent_rows
        v, square = np.zeros((n_rows, K)), np.zeros((n_rows, K))
        chunk = _ROWS * max(-(-n_rows // (_ROWS * _CHUNKS)), 1)
        n_chunks = -(-n_rows // chunk)
        entropies, grams, crosses = np.empty(n_chunks), np.empty((n_chunks, K, K)), np.empty((n_chunks, K, data.n_dims))

        def work(chunks: slice) -> None:
            for i in range(chunks.start, chunks.stop):
                rows = slice(i * chunk, min((i + 1) * chunk, n_rows))
                entropies[i] = update(
                    np.asarray(X[rows] @ features, dtype=float), data.missing_start[rows.start : rows.stop + 1],
                    data.missing_dim, forms, of_dims, odds, *self.model.law, sharpness, n_passes,
                    *(part[rows] for part in local), v[rows], square[rows],
                )  # fmt: skip
                grams[i], crosses[i] = v[rows].T @ v[rows], v[rows].T @ data.double[rows]

        in_spans(work, n_chunks, 1, max(_LEAST_BITS // (chunk * max(K, 1)), 1), n_threads)
        gram = grams.sum(axis=0)
        # eq: own.expected-gram
        gram[np.diag_indices(K)] = square.sum(axis=0)
        counts, entropy = local.z_prob.sum(axis=0), float(entropies.sum())
        return local, gaussian_sums(data, counts, gram, crosses.sum(axis=0), v, square, entropy, n_threads)

    def add_column(self, local: Codes, codes: Array) -> Codes:
        joint = near(np.reshape(codes, (-1, 1)).astype(float), self.model.law, self.model.weight_var)
        column = joint if isinstance(local, JointCodes) else as_independent(joint, self.model.law)
        return type(local)(*(np.hstack(pair) for pair in zip(local, column, strict=True)))

    def draw_rows(self, rng: np.random.Generator, local: Codes) -> tuple[Array, Array]:
        bits = (rng.random(local.z_prob.shape) < local.z_prob).astype(np.uint8)
        rate, precision, _ = self.model.law
        if isinstance(local, JointCodes):
            codes = np.zeros(bits.shape)
            draw_joint(bits, local.pull, local.curve, rate, precision, codes, rng)
        elif rate > 0:
            codes = bits * rng.laplace(local.mean, local.spread)
        else:
            codes = bits * rng.normal(local.mean, np.sqrt(local.spread))
        return bits, codes

    def check(self, q: GaussianFeatures, local: Codes) -> None:
        super().check(q, local)
        if ((local.curve if isinstance(local, JointCodes) else local.spread) < 0).any():
            raise ValueError("its weights have negative variances")

    def expected_codes(self, local: Codes) -> Array:
        return local.z_prob * local.mean

    def codebook(self, q: GaussianFeatures, local: Any) -> WeightedCodebook:
        book = cast(GaussianCodebook, super().codebook(q, local))
        return WeightedCodebook(book.features, book.counts, book.gram_inv, np.ones(q.n_features))

    # ---- signs and sizes: a feature and its weights can change theirs together

    def signs(self, q: GaussianFeatures, local: Sequence[Codes]) -> Array:
        """-1 for the features whose value of largest size, in units of the noise, is negative, else 1."""
        features = q.mean[: q.n_features] / np.sqrt(q.noise)
        peak = np.abs(features).argmax(axis=1)
        return np.where(features[np.arange(len(features)), peak] < 0, -1.0, 1.0)

    def stretch(self, q: GaussianFeatures, local: Sequence[Codes]) -> Array:
        """The factors that suit the laws of weights and features best, both factors of q scaled by them."""
        rate, precision, _ = self.model.law
        K, n_dims = q.mean[: q.n_features].shape
        n_on, size, square = np.sum([sizes(part, self.model.law) for part in local], axis=0)
        spread = np.einsum("dkk->k", q.cov)[:K] * (n_dims // len(q.cov))
        power = (np.square(q.mean[:K]) / q.noise).sum(axis=1) + spread
        feature = 0.5 * power * q.observation.units[0] / float(q.observation.feature_var)
        t = np.zeros(K)
        for _ in range(_STEPS):  # up a concave function; none so long that it overshoots for good
            c = np.exp(t)
            # eq: own.mean-field-stretch
            slope = n_on - n_dims - rate * size * c - precision * square * c**2 + 2.0 * feature / c**2
            curve = rate * size * c + 2.0 * precision * square * c**2 + 4.0 * feature / c**2
            t += np.clip(slope / curve, -1.0, 1.0)
        return np.exp(t)

    def turned(self, part: Any, factors: Array) -> Any:
        if isinstance(part, GaussianFeatures):
            by = np.append(factors, np.ones(len(part.mean) - len(factors)))  # the offset stays
            return part._replace(mean=part.mean / by[:, None], cov=part.cov / np.outer(by, by))
        if isinstance(part, GaussianSums):
            by = np.append(factors, 1.0)
            lacking = part.lacking * np.outer(by, by) if part.lacking.shape[1] > 1 else part.lacking
            return part._replace(gram=part.gram * np.outer(by, by), cross=part.cross * by[:, None], lacking=lacking)
        return scaled(part, factors, self.model.law)
