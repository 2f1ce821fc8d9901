"""Mean field of a Poisson-gamma model: q(z, w) of rows, q(A) = prod Gamma(shape, rate) of features.

A Bernoulli q(z) strictly between 0 and 1 gives a row without features a positive probability, and a count in it the
expected log density -inf. So bits are either hard, or "off" means a small share `leak` of the weight: s = z + (1 - z)
leak, and the bound is one of the evidence of that model. leak = 1 leaves no bits: Bayesian matrix factorisation.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import digamma, entr, gammaln

from thali.core.binary import Array
from thali.core.observation import Engine
from thali.core.protocols.engines.mean_field import Family
from thali.core.registry import stored
from thali.errors import InvalidParameterError
from thali.kernels.counts.poisson_rows import allocate, hard_rows, independent_rows, joint_rows
from thali.numerics.threads import in_spans
from thali.observations.poisson.codebook import CountCodebook, of_gamma
from thali.observations.poisson.data import CountData

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.poisson_gamma import PoissonGamma

_SURE = 1e-3  # how far from 0 and 1 bits are to begin with
_ROWS = 50  # for which a thread of its own pays
_LEAST = 0.05  # codes of a start below which a bit is off: one between would lose all its counts to those that are on


@stored("CountFactors")
class RowFactors(NamedTuple):
    """q(z, w) of rows: z with probability z_prob; w given z is Gamma(w_shape, w_on if z else w_off)."""

    z_prob: Array
    w_shape: Array
    w_on: Array
    w_off: Array


@stored("CountSums")
class CountSums(NamedTuple):
    """Sums over rows."""

    counts: Array  # (n_features,) of z_prob
    allocated: Array  # (n_features, n_dims) expected counts that each feature made
    exposure: Array  # (n_features, 1), or one per dim with missing cells: E s w where it can be seen
    n_weights: float  # how many weights there are: those of hard bits that are off are none
    weight: float  # E w of them
    rest: float  # what of the bound depends on the rows alone


@stored("GammaFeatures")
class FeatureFactors(NamedTuple):
    """q(A), each A_kd ~ Gamma(a_shape, a_rate)."""

    family: Family
    observation: Any  # concrete
    leak: float
    a_shape: Array  # (n_features, n_dims)
    a_rate: Array  # (n_features, 1), or one per dim
    log_mean: Array  # E log A

    @property
    def mean(self) -> Array:
        return self.a_shape / self.a_rate


class PoissonMeanField(Engine):
    """MeanFieldRows and GrowingSums of a Poisson-gamma model."""

    model: "PoissonGamma"

    def row_data(self, X: Any) -> CountData:
        return CountData.of(X)

    # ---- where to begin

    def init_features(self, data: CountData, n_features: int, family: Family) -> FeatureFactors:
        if family.bits == "hard" and self.model.leak == 1.0:
            raise InvalidParameterError("PoissonGamma(leak=1) has no bits that could be hard. Leave leak out.")
        if family.features != "joint":
            raise InvalidParameterError(
                "PoissonGamma has one form of the features' factors, which are independent given the allocations of "
                "counts. Leave features out."
            )
        concrete = self._concrete(data, n_features)
        shape = np.full((n_features, data.n_dims), float(self.model.feature_shape))
        rate = np.full((n_features, 1), concrete.features_rate(data.n_dims))
        return _features(family, concrete, self.model.leak, shape, rate)

    def _concrete(self, data: CountData, n_features: int) -> "PoissonGamma":
        """This model with a learned rate of weights at which the expected size of a row is that of the data."""
        if "weight_rate" not in self.model.learned:
            return self.model
        size = data.counts.sum() / len(data) if len(data) else 1.0
        expected = self.model.feature_shape * data.n_dims / self.model.features_rate(data.n_dims) * min(n_features, 5)
        return self.model.replace(weight_rate=float(self.model.weight_shape * expected / max(size, 1e-3)))

    def init_rows(self, data: CountData, codes: Array) -> RowFactors:
        """Weights where codes are weights; where they are bits, such that the row's size is that of its counts."""
        codes = np.maximum(np.asarray(codes, dtype=float), 0.0)
        sizes = np.asarray(data.sparse().sum(axis=1)).ravel()
        z_prob = _definite(codes)
        total = codes.sum(axis=1)
        scale = np.divide(sizes, total, out=np.zeros(len(codes)), where=total > 0)
        w = np.maximum(codes * scale[:, None], 0.01 * (1.0 + sizes)[:, None] / max(codes.shape[1], 1))
        shape = self.model.weight_shape + w
        rate = shape / np.maximum(w, 1e-300)
        return RowFactors(z_prob, shape, rate, rate.copy())

    # ---- rows

    def update_rows(
        self, data: CountData, q: FeatureFactors, local: RowFactors, log_odds: Array, n_passes: int = 1
    ) -> tuple[RowFactors, CountSums]:
        model, hard = q.observation, q.family.bits == "hard"
        dtype = np.float32 if q.family.precision == "single" else np.float64
        peak = q.log_mean.max(axis=0, initial=-np.inf)
        loadings = np.ascontiguousarray(np.exp(q.log_mean - peak).T, dtype=dtype)
        mean = q.mean
        if n_passes and len(data) and loadings.shape[1]:
            seen = np.ascontiguousarray(mean.T) if data.any_missing else np.zeros((0, mean.shape[0]))
            local = RowFactors(*(np.array(part, dtype=np.float64, order="C") for part in local))
            if hard:
                local = local._replace(z_prob=np.round(local.z_prob))
            prior = float(model.weight_shape), float(model.weight_rate)
            given = loadings, seen, mean.sum(axis=1), np.asarray(log_odds, dtype=float), *prior

            def work(span: slice) -> None:
                arrays = data.part(span.start, span.stop).arrays
                rows = [field[span] for field in local]
                if hard:
                    hard_rows(*arrays, *given, n_passes, *rows[:3])
                else:
                    update = joint_rows if q.family.codes == "joint" else independent_rows
                    update(*arrays, *given, float(q.leak), n_passes, *rows)

            in_spans(work, len(data), 1, _ROWS, None)
            if q.leak > model.leak:  # hot: no evidence for the bits, who will be wanted where counts are
                made = local.w_shape - model.weight_shape
                local = local._replace(z_prob=np.clip(made / (made + _LEAST), _SURE, 1 - _SURE))
        return local, self._sums(data, q, local, loadings.astype(np.float64), peak)

    def _sums(self, data: CountData, q: FeatureFactors, local: RowFactors, loadings: Array, peak: Array) -> CountSums:
        z, shape, on, off = local
        psi = digamma(shape)
        log_on, log_off = np.log(on), np.log(off)
        if q.family.bits == "hard":
            z = np.round(z)
            present, log_rates, entropy = z, z * log_on, 0.0
            w = z * shape / on
            code, codes = z * np.exp(psi) / on, w
        else:
            present, log_rates = np.ones_like(z), z * log_on + (1 - z) * log_off
            entropy = float(np.sum(entr(z) + entr(1 - z)))
            w = z * shape / on + (1 - z) * shape / off
            codes = w - (1 - q.leak) * (1 - z) * shape / off
            code = np.exp(psi - log_rates + (1 - z) * math.log(q.leak))
        allocated = np.zeros_like(loadings)
        # eq: PCB11.counts-allocation
        log_rate = allocate(data.start, data.dims, data.counts, loadings, np.ascontiguousarray(code), allocated)
        allocated *= loadings
        a = q.observation.weight_shape
        weights = present * ((a - shape) * psi + shape + gammaln(shape) - gammaln(a)) - a * log_rates
        shared = log_rate - float(np.sum(allocated * (q.log_mean - peak).T))
        exposure = codes.sum(axis=0)[:, None]
        if data.any_missing:
            exposure = exposure - data.at_missing(codes)
        return CountSums(
            z.sum(axis=0),
            np.ascontiguousarray(allocated.T),
            exposure,
            float(present.sum()),
            float(w.sum()),
            shared - data.log_factorials + entropy + float(weights.sum()),
        )

    # ---- features

    def update_features(self, q: FeatureFactors, statistics: CountSums, *, learn: bool = True) -> FeatureFactors:
        model, n_dims = q.observation, q.a_shape.shape[1]
        # eq: PCB11.counts-features
        shape = model.feature_shape + statistics.allocated
        rate = model.features_rate(n_dims) + statistics.exposure
        if learn and "weight_rate" in self.model.learned:
            prior = self.model.learned["weight_rate"]
            # eq: own.counts-weight-rate
            top = statistics.n_weights * model.weight_shape + prior.shape - 1.0
            model = model.replace(weight_rate=float(max(top, 1e-3) / (statistics.weight + prior.rate)))
        return _features(q.family, model, q.leak, shape, rate)

    def features_bound(self, q: FeatureFactors, statistics: CountSums) -> float:
        model = q.observation
        a, b = model.feature_shape, model.features_rate(q.a_shape.shape[1])
        # eq: PCB11.counts-bound
        likelihood = np.sum(statistics.allocated * q.log_mean) - np.sum(statistics.exposure * q.mean)
        divergence = (
            (q.a_shape - a) * digamma(q.a_shape) - gammaln(q.a_shape) + gammaln(a)
            + a * np.log(q.a_rate / b) + q.a_shape * (b / q.a_rate - 1.0)
        )  # fmt: skip
        c, r = model.weight_shape, model.weight_rate
        weights = statistics.n_weights * c * math.log(r) - r * statistics.weight
        return float(likelihood - divergence.sum() + weights + statistics.rest + self.model.log_hyper(model))

    def annealed(self, q: FeatureFactors, temperature: float) -> FeatureFactors:
        """Above temperature 1 there are no bits, hard or soft: with a leak between, weights would take their place, for
        w / leak that is off does what w does that is on."""
        return q if temperature == 1.0 else q._replace(leak=1.0, family=q.family._replace(bits="soft"))

    # ---- fewer and more features

    def keep_columns(self, part: Any, columns: Array) -> Any:
        """Of `local`, rows that lose a feature have all others on, which share its weight: bits are slow to go on.

        Of statistics, the counts that a feature made go with it: sum them anew from the rows for the bound.
        """
        if isinstance(part, RowFactors):
            kept = RowFactors(*(np.ascontiguousarray(field[:, columns]) for field in part))
            return self._handed_over(kept, part, np.delete(np.arange(part.z_prob.shape[1]), columns))
        names = (
            ("counts", "allocated", "exposure") if isinstance(part, CountSums) else ("a_shape", "a_rate", "log_mean")
        )
        return part._replace(**{name: getattr(part, name)[columns] for name in names})

    def _handed_over(self, kept: RowFactors, whole: RowFactors, gone: Array) -> RowFactors:
        rows = (whole.z_prob[:, gone] > 0.5).any(axis=1)
        if not rows.any() or not kept.z_prob.shape[1]:
            return kept
        lost = (whole.z_prob * whole.w_shape / whole.w_on)[rows][:, gone].sum(axis=1, keepdims=True)
        mine = np.where(kept.z_prob > 0.5, kept.w_shape / kept.w_on, 0.0)[rows]
        w = mine + lost / kept.z_prob.shape[1]
        shape = self.model.weight_shape + w
        for field, values in zip(kept, (1 - _SURE, shape, shape / w, shape / w), strict=True):
            field[rows] = values
        return kept

    def add_column(self, local: RowFactors, codes: Array) -> RowFactors:
        """Where it is on, it has a weight like the others of its row, in proportion to its code."""
        codes = np.maximum(np.asarray(codes, dtype=float), 0.0)
        z = _definite(codes)
        usual = (local.z_prob * local.w_shape / local.w_on).sum(axis=1) / np.maximum(local.z_prob.sum(axis=1), 1.0)
        on = codes[z > 0.5]
        w = np.maximum(usual, usual.mean() if len(usual) else 1.0) * codes / (on.mean() if len(on) else 1.0)
        shape = self.model.weight_shape + w
        rate = shape / np.maximum(w, 0.1 * self.model.weight_shape)
        return RowFactors(*(np.column_stack(pair) for pair in zip(local, (z, shape, rate, rate), strict=True)))

    def add_feature(self, q: FeatureFactors) -> FeatureFactors:
        """With less doubt than the prior has: exp(E log A) would else be so small that no count came to it."""
        n_dims = q.a_shape.shape[1]
        shape, rate = q.observation.feature_shape, q.observation.features_rate(n_dims)
        a_shape = np.vstack([q.a_shape, np.full((1, n_dims), shape + 1.0)])
        a_rate = np.vstack([q.a_rate, np.full((1, q.a_rate.shape[1]), (shape + 1.0) / shape * rate)])
        return _features(q.family, q.observation, q.leak, a_shape, a_rate)

    def with_unused(self, q: FeatureFactors, statistics: CountSums, n_rows: float) -> CountSums:
        """Soft bits that are off have a weight as in its prior, of which `leak` is seen; hard ones have none."""
        a, r = q.observation.weight_shape, q.observation.weight_rate
        n = n_rows if q.family.bits == "soft" else 0.0
        return statistics._replace(
            counts=np.append(statistics.counts, 0.0),
            allocated=np.vstack([statistics.allocated, np.zeros((1, statistics.allocated.shape[1]))]),
            exposure=np.vstack([statistics.exposure, np.full((1, statistics.exposure.shape[1]), q.leak * n * a / r)]),
            n_weights=statistics.n_weights + n,
            weight=statistics.weight + n * a / r,
            rest=statistics.rest + n * a * (1.0 - math.log(r)),
        )

    def unexplained(self, data: CountData, q: FeatureFactors, local: RowFactors) -> Array:
        """Dense: ask for a part of the rows."""
        return np.nan_to_num(data.dense() - self.expected_codes(local) @ q.mean)

    # ---- what is known of features and rows

    def check(self, q: FeatureFactors, local: RowFactors) -> None:
        if not all((values > 0).all() for values in (*local[1:], q.a_shape, q.a_rate)):
            raise ValueError("its gamma factors have parameters that are not positive")

    def expected_features(self, q: FeatureFactors) -> Array:
        return q.mean

    def concrete(self, q: FeatureFactors, local: RowFactors) -> "PoissonGamma":
        return q.observation  # type: ignore[no-any-return]

    def codebook(self, q: FeatureFactors, local: RowFactors) -> CountCodebook:
        """Without counts: those are known to who has the factors of the rows."""
        return of_gamma(q.a_shape, q.a_rate, np.zeros(len(q.a_shape)))

    def draw_rows(self, rng: np.random.Generator, local: RowFactors) -> tuple[Array, Array]:
        chances = local.z_prob if self.model.leak < 1.0 else np.ones_like(local.z_prob)
        bits = (rng.random(chances.shape) < chances).astype(np.uint8)
        rate = np.where(bits, local.w_on, local.w_off)
        return bits, bits * rng.standard_gamma(local.w_shape) / rate

    def expected_codes(self, local: RowFactors) -> Array:
        off = 0.0 if self.model.leak < 1.0 else (1 - local.z_prob) * local.w_shape / local.w_off
        return local.z_prob * local.w_shape / local.w_on + off


def _definite(codes: Array) -> Array:
    """Bits that are on, but for a little doubt, where codes are more than next to nothing."""
    return np.where(codes > _LEAST * min(codes.max(initial=0.0), 1.0), 1 - _SURE, _SURE)


def _features(family: Family, model: Any, leak: float, shape: Array, rate: Array) -> FeatureFactors:
    return FeatureFactors(family, model, leak, shape, rate, digamma(shape) - np.log(rate))
