"""Mean field for X = offset + (Z * W) A + noise: a row's factor of each bit and its weight, joint or independent.

Joint: q(w | z=0) is the prior, q(w | z=1) ~ p(w) exp(pull w - curve w^2/2), whatever the law of a weight. Independent,
as in Doshi-Velez et al. 2009: q(z) q(w) with q(w) normal or Laplace as the prior is. Hard bits (Paisley et al. 2011):
z is 0 or 1, chosen together with its weight.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from thali.errors import InvalidParameterError
from thali.kernels.mean_field_codes import draw_joint, independent_rows, joint_rows, weights_on
from thali.observations._feature_factor import GaussianFeatures, GaussianSums, evidence, gaussian_sums
from thali.observations._mean_field import MeanFieldGaussian
from thali.observations._row_data import RowData
from thali.variational_protocols import Family

Array = np.ndarray

_SURE = 0.95  # of a bit to begin with
_NEAR = 0.1  # sd of a weight to begin with, in that of its prior


class JointCodes(NamedTuple):
    """q(z, w); arrays (n_rows, n_features)."""

    z_prob: Array
    mean: Array  # E[w | z=1]
    pull: Array
    curve: Array


class IndependentCodes(NamedTuple):
    """q(z) q(w); arrays (n_rows, n_features)."""

    z_prob: Array
    mean: Array
    spread: Array  # variance of a normal weight, scale of a Laplace one


Codes = JointCodes | IndependentCodes


class MeanFieldCodes(MeanFieldGaussian):
    """MeanFieldRows of a model with a `law` of weights."""

    if TYPE_CHECKING:
        ard: Any
        law: Any
        weight_var: Any

    def init_features(self, data: RowData, n_features: int, family: Family) -> GaussianFeatures:
        if self.ard is not None:
            raise InvalidParameterError(
                f"Variational inference needs {type(self).__name__}.ard to be None (one variance for all features). "
                f"Got {self.ard!r}; leave it out, or use Gibbs or SliceSampler."
            )
        return super().init_features(data, n_features, family)

    def init_rows(self, data: RowData, codes: Array) -> JointCodes:
        """Bits are on where the codes are not zero, with weights near them; those that are off have their prior."""
        return self._near(np.asarray(codes, dtype=float))

    def _near(self, codes: Array) -> JointCodes:
        on = codes != 0
        rate, precision, _ = self.law
        curve = np.where(on, 1.0 / (_NEAR**2 * self.weight_var), 0.0)
        pull = (curve + precision) * codes + rate * np.sign(codes)  # the code is where the density is highest
        return JointCodes(np.where(on, _SURE, 1.0 - _SURE), self._weights_on(pull, curve)[0], pull, curve)

    def update_rows(
        self, data: RowData, q: GaussianFeatures, local: Codes, log_odds: Array, n_passes: int = 1
    ) -> tuple[Codes, GaussianSums]:
        single = q.family.precision == "single"
        features, forms, of_dims = evidence(q, any_missing=data.any_missing)
        local = self._in_family(local, q.family)
        X = data.single if single else data.X
        products = np.asarray(X @ features.T.astype(X.dtype), dtype=float)
        v, square = np.zeros(products.shape), np.zeros(products.shape)
        entropy = (joint_rows if isinstance(local, JointCodes) else independent_rows)(
            products, data.missing_start, data.missing_dim, forms, np.zeros((0, 0, 0)) if of_dims is None else of_dims,
            np.asarray(log_odds, dtype=float), *self.law, math.inf if q.family.bits == "hard" else 1.0, n_passes,
            *local, v, square,
        )  # fmt: skip
        gram = v.T @ v
        # eq: own.expected-gram
        gram[np.diag_indices(len(gram))] = square.sum(axis=0)
        counts = local.z_prob.sum(axis=0)
        return local, gaussian_sums(data, counts, gram, v.T @ data.X, v, square, entropy)

    def add_column(self, local: Codes, codes: Array) -> Codes:
        near = self._near(np.reshape(codes, (-1, 1)).astype(float))
        column = near if isinstance(local, JointCodes) else self._independent(near)
        return type(local)(*(np.hstack(pair) for pair in zip(local, column, strict=True)))

    def draw_rows(self, rng: np.random.Generator, local: Codes) -> tuple[Array, Array]:
        bits = (rng.random(local.z_prob.shape) < local.z_prob).astype(np.uint8)
        rate, precision, _ = self.law
        if isinstance(local, JointCodes):
            codes = np.zeros(bits.shape)
            draw_joint(bits, local.pull, local.curve, rate, precision, codes, rng)
        elif rate > 0:
            codes = bits * rng.laplace(local.mean, local.spread)
        else:
            codes = bits * rng.normal(local.mean, np.sqrt(local.spread))
        return bits, codes

    def expected_codes(self, local: Codes) -> Array:
        return local.z_prob * local.mean

    def variational_codebook(self, q: GaussianFeatures) -> dict[str, Array]:
        return super().variational_codebook(q) | {"scales": np.ones(q.n_features)}

    # ---- signs: a feature and its weights can change theirs together

    def signs(self, q: GaussianFeatures) -> Array:
        """-1 for the features whose value of largest size is negative, else 1."""
        features = q.mean[: q.n_features]
        peak = np.abs(features).argmax(axis=1)
        return np.where(features[np.arange(len(features)), peak] < 0, -1.0, 1.0)

    def turned(self, part: Any, signs: Array) -> Any:
        if isinstance(part, GaussianFeatures):
            signs = np.append(signs, np.ones(len(part.mean) - len(signs)))  # not of the offset
            return part._replace(mean=part.mean * signs[:, None], cov=part.cov * np.outer(signs, signs))
        if isinstance(part, GaussianSums):
            both = np.outer(np.append(signs, 1.0), np.append(signs, 1.0))
            lacking = part.lacking * both if part.lacking.shape[1] > 1 else part.lacking
            cross = part.cross * np.append(signs, 1.0)[:, None]
            return part._replace(gram=part.gram * both, cross=cross, lacking=lacking)
        part = part._replace(mean=part.mean * signs)
        return part._replace(pull=part.pull * signs) if isinstance(part, JointCodes) else part

    # ---- families

    def _in_family(self, local: Codes, family: Family) -> Codes:
        """A copy in the form of this family, which it has already unless no pass was made."""
        if family.codes == "independent" and isinstance(local, JointCodes):
            local = self._independent(local)
        bits = np.round(local.z_prob) if family.bits == "hard" else local.z_prob
        return type(local)(np.array(bits), *(np.array(part) for part in local[1:]))

    def _independent(self, local: JointCodes) -> IndependentCodes:
        """Weights with the same mean and variance."""
        mean, square = self._weights_on(local.pull, local.curve)
        var = square - mean**2
        return IndependentCodes(local.z_prob, mean, np.sqrt(0.5 * var) if self.law.rate > 0 else var)

    def _weights_on(self, pull: Array, curve: Array) -> tuple[Array, Array]:
        """E[w | z=1] and E[w^2 | z=1]."""
        mean, square = np.empty(pull.shape), np.empty(pull.shape)
        weights_on(pull, curve, self.law.rate, self.law.precision, mean, square)
        return mean, square
