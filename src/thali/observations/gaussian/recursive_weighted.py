"""What a filter knows of the features of X = offset + (Z * W) A + noise with normal weights."""

from typing import TYPE_CHECKING, Any

import numpy as np

from thali.core.events import EventNote
from thali.core.protocols.engines.recursive import RowPlan
from thali.errors import InvalidParameterError
from thali.kernels.weights.recursive_codes import filter_codes
from thali.observations.gaussian.codebook import WeightedCodebook
from thali.observations.gaussian.recursive import RecursiveGaussian
from thali.observations.gaussian.recursive_features import RecursiveFeatures

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.factor_analysis import FactorAnalysis

Array = np.ndarray


class RecursiveWeighted(RecursiveGaussian):
    """RecursiveRows of factor analysis: `rows` are expected sums of squared codes. Signs and sizes of features are not
    known, so none are merged."""

    model: "FactorAnalysis"
    recipes = ("residual",)

    def check_recursive(self, plan: RowPlan) -> None:
        super().check_recursive(plan)
        if plan.batch > 1:
            raise InvalidParameterError(
                f"{type(self.model).__name__} takes rows one by one: the weights of a row have a covariance of their "
                f"own, which goes once the row is done. Got batch={plan.batch}; use batch=1, or LinearGaussian."
            )
        if self.model.ard is not None:
            raise InvalidParameterError(
                f"A filter that forgets its rows has one scale for all weights. Got ard={self.model.ard!r}; use None."
            )

    def known_of(self, X: Array, z_prob: Array, codes: Array, observation: Any) -> RecursiveFeatures:
        """Codes are taken as known."""
        start = self.nothing_known(X.shape[1])._replace(observation=observation)
        order = np.lexsort((-z_prob.sum(axis=0), np.argmax(z_prob > 0.5, axis=0)))
        z, V = np.asarray(z_prob, dtype=float)[:, order], np.asarray(codes, dtype=float)[:, order]
        (n, n_dims), K = X.shape, z.shape[1]
        noise, feature = self._variances(start.observation)
        Y = self._standard(start.observation, X)
        seen = ~np.isnan(Y)
        Y = np.where(seen, Y, 0.0)
        ridge = noise / feature * np.eye(K)
        rows = np.square(V).T @ seen
        mean = np.stack(
            [np.linalg.solve((V * seen[:, d, None]).T @ V + ridge, V.T @ Y[:, d]) for d in range(n_dims)], axis=1
        )
        left = np.where(seen, Y - V @ mean, 0.0)
        known = start._replace(
            mean=mean, rows=rows[:, :1] if seen.all() else rows, counts=z.sum(axis=0),
            exists=-np.expm1(np.log1p(-np.minimum(z, 1 - 1e-12)).sum(axis=0)),
            age=(n - np.argmax(z > 0.5, axis=0)).astype(float), number=np.arange(K), told=np.ones(K, bool),
            together=z.T @ z + np.diag((z - z * z).sum(axis=0)), is_settled=np.zeros(K, bool),
            settled=np.zeros((K, n_dims)), n_rows=n,
            weight=float(n), error=float((left**2).sum() + noise * np.sum(rows / (noise / feature + rows))),
            n_cells=float(seen.sum()), n_born=K,
        )  # fmt: skip
        return self._with_variances(known)

    def _rows(self, Y: Array, at: int, K: int, slots: Any, totals: Any, law: Any, *rest: Any) -> tuple[int, int, int]:
        return filter_codes(  # type: ignore[no-any-return]
            Y, at, K, slots, totals, law, float(self.model.weight_var), *rest
        )

    @property
    def _weight_var(self) -> float:
        return float(self.model.weight_var)

    def _merged(self, known: RecursiveFeatures) -> tuple[RecursiveFeatures, list[EventNote]]:
        return known, []

    def codebook(self, known: RecursiveFeatures) -> WeightedCodebook:
        book = super().codebook(known)
        return WeightedCodebook(book.features, book.counts, book.gram_inv, np.ones(known.n_features))
