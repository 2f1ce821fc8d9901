"""Mean field for X = offset + Z A + noise: the factor of a row is q(z_nk = 1) = z_prob[n, k], one for each bit."""

from typing import NamedTuple

import numpy as np
from scipy.special import entr, expit

from thali.observations._feature_factor import GaussianFeatures, GaussianSums, evidence, gaussian_sums
from thali.observations._mean_field import MeanFieldGaussian
from thali.observations._row_data import RowData

Array = np.ndarray


class BitFactors(NamedTuple):
    """q(z_nk = 1)."""

    z_prob: Array  # (n_rows, n_features)


class MeanFieldBits(MeanFieldGaussian):
    """MeanFieldRows of a model whose codes are its bits."""

    def init_rows(self, data: RowData, codes: Array) -> BitFactors:
        return BitFactors(np.array(codes, dtype=float))

    def update_rows(
        self, data: RowData, q: GaussianFeatures, local: BitFactors, log_odds: Array, n_passes: int = 1
    ) -> tuple[BitFactors, GaussianSums]:
        features, forms, of_dims = evidence(q, any_missing=data.any_missing)
        K = q.n_features
        P = np.array(local.z_prob)
        b = data.X @ features.T
        G = np.broadcast_to(forms, (len(P), *forms.shape))
        if of_dims is not None:
            mask = np.zeros(data.X.shape)
            mask[data.missing_row, data.missing_dim] = 1.0
            G = G - np.einsum("nd,dkl->nkl", mask, of_dims)
        b = b - G[:, :K, K:].sum(axis=2)
        for _ in range(n_passes):
            for k in range(K):
                # eq: DV09.bit-update
                t = log_odds[k] + b[:, k] - np.einsum("nl,nl->n", G[:, k, :K], P) + G[:, k, k] * (P[:, k] - 0.5)
                P[:, k] = (t > 0) if q.family.bits == "hard" else expit(t)
        counts = P.sum(axis=0)
        gram = P.T @ P
        gram[np.diag_indices(K)] = counts
        entropy = float(np.sum(entr(P) + entr(1 - P)))
        return BitFactors(P), gaussian_sums(data, counts, gram, P.T @ data.X, P, P, entropy)

    def add_column(self, local: BitFactors, presence: Array) -> BitFactors:
        return BitFactors(np.column_stack([local.z_prob, presence]).astype(local.z_prob.dtype, copy=False))

    def draw_rows(self, rng: np.random.Generator, local: BitFactors) -> tuple[Array, Array]:
        bits = (rng.random(local.z_prob.shape) < local.z_prob).astype(np.uint8)
        return bits, bits

    def expected_codes(self, local: BitFactors) -> Array:
        return np.asarray(local.z_prob, dtype=float)
