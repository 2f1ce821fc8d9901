"""Mean field for models X = offset + V A + noise: the factor of the features, and what a row needs of it.

Given the rows' factors, which enter as sums, each dim is a Bayesian regression: q(A_d) = N(mean_d, noise_var_d cov_d),
cov_d = (E[V'V] + ridge)^-1 over the rows that observe the dim: one matrix for all dims where no cell is missing. In the
`independent` family cov_d is diagonal, as in Doshi-Velez et al. 2009; the means are the same, the limit of their
updates. A learned offset is one more column of V, which is always on.

Learned variances are points: they maximise the bound plus the log density of their prior (empirical Bayes with the
prior as a penalty), so that what `features_bound` gives, the log density included, never falls.
"""

from abc import abstractmethod
from typing import Any

import numpy as np

from thali.core.codebook import Codebook
from thali.core.distributions import NormalOffset
from thali.core.observation import Engine
from thali.core.protocols.engines.mean_field import Family
from thali.core.spec import is_distribution
from thali.observations.gaussian.codebook import GaussianCodebook
from thali.observations.gaussian.mean_field.point_variances import learn_variances
from thali.observations.gaussian.mean_field.sums import (
    GaussianFeatures,
    GaussianSums,
    error_parts,
    prior_precision,
)
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.row_data import RowData

Array = np.ndarray


class MeanFieldGaussian(Engine):
    """The part of MeanFieldRows that all Gaussian models share, and GrowingSums; subclasses say what the rows' factors
    are."""

    model: GaussianModel

    @abstractmethod
    def expected_codes(self, local: Any) -> Array: ...

    def check(self, q: GaussianFeatures, local: Any) -> None:
        if (np.diagonal(q.cov, axis1=1, axis2=2) < 0).any():
            raise ValueError("its features have negative variances")

    def row_data(self, X: Array) -> RowData:
        X = np.asarray(X, dtype=None if np.asarray(X).dtype in (np.float32, np.float64) else float)
        centre = self.model.offset.centre if isinstance(self.model.offset, NormalOffset) else self.model.offset
        return RowData.of(self.model.from_origin(X), centre)

    def init_features(self, data: RowData, n_features: int, family: Family) -> GaussianFeatures:
        """Noise at the variance of the data, feature variance at the centre of its prior."""
        n_dims = data.n_dims
        values: dict[str, Any] = {}
        if is_distribution(self.model.noise_var):
            noise = np.maximum(np.broadcast_to(self.model.scale, n_dims), self.model.floor(n_dims))
            values["noise_var"] = np.array(noise) if self.model.per_dim else float(noise.mean())
        if is_distribution(self.model.feature_var):
            values["feature_var"] = float(self.model.feature_var.centre)
        concrete = self.model.updated(**values)
        ridge = prior_precision(self.model, concrete, n_features)
        mean = np.zeros((len(ridge), n_dims))
        return self._with_offset(
            GaussianFeatures(family, concrete, mean, np.diag(1.0 / ridge)[None], np.zeros(n_features))
        )

    def update_features(self, q: GaussianFeatures, statistics: GaussianSums, *, learn: bool = True) -> GaussianFeatures:
        ridge = prior_precision(self.model, q.observation, q.n_features)
        precision = statistics.of_dims(len(ridge)) + np.diag(ridge)
        inverse = np.linalg.inv(precision)
        inverse = 0.5 * (inverse + np.swapaxes(inverse, 1, 2))
        cross = statistics.cross[: len(ridge)]
        # eq: DV09.joint-features
        mean = inverse[0] @ cross if len(inverse) == 1 else np.einsum("dkl,ld->kd", inverse, cross)
        if q.family.features == "independent":
            # eq: DV09.feature-update
            inverse = _diagonal(1.0 / np.einsum("dkk->dk", precision))
        q = self._with_offset(q._replace(mean=mean, cov=inverse, counts=statistics.counts))
        return learn_variances(self.model, q, statistics) if learn else q

    def features_bound(self, q: GaussianFeatures, statistics: GaussianSums) -> float:
        ridge = prior_precision(self.model, q.observation, q.n_features)
        noise = q.noise
        left, added = error_parts(q, statistics)
        # eq: DV09.likelihood-bound
        likelihood = -0.5 * np.sum(statistics.n_observed * np.log(2 * np.pi * noise) + left / noise + added)
        spread = np.einsum("dkk->dk", q.cov)
        n_each = len(noise) // len(q.cov)  # dims that share a covariance
        # eq: DV09.features-bound
        prior = 0.5 * len(noise) * float(np.sum(np.log(ridge))) - 0.5 * float(
            ridge @ (np.square(q.mean) / noise).sum(axis=1) + n_each * np.sum(spread @ ridge)
        )
        # the noise and 2 pi cancel between the prior and the entropy, in whose units both are
        entropy = 0.5 * n_each * float(np.linalg.slogdet(q.cov)[1].sum()) + 0.5 * q.mean.size
        return float(likelihood + prior + entropy + statistics.entropy + self._log_variances(q.observation))

    def annealed(self, q: GaussianFeatures, temperature: float) -> GaussianFeatures:
        """The rows' evidence divided by the temperature: noise variance times it, features as they are."""
        observation = q.observation.updated(noise_var=q.observation.noise_var * temperature)
        return q._replace(observation=observation, cov=q.cov / temperature)

    def add_feature(self, q: GaussianFeatures) -> GaussianFeatures:
        K = q.n_features
        ridge = prior_precision(self.model, q.observation, K + 1)
        cov = np.insert(np.insert(q.cov, K, 0.0, axis=1), K, 0.0, axis=2)
        cov[:, K, K] = 1.0 / ridge[K]
        return q._replace(mean=np.insert(q.mean, K, 0.0, axis=0), cov=cov, counts=np.append(q.counts, 0.0))

    def with_unused(self, q: GaussianFeatures, statistics: GaussianSums, n_rows: float) -> GaussianSums:
        K = len(statistics.counts)
        lacking = statistics.lacking
        return statistics._replace(
            counts=np.append(statistics.counts, 0.0),
            gram=_with_zeros(statistics.gram, K, (0, 1)),
            cross=_with_zeros(statistics.cross, K, (0,)),
            lacking=_with_zeros(lacking, K, (1, 2)) if lacking.shape[1] > 1 else lacking,
        )

    def keep_columns(self, part: Any, columns: Array) -> Any:
        columns = np.asarray(columns)
        if isinstance(part, GaussianFeatures):
            kept = np.append(columns, np.arange(part.n_features, len(part.mean)))  # and the offset
            cov = part.cov[:, kept[:, None], kept]
            return part._replace(mean=part.mean[kept], cov=cov, counts=part.counts[columns])
        if isinstance(part, GaussianSums):
            kept = np.append(columns, len(part.counts))
            return part._replace(
                counts=part.counts[columns],
                gram=part.gram[np.ix_(kept, kept)],
                cross=part.cross[kept],
                lacking=part.lacking[:, kept[:, None], kept] if part.lacking.shape[1] > 1 else part.lacking,
            )
        return type(part)(*(values[:, columns] for values in part))

    def unexplained(self, data: RowData, q: GaussianFeatures, local: Any) -> Array:
        left = data.X - self.expected_codes(local) @ q.mean[: q.n_features]
        if len(q.mean) > q.n_features:
            left -= q.mean[-1]
        left[data.missing_row, data.missing_dim] = 0.0
        return left

    def expected_features(self, q: GaussianFeatures) -> Array:
        return q.mean[: q.n_features]

    def concrete(self, q: GaussianFeatures, local: Any) -> GaussianModel:
        return q.observation  # type: ignore[no-any-return]

    def codebook(self, q: GaussianFeatures, local: Any) -> Codebook:
        """With missing cells `gram_inv` is the mean over dims, and the offset is taken as known."""
        K = q.n_features
        counts = np.rint(q.counts).astype(np.int64)
        cov = q.cov[:, :K, :K].mean(axis=0)
        try:
            np.linalg.cholesky(cov)
        except np.linalg.LinAlgError as error:  # the inverse of a precision whose eigenvalues are 1e16 apart or more
            raise FloatingPointError("the covariance of the features has no digits left") from error
        return GaussianCodebook(q.mean[:K].copy(), counts, cov)

    def _with_offset(self, q: GaussianFeatures) -> GaussianFeatures:
        if not isinstance(self.model.offset, NormalOffset):
            return q
        return q._replace(observation=q.observation.updated(offset=self.model.offset.centre + q.mean[-1]))

    def _log_variances(self, concrete: Any) -> float:
        """Log prior density of the learned variances; an offset has a factor of its own."""
        pairs = ((getattr(self.model, name), getattr(concrete, name)) for name in ("noise_var", "feature_var"))
        return sum(prior.log_prob(value) for prior, value in pairs if is_distribution(prior))


def _diagonal(values: Array) -> Array:
    """Diagonal matrices (n, K, K) from (n, K)."""
    return values[:, :, None] * np.eye(values.shape[1])


def _with_zeros(values: Array, at: int, axes: tuple[int, ...]) -> Array:
    """With zeros before this place of each of the axes."""
    for axis in axes:
        values = np.insert(values, at, 0.0, axis=axis)
    return values
