"""Mean field for sparse factor analysis: spikes and slabs of loadings, with automatic relevance determination.

Every factor is conjugate, so that each update is exact; see `mean_field_factors`.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import entr

from thali.core.codebook import Codebook
from thali.core.distributions import Gamma, NormalOffset, PerFeature
from thali.core.observation import Engine
from thali.core.protocols.engines.mean_field import Family
from thali.errors import InvalidParameterError
from thali.kernels.bits.mean_field_rows import lacking_grams
from thali.kernels.weights.mean_field_sparse import sparse_factor_rows
from thali.numerics.threads import in_spans
from thali.observations.sparse.codebook import FactorsCodebook, LoadingsCodebook
from thali.observations.sparse.mean_field_factors import (
    LoadingFactors,
    LoadingSums,
    OwnerData,
    ScoreFactors,
    bound,
    cells_precision,
    expected_level,
    expected_noise,
    expected_precisions,
    level_factor,
    level_means,
    owned_offset_spread,
    owner_terms,
)

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.sparse_factors import SparseFactorAnalysis

Array = np.ndarray
Generator = np.random.Generator

_ROWS, _CHUNKS = 256, 64  # of owners that are summed in one go: sums have the same bits on any number of threads
_LEAST_BITS = 4_000  # of a thread: with fewer it takes longer to wake it
_SURE = 0.95  # of a bit to begin with
_NEAR = 0.1  # sd of a loading to begin with, in that of its prior
_NOISE = 0.5  # variance to begin with, in the units of the dims
_TURNS = 5  # of precisions and their level


class SparseMeanField(Engine):
    """MeanFieldRows, ScaledFeatures and FeatureDraws of sparse factor analysis."""

    model: "SparseFactorAnalysis"

    def row_data(self, X: Array) -> OwnerData:
        model = self.model
        offset = model.offset.centre if isinstance(model.offset, NormalOffset) else model.offset
        Y = model.owned(np.asarray(X, dtype=float)) - model.as_owned(offset)
        logs = model.by_owner(np.broadcast_to(0.5 * np.log(model.unit_squares), np.shape(X)))
        return OwnerData(np.ascontiguousarray(Y), np.where(np.isnan(Y), 0.0, logs).sum(axis=1))

    # ---- where to begin

    def init_features(self, data: OwnerData, n_features: int, family: Family) -> ScoreFactors:
        model = self.model
        if family.precision != "double":
            raise InvalidParameterError("SparseFactorAnalysis computes in double precision only. Leave precision out.")
        if family.codes != "joint":
            raise InvalidParameterError(
                "SparseFactorAnalysis has one form of the factors of loadings, which is joint with their bits. "
                "Leave codes out."
            )
        concrete = model
        if isinstance(model.offset, NormalOffset):
            concrete = model.updated(offset=np.array(model.offset.centre, dtype=float))
        ridge = cells_precision(model, n_features)
        levels = np.ones((2, 2))
        for i, law in enumerate((model.loading_var, model.noise_var)):
            if isinstance(getattr(law, "level", None), Gamma):
                levels[i] = law.level.shape, law.level.rate
        shape, rate = self._new_precision(levels)
        return ScoreFactors(
            family,
            concrete,
            np.zeros((len(ridge), data.n_cells)),
            np.diag(1.0 / ridge)[None],
            np.zeros(n_features),
            np.full(n_features, shape),
            np.full(n_features, rate),
            levels,
            1.0,
        )

    def _new_precision(self, levels: Array) -> tuple[float, float]:
        """(shape, rate) of the precision of a factor that nobody has yet."""
        law = self.model.loading_var
        if not isinstance(law, PerFeature):
            return 1.0, float(law)
        return float(law.shape), float(law.shape * expected_level(law, levels[0]).mean)

    def init_rows(self, data: OwnerData, codes: Array) -> LoadingFactors:
        n = data.n_rows
        var = _NOISE if self.model.laws.learns_noise else float(self.model.noise_var)
        shape = self.model.laws.noise(1.0)[0] + 0.5 * data.n_seen if self.model.laws.learns_noise else np.ones(n)
        spread = np.full(n, 1e-2 * owned_offset_spread(self.model))
        near = self._near(np.asarray(codes, dtype=float))
        return LoadingFactors(*near, shape, shape * var, np.zeros(n), spread)

    def _near(self, codes: Array) -> tuple[Array, Array, Array]:
        """(z_prob, mean, var): on where the codes are not zero."""
        on = codes != 0
        size = 1.0 if isinstance(self.model.loading_var, PerFeature) else float(self.model.loading_var)
        return np.where(on, _SURE, 1.0 - _SURE), codes + 0.0, np.where(on, _NEAR**2 * size, size)

    def add_column(self, local: LoadingFactors, codes: Array) -> LoadingFactors:
        more = self._near(np.reshape(codes, (-1, 1)).astype(float))
        return local._replace(
            **{name: np.hstack([getattr(local, name), new]) for name, new in zip(local._fields, more, strict=False)}
        )

    def add_feature(self, q: ScoreFactors) -> ScoreFactors:
        K = q.n_features
        cov = np.insert(np.insert(q.cov, K, 0.0, axis=1), K, 0.0, axis=2)
        cov[:, K, K] = 1.0
        shape, rate = self._new_precision(q.levels)
        return q._replace(
            mean=np.insert(q.mean, K, 0.0, axis=0),
            cov=cov,
            counts=np.append(q.counts, 0.0),
            precision_shape=np.append(q.precision_shape, shape),
            precision_rate=np.append(q.precision_rate, rate),
        )

    # ---- passes

    def update_rows(
        self,
        data: OwnerData,
        q: ScoreFactors,
        local: LoadingFactors,
        log_odds: Array,
        n_passes: int = 1,
        n_threads: int | None = None,
    ) -> tuple[LoadingFactors, LoadingSums]:
        """On at most `n_threads` threads, None for one per core; the bits do not depend on it."""
        local = LoadingFactors(*(np.array(part, dtype=float) for part in local))
        if q.family.bits == "hard":
            local = local._replace(z_prob=np.round(local.z_prob))
        v, square = self._passes(data, q, local, np.asarray(log_odds, dtype=float), n_passes, n_threads)
        return local, self._sums(data, local, v, square, n_threads)

    def _passes(
        self, data: OwnerData, q: ScoreFactors, local: LoadingFactors, odds: Array, n_passes: int, n_threads: int | None
    ) -> tuple[Array, Array]:
        """E[v] and E[v^2] of all columns, after passes that change `local`."""
        n_columns, n_cells = q.mean.shape
        forms = q.mean @ q.mean.T + (n_cells if len(q.cov) == 1 else 1) * q.cov.sum(axis=0)
        of_cells = np.zeros((0, n_columns, n_columns))
        if data.any_missing:
            of_cells = np.ascontiguousarray(np.einsum("kc,lc->ckl", q.mean, q.mean) + q.cov)
        spread = owned_offset_spread(self.model)
        precision = expected_precisions(self.model, q)
        law = self.model.laws.noise(float(level_means(self.model, q)[1]))
        sharpness = math.inf if q.family.bits == "hard" else 1.0
        v, square = np.zeros((2, data.n_rows, n_columns))
        n_seen = data.n_seen.astype(float)

        chunks = _chunks(data.n_rows)

        def work(some: slice) -> None:
            for rows in chunks[some]:
                totals = data.seen[rows] @ q.mean.T if spread > 0 else np.zeros((0, n_columns))
                sparse_factor_rows(
                    data.Y[rows] @ q.mean.T, data.sums[rows], data.powers[rows], n_seen[rows],
                    data.start[rows.start : rows.stop + 1], data.cells, forms, of_cells, totals, odds,
                    precision.mean, precision.log, law, spread, q.heat, sharpness, n_passes,
                    *(part[rows] for part in local), v[rows], square[rows],
                )  # fmt: skip

        in_spans(work, len(chunks), 1, max(_LEAST_BITS // (_ROWS * max(n_columns, 1)), 1), n_threads)
        return v, square

    def _sums(
        self, data: OwnerData, local: LoadingFactors, v: Array, square: Array, n_threads: int | None
    ) -> LoadingSums:
        K = local.z_prob.shape[1]
        t, log_noise = expected_noise(self.model, local)
        codes, squares = np.ones((2, data.n_rows, K + 1))
        codes[:, : v.shape[1]], squares[:, : v.shape[1]] = v, square
        scaled = codes * t[:, None]
        gram, cross = np.zeros((K + 1, K + 1)), np.zeros((K + 1, data.n_cells))
        for some in _chunks(data.n_rows):
            Y = data.Y[some] - local.offset_mean[some, None] * data.seen[some]
            gram += scaled[some].T @ codes[some]
            cross += scaled[some].T @ Y
        # eq: NSFA.mean-field-gram
        gram[np.diag_indices(K + 1)] = t @ squares
        m = local.offset_mean
        power = data.powers + m * (data.n_seen * m - 2.0 * data.sums) + data.n_seen * local.offset_var
        on = local.z_prob * 0.5 * np.log(2 * np.pi * np.e * local.var)
        return LoadingSums(
            local.z_prob.sum(axis=0),
            squares[:, :K].sum(axis=0),
            np.sum(entr(local.z_prob) + entr(1.0 - local.z_prob) + on, axis=0),
            gram,
            cross,
            _lacking(data, codes * np.sqrt(t)[:, None], squares * t[:, None], n_threads),
            float(t @ power),
            float(data.n_rows),
            owner_terms(self.model, data, local, log_noise),
        )

    def update_features(self, q: ScoreFactors, statistics: LoadingSums, *, learn: bool = True) -> ScoreFactors:
        model = self.model
        ridge = cells_precision(model, q.n_features)
        precision = statistics.of_cells(len(ridge)) + np.diag(ridge)
        cov = np.linalg.inv(precision)
        cov = 0.5 * (cov + np.swapaxes(cov, 1, 2))
        cross = statistics.cross[: len(ridge)]
        # eq: NSFA.mean-field-factors
        mean = cov[0] @ cross if len(cov) == 1 else np.einsum("ckl,lc->kc", cov, cross)
        if q.family.features == "independent":
            cov = (1.0 / np.einsum("ckk->ck", precision))[:, :, None] * np.eye(len(ridge))
        q = q._replace(mean=mean, cov=cov, counts=statistics.counts, heat=1.0)
        if len(ridge) > q.n_features:
            offset = model.offset.centre + mean[-1] * np.sqrt(model.unit_squares)
            q = q._replace(observation=q.observation.updated(offset=offset))
        law = model.loading_var
        if isinstance(law, PerFeature):
            for _ in range(_TURNS if learn else 1):
                # eq: NSFA.mean-field-precision
                shape = law.shape + 0.5 * statistics.counts
                rate = law.shape * expected_level(law, q.levels[0]).mean + 0.5 * statistics.squares
                q = q._replace(precision_shape=shape, precision_rate=rate)
                if learn:
                    level = level_factor(law, q.n_features, float(np.sum(shape / rate)), q.levels[0])
                    q = q._replace(levels=np.array([level, q.levels[1]]))
        if model.laws.learns_noise and learn:
            level = level_factor(model.noise_var, statistics.n_rows, float(statistics.gram[-1, -1]), q.levels[1])
            q = q._replace(levels=np.array([q.levels[0], level]))
        return q

    def features_bound(self, q: ScoreFactors, statistics: LoadingSums) -> float:
        return bound(self.model, q, statistics)

    def annealed(self, q: ScoreFactors, temperature: float) -> ScoreFactors:
        return q._replace(heat=q.heat * float(temperature))

    def keep_columns(self, part: Any, columns: Array) -> Any:
        columns = np.asarray(columns)
        if isinstance(part, ScoreFactors):
            kept = np.append(columns, np.arange(part.n_features, len(part.mean)))  # and the offset
            return part._replace(
                mean=part.mean[kept],
                cov=part.cov[:, kept[:, None], kept],
                counts=part.counts[columns],
                precision_shape=part.precision_shape[columns],
                precision_rate=part.precision_rate[columns],
            )
        if isinstance(part, LoadingSums):
            kept = np.append(columns, len(part.counts))
            return part._replace(
                counts=part.counts[columns],
                squares=part.squares[columns],
                entropy=part.entropy[columns],
                gram=part.gram[np.ix_(kept, kept)],
                cross=part.cross[kept],
                lacking=part.lacking[:, kept[:, None], kept] if part.lacking.shape[1] > 1 else part.lacking,
            )
        return part._replace(z_prob=part.z_prob[:, columns], mean=part.mean[:, columns], var=part.var[:, columns])

    # ---- what was found

    def unexplained(self, data: OwnerData, q: ScoreFactors, local: LoadingFactors) -> Array:
        left = data.Y - local.codes @ q.mean[: q.n_features] - local.offset_mean[:, None]
        if len(q.mean) > q.n_features:
            left -= q.mean[-1]
        left[data.missing] = 0.0
        return left

    def draw_rows(self, rng: Generator, local: LoadingFactors) -> tuple[Array, Array]:
        bits = (rng.random(local.z_prob.shape) < local.z_prob).astype(np.uint8)
        return bits, bits * rng.normal(local.mean, np.sqrt(local.var))

    def draw_values(self, rng: Generator, q: ScoreFactors, cells: Array) -> Array:
        root = np.linalg.cholesky(q.cov[:, : q.n_features, : q.n_features])
        steps = rng.standard_normal((len(cells), q.n_features, 1))
        return q.mean[: q.n_features, cells].T + (root[cells if len(root) > 1 else slice(None)] @ steps)[:, :, 0]

    def expected_codes(self, local: LoadingFactors) -> Array:
        return local.codes

    def expected_features(self, q: ScoreFactors) -> Array:
        return q.mean[: q.n_features]

    def check(self, q: ScoreFactors, local: LoadingFactors) -> None:
        if (np.diagonal(q.cov, axis1=1, axis2=2) < 0).any() or (local.var < 0).any() or (local.offset_var < 0).any():
            raise ValueError("a variance is negative")
        positive = (q.precision_shape, q.precision_rate, q.levels, local.noise_shape, local.noise_rate)
        if any((part <= 0).any() for part in positive):
            raise ValueError("a precision is not positive")

    def concrete(self, q: ScoreFactors, local: LoadingFactors) -> "SparseFactorAnalysis":
        model = self.model
        if owned_offset_spread(model) == 0:
            return q.observation  # type: ignore[no-any-return]
        return model.updated(offset=model.offset.centre + local.offset_mean * np.sqrt(model.unit_squares))

    def codebook(self, q: ScoreFactors, local: LoadingFactors) -> Codebook:
        """Where dims own the loadings, what is not known of these counts as noise."""
        K = q.n_features
        units = np.sqrt(self.model.unit_squares)
        noise = 1.0 / expected_noise(self.model, local)[0]
        if self.model.owners == "dims":
            codes = local.codes
            noise += np.sum(local.squares - codes**2, axis=1) + local.offset_var
            return LoadingsCodebook(codes.T * units, q.counts, noise * units**2, q.mean[:K].copy())
        precisions = np.asarray(expected_precisions(self.model, q).mean)
        levels = level_means(self.model, q)
        return FactorsCodebook(q.mean[:K] * units, q.counts, precisions, levels, noise)

    # ---- signs and sizes: a factor and its loadings can change theirs together

    def signs(self, q: ScoreFactors, local: Sequence[LoadingFactors]) -> Array:
        """-1 where the largest loading of a dim, in units of its noise, or the largest value is negative, else 1."""
        columns = q.mean[: q.n_features].T
        if self.model.owners == "dims":
            columns = np.vstack([part.codes * np.sqrt(expected_noise(self.model, part)[0])[:, None] for part in local])
        peak = np.abs(columns).argmax(axis=0)
        return np.where(columns[peak, np.arange(columns.shape[1])] < 0, -1.0, 1.0)

    def stretch(self, q: ScoreFactors, local: Sequence[LoadingFactors]) -> Array:
        """Both factors of q scaled, the precisions at their optimum: x = factor^2 solves a quadratic equation."""
        K, n_cells = q.n_features, q.mean.shape[1]
        n_on = np.sum([part.z_prob.sum(axis=0) for part in local], axis=0)
        square = np.sum([part.squares.sum(axis=0) for part in local], axis=0)
        spread = np.einsum("ckk->k", q.cov)[:K] * (n_cells // len(q.cov))
        power = np.sum(q.mean[:K] ** 2, axis=1) + spread
        law = self.model.loading_var
        # eq: NSFA.mean-field-stretch
        if isinstance(law, PerFeature):
            rate = law.shape * expected_level(law, q.levels[0]).mean
            a, b, c = (0.5 * n_cells + law.shape) * square, (n_on - n_cells) * rate + 0.5 * power * square, power * rate
        else:
            a, b, c = square / float(law), n_on - n_cells, power
        a = np.maximum(a, 1e-300)
        return np.sqrt(np.clip((b + np.sqrt(b * b + 4.0 * a * c)) / (2.0 * a), 1e-6, 1e6))

    def turned(self, part: Any, factors: Array) -> Any:
        if isinstance(part, ScoreFactors):
            by = np.append(factors, np.ones(len(part.mean) - len(factors)))  # the offset stays
            q = part._replace(mean=part.mean / by[:, None], cov=part.cov / np.outer(by, by))
            learned = isinstance(self.model.loading_var, PerFeature)
            return q._replace(precision_rate=part.precision_rate * factors**2) if learned else q
        if isinstance(part, LoadingSums):
            by = np.append(factors, 1.0)
            lacking = part.lacking * np.outer(by, by) if part.lacking.shape[1] > 1 else part.lacking
            return part._replace(
                squares=part.squares * factors**2,
                entropy=part.entropy + part.counts * np.log(np.abs(factors)),
                gram=part.gram * np.outer(by, by),
                cross=part.cross * by[:, None],
                lacking=lacking,
            )
        return part._replace(mean=part.mean * factors, var=part.var * factors**2)


def _chunks(n_rows: int) -> list[slice]:
    step = _ROWS * max(-(-n_rows // (_ROWS * _CHUNKS)), 1)
    return [slice(first, min(first + step, n_rows)) for first in range(0, n_rows, step)]


def _lacking(data: OwnerData, codes: Array, squares: Array, n_threads: int | None) -> Array:
    """E[V'V] of the owners that lack each cell, from codes and squares in which the ones are a column."""
    if not data.any_missing:
        return np.zeros((1, 1, 1))
    n_columns = codes.shape[1]
    grams = np.empty((data.n_cells, n_columns + 1, n_columns + 1))
    start, rows = data.lacking

    def work(cells: slice) -> None:
        lacking_grams(codes, squares, start[cells.start : cells.stop + 1], rows, grams[cells])

    in_spans(work, data.n_cells, 1, 64, n_threads)
    return np.ascontiguousarray(grams[:, :n_columns, :n_columns])
