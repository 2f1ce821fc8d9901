"""What a Poisson-gamma model predicts of rows, from features with known mean, E log and variance.

A codebook has `features`, `log_features` and `features_spread` (n_features, n_dims). A cell's rate, the sum of gamma
variates, is taken as one gamma variate of the same mean and variance, so that the cell is negative binomial: exact for
one feature, Poisson where the features are definite.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln, xlogy

from thali.core.binary import Array
from thali.core.codebook import Encoded, with_weights
from thali.core.protocols.engines.mean_field import Family
from thali.observations.poisson.codebook import CountCodebook
from thali.observations.poisson.data import CountData
from thali.observations.poisson.mean_field import FeatureFactors, PoissonMeanField
from thali.observations.row_codes import RowCodes
from thali.rng import make_generator

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.poisson_gamma import PoissonGamma

_PASSES, _TOL = 200, 1e-4  # of mean field on new rows: until no presence and no weight moves by this share
_DRAWS, _KEPT = 200, 32  # of the codes of a new row: its density is estimated from the first, the second are kept
_IMPOSSIBLE = -1e6  # log density of counts in a row that has no feature, in place of -inf: scores stay numbers
_RARE = 0.01  # least probability with which either value of a bit is drawn for that


class PoissonPredictions(RowCodes):
    """Predictions of a Poisson-gamma model."""

    model: "PoissonGamma"

    codebook_kind = CountCodebook
    origin = None

    def __init__(self, model: "PoissonGamma") -> None:
        super().__init__(model)
        self.mean_field = PoissonMeanField(model)

    def codes(self, Z: Array, codebook: CountCodebook) -> Array:
        assert codebook.weights is not None
        return with_weights(Z, codebook.weights)

    def means(self, codes: Array, codebook: CountCodebook) -> Array:
        return self.model.reconstruct(codes, codebook.features)

    def expected_rows(self, encoded: Encoded, codebook: CountCodebook) -> Array:
        return self.means(encoded.codes, codebook)

    # ---- features

    def definite(self, rng: np.random.Generator, codebook: CountCodebook) -> CountCodebook:
        """Features drawn: what is not known of them shows when several draws are averaged."""
        mean, spread = codebook.features, codebook.features_spread
        with np.errstate(divide="ignore", invalid="ignore"):
            shape = np.where(spread > 0, mean**2 / spread, 1.0)
        drawn = np.maximum(np.where(spread > 0, rng.standard_gamma(shape) * (mean / shape), mean), 1e-300)
        return codebook.replace(features=drawn, log_features=np.log(drawn), features_spread=np.zeros_like(drawn))

    def features_var(self, codebook: CountCodebook) -> Array:
        return codebook.features_spread

    # ---- cells given codes

    def log_cells(self, X: Array, codes: Array, codebook: CountCodebook) -> Array:
        """Log probability of each cell; X may have any values at cells that are not asked for."""
        mean, spread = self._rates(codes, codebook)
        x = np.maximum(X, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            shape = mean**2 / spread
            # eq: own.counts-cell
            mixed = (
                gammaln(shape + x) - gammaln(shape) - gammaln(x + 1.0)
                + shape * np.log(mean / (mean + spread)) + xlogy(x, spread / (mean + spread))
            )  # fmt: skip
            definite = xlogy(x, mean) - mean - gammaln(x + 1.0)
        return np.where(np.isfinite(shape) & (shape < 1e9), mixed, definite)

    def _rates(self, codes: Array, codebook: CountCodebook) -> tuple[Array, Array]:
        """Mean and variance of the rate of each cell."""
        codes = np.asarray(codes, dtype=float)
        return codes @ codebook.features + 1e-300, codes**2 @ codebook.features_spread

    def sample_rows(self, rng: np.random.Generator, codes: Array, codebook: CountCodebook, n_unknown: Any) -> Array:
        """A row for each row of codes, with `n_unknown` features from their prior beside the known ones."""
        mean, spread = self._rates(codes, codebook)
        with np.errstate(over="ignore"):
            shape = np.clip(mean**2 / np.maximum(spread, 1e-300), 1e-300, 1e9)
        rate = rng.standard_gamma(shape) * (mean / shape)
        n_dims = rate.shape[1]
        counts = np.broadcast_to(np.asarray(n_unknown, dtype=np.int64), len(rate))
        for n in np.flatnonzero(counts):
            w = rng.standard_gamma(self.model.weight_shape, counts[n]) / self.model.weight_rate
            rate[n] += w @ (
                rng.standard_gamma(self.model.feature_shape, (counts[n], n_dims)) / self.model.features_rate(n_dims)
            )
        return rng.poisson(rate).astype(float)

    # ---- new rows

    def encode(self, X: Any, codebook: CountCodebook, log_odds: Array, new_rate: float) -> Encoded:
        """Presence and expected codes by mean field with the features as they are; the density by importance sampling
        from it, features at their mean, of the model without a leak."""
        data = CountData.of(self.model.check_data(X))
        local = self._fitted_rows(data, codebook, np.asarray(log_odds, dtype=float))
        log_density, draws = self._densities(data, local, codebook, np.asarray(log_odds, dtype=float), new_rate)
        presence = local.z_prob if self.model.leak < 1.0 else np.ones_like(local.z_prob)
        return Encoded(presence, self.mean_field.expected_codes(local), log_density, draws)

    def _fitted_rows(self, data: CountData, codebook: CountCodebook, log_odds: Array) -> Any:
        """Mean field of the rows, to its end."""
        features = codebook.features
        q = FeatureFactors(
            Family(), self.model, self.model.leak, features, np.ones((len(features), 1)), codebook.log_features
        )
        local = self.mean_field.init_rows(data, np.ones((len(data), len(features))))
        hot = self.mean_field.annealed(q, 2.0)
        local, _ = self.mean_field.update_rows(data, hot, local, log_odds, 10)
        for _ in range(_PASSES // 10):
            before = local
            local, _ = self.mean_field.update_rows(data, q, local, log_odds, 10)
            moved = np.abs(local.z_prob - before.z_prob).max(initial=0.0)
            if max(moved, np.abs(local.w_shape / before.w_shape - 1).max(initial=0.0)) < _TOL:
                break
        return local

    def _densities(
        self, data: CountData, local: Any, codebook: CountCodebook, log_odds: Array, new_rate: float
    ) -> tuple[Array, Array]:
        """log p(x_n) of each row, and codes from their posterior (n_rows, n_draws, n_features)."""
        features = codebook.features
        K = len(features)
        log_density, draws = np.zeros(len(data)), np.zeros((len(data), _KEPT, K), np.float32)
        log_on, log_off = -np.logaddexp(0.0, -log_odds), -np.logaddexp(0.0, log_odds)
        totals, a, b = features.sum(axis=1), self.model.weight_shape, self.model.weight_rate
        for n in range(len(data)):
            rng = make_generator(0)  # the same for every row: encoding is a function of the row alone
            some, hidden = slice(*data.start[n : n + 2]), slice(*data.missing_start[n : n + 2])
            x, A = data.counts[some], features[:, data.dims[some]]
            exposure = totals - features[:, data.missing_dim[hidden]].sum(axis=1)
            p = np.clip(local.z_prob[n], _RARE, 1 - _RARE)
            bits = rng.random((_DRAWS, K)) < p
            log_bits = np.where(bits, log_on - np.log(p), log_off - np.log1p(-p))
            if self.model.leak == 1.0:
                bits, log_bits = np.ones_like(bits), np.zeros(K)
            shape, on = local.w_shape[n], local.w_on[n]
            w = np.maximum(rng.standard_gamma(shape, (_DRAWS, K)) / on, 1e-300)
            log_w = (
                a * np.log(b)
                - gammaln(a)
                - shape * np.log(on)
                + gammaln(shape)
                + (a - shape) * np.log(w)
                + (on - b) * w
            )
            log_weight = (log_bits + np.where(bits, log_w, 0.0)).sum(axis=1)
            codes = bits * w
            rates, total = codes @ A, codes @ exposure
            n_seen = data.n_dims - (hidden.stop - hidden.start)
            self._add_unknown(rng, rates, total, n_seen, data.n_dims, new_rate)
            with np.errstate(divide="ignore"):
                # eq: own.counts-density
                log_weight += np.log(np.maximum(rates, 0.0)) @ x - total - gammaln(x + 1.0).sum()
            log_weight = np.nan_to_num(log_weight, nan=-np.inf, neginf=-np.inf)
            top = log_weight.max()
            if not np.isfinite(top):  # no draw can have made the counts, which needs all bits to be off
                log_density[n] = _IMPOSSIBLE
                continue
            weight = np.exp(log_weight - top)
            log_density[n] = top + np.log(weight.mean())
            draws[n] = codes[rng.choice(_DRAWS, _KEPT, p=weight / weight.sum())]
        return log_density, draws

    def _add_unknown(
        self, rng: np.random.Generator, rates: Array, total: Array, n_seen: int, n_dims: int, new_rate: float
    ) -> None:
        """Add features from their prior, Poisson(new_rate) of them to each draw of a row: only their sum over the dims
        without counts is needed."""
        for i in np.flatnonzero(rng.poisson(new_rate, len(rates))):
            w = rng.standard_gamma(self.model.weight_shape) / self.model.weight_rate
            shape, rate = self.model.feature_shape, self.model.features_rate(n_dims)
            values = np.asarray(rng.standard_gamma(shape, rates.shape[1])) / rate
            rates[i] += w * values
            total[i] += w * (values.sum() + rng.standard_gamma(shape * max(n_seen - len(values), 0) + 1e-300) / rate)
