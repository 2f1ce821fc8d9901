"""What a filter knows of the features of X = offset + Z A + noise: q(A_kd) = N(mean_kd, noise_d / (ridge + rows_kd)),
ridge = noise / feature variance, rows the expected number of rows with the feature.

Learned variances are points that suit the rows so far (`in_order`); q(A) follows them, as if they had been known. A
noise level of each dim, or an offset, is fixed at what the rows say with which the filter begins (`known_of`).
"""

import math
from typing import Any, ClassVar

import numpy as np

from thali.core.distributions import NormalOffset, PerDim
from thali.core.events import KINDS, EventNote
from thali.core.observation import Engine
from thali.core.protocols.engines.recursive import RowLaw, RowPlan
from thali.core.spec import is_distribution
from thali.errors import InvalidParameterError
from thali.kernels.bits import row_births
from thali.kernels.bits.recursive_batches import filter_batch
from thali.kernels.bits.recursive_rows import filter_rows
from thali.kernels.bits.recursive_slots import CANDIDATES, Law, Plan, Slots, Totals
from thali.observations.gaussian.codebook import GaussianCodebook
from thali.observations.gaussian.mean_field.point_variances import best_variance
from thali.observations.gaussian.model import GaussianModel
from thali.observations.gaussian.next_row import NextRow, log_density
from thali.observations.gaussian.recursive_features import RecursiveFeatures
from thali.observations.gaussian.recursive_merging import parts_of, without

Array = np.ndarray

_BIRTHS = {
    "poisson": row_births.POISSON,
    "independent": row_births.INDEPENDENT,
    "comonotone": row_births.COMONOTONE,
    "anchored": row_births.ANCHORED,
}
_ROOM = 16  # features to begin with, and more at a time
_SHARE = 0.5  # of the variance of a dim that is noise before any row was seen, where each dim has its own
_SETTLED = 20.0  # rows of a feature from which its drift is counted
_DRIFTED = 1.0  # distance of a drift in sds of the noise, per dim


class RecursiveGaussian(Engine):
    """RecursiveRows of a model whose codes are bits."""

    model: GaussianModel

    recipes: ClassVar[tuple[str, ...]] = ("residual", "paper")  # that it knows

    def check_recursive(self, plan: RowPlan) -> None:
        if plan.recipe not in self.recipes:
            raise InvalidParameterError(
                f"{type(self.model).__name__} has no recipe {plan.recipe!r}: features and weights that all begin at "
                f"their priors, at zero, stay there. Use {' or '.join(map(repr, self.recipes))}."
            )
        if plan.batch > 1 and plan.recipe != "residual":
            raise InvalidParameterError(
                f"recipe={plan.recipe!r} takes rows one by one. Got batch={plan.batch}; use batch=1, or 'residual'."
            )
        for name, kind in (("noise_var", PerDim), ("offset", NormalOffset)):
            if isinstance(getattr(self.model, name), kind) and not plan.n_start:
                raise InvalidParameterError(
                    f"{name}={kind.__name__}() is fixed at what a mean field of the first rows finds, and there are "
                    "none with n_start=0 or recipe='paper'. Give a vector with one number per dim, or n_start=100."
                )

    def nothing_known(self, n_dims: int) -> RecursiveFeatures:
        spec, floor = self.model, self.model.floor(n_dims)
        values: dict[str, Any] = {}
        if isinstance(spec.noise_var, PerDim):
            values["noise_var"] = np.maximum(_SHARE * np.broadcast_to(spec.scale, n_dims), floor)
        elif is_distribution(spec.noise_var):
            values["noise_var"] = max(float(spec.noise_var.centre), float(np.mean(floor)))
        if is_distribution(spec.feature_var):
            values["feature_var"] = float(spec.feature_var.centre)
        if isinstance(spec.offset, NormalOffset):
            values["offset"] = np.array(spec.offset.centre, dtype=float)
        none, wide = np.zeros(0), np.zeros((0, n_dims))
        return RecursiveFeatures(
            self.model.updated(**values), wide, np.zeros((0, 1)), none, none, none, np.zeros(0, np.int64),
            np.zeros((0, 0)), np.zeros(0, bool), np.zeros(0, bool), wide, 0, 0.0, 0.0, 0.0, 0.0, 0,
        )  # fmt: skip

    def known_of(self, X: Array, z_prob: Array, codes: Array, observation: Any) -> RecursiveFeatures:
        """Features in order of appearance; their means are the joint optimum given the bits: eq: own.batch-features."""
        start = self.nothing_known(X.shape[1])._replace(observation=observation)
        first = np.argmax(z_prob > 0.5, axis=0)
        z = np.asarray(z_prob, dtype=float)[:, np.lexsort((-z_prob.sum(axis=0), first))]
        first = np.sort(first)
        (n, n_dims), K = X.shape, z.shape[1]
        Y = self._standard(start.observation, X)
        seen = ~np.isnan(Y)
        Y = np.where(seen, Y, 0.0)
        known = start
        for _ in range(10 if self.model.learned else 1):  # the variances and the means follow each other
            ridge = self._variances(known.observation)[0] / self._variances(known.observation)[1]
            if seen.all():
                rows = z.sum(axis=0)[:, None]
                mean = np.linalg.solve(_gram(z, ridge), z.T @ Y)
            else:
                rows = z.T @ seen
                mean = np.stack(
                    [np.linalg.solve(_gram(z * seen[:, d, None], ridge), z.T @ Y[:, d]) for d in range(n_dims)], axis=1
                )
            noise = self._variances(known.observation)[0]
            left = np.where(seen, Y - z @ mean, 0.0)
            inner = (z * (1 - z)).T @ seen * mean**2 + noise * (z.T @ seen) / (ridge + rows)
            known = known._replace(
                mean=mean, rows=rows, counts=z.sum(axis=0),
                exists=-np.expm1(np.log1p(-np.minimum(z, 1 - 1e-12)).sum(axis=0)),
                age=(n - first).astype(float), number=np.arange(K), told=np.ones(K, bool),
                together=z.T @ z + np.diag((z - z * z).sum(axis=0)),
                is_settled=np.zeros(K, bool), settled=np.zeros((K, n_dims)), n_rows=n, weight=float(n),
                error=float((left**2).sum() + inner.sum()), n_cells=float(seen.sum()), n_born=K,
            )  # fmt: skip
            known = self._with_variances(known)
        return known

    def filter_rows(
        self, known: RecursiveFeatures, X: Array, law: RowLaw, plan: RowPlan
    ) -> tuple[RecursiveFeatures, list[EventNote]]:
        Y = np.ascontiguousarray(self._standard(known.observation, X))
        lacking = np.isnan(Y).any(axis=1)
        widens = bool(lacking.any()) and known.rows.shape[1] == 1
        first = 0 if widens and plan.batch > 1 else int(np.argmax(lacking)) if widens else len(Y)
        notes: list[EventNote] = []
        if first:
            known = self._filtered(known, Y[:first], law, plan, notes)
        if first < len(Y):  # from the first missing cell on, each cell has a number of rows of its own
            known = known._replace(rows=np.repeat(known.rows, Y.shape[1], axis=1))
            known = self._filtered(known, Y[first:], law, plan, notes)
        return known, notes

    def _filtered(
        self, known: RecursiveFeatures, Y: Array, law: RowLaw, plan: RowPlan, notes: list[EventNote]
    ) -> RecursiveFeatures:
        noise, feature = self._variances(known.observation)
        fixed_law = Law(law.mass, law.concentration, _BIRTHS[law.births], noise, feature)
        residual = plan.recipe == "residual"
        how = Plan(
            plan.n_inner, plan.tol, plan.forgetting, plan.fade_below, plan.most, residual, 0.0 if residual else 1.0
        )
        totals = Totals(
            *(np.array([float(value)]) for value in (
                known.n_rows, known.weight, known.error, known.n_cells, known.bound, known.n_born,
            ))
        )  # fmt: skip
        before = dict(zip(known.number.tolist(), zip(known.is_settled, known.settled, strict=True), strict=True))
        slots, K, told = self._taken_in(Y, known, totals, fixed_law, how, plan.batch)
        notes += [EventNote(int(r), int(kind), int(k), float(v)) for r, kind, k, v in told]
        kept = Slots(*(np.array(array[:K, :K] if array is slots.together else array[:K]) for array in slots))
        if not (np.isfinite(kept.mean).all() and np.isfinite(totals.bound[0])):
            raise FloatingPointError("what is known of the features is not finite")
        settled = [before.get(number, (False, np.zeros(Y.shape[1]))) for number in kept.number.tolist()]
        return known._replace(
            mean=kept.mean, rows=kept.rows, counts=kept.counts, exists=kept.exists, age=kept.age, number=kept.number,
            told=kept.told, together=kept.together, is_settled=np.array([one for one, _ in settled], dtype=bool),
            settled=np.array([mean for _, mean in settled]).reshape(K, Y.shape[1]), n_rows=int(totals.n_rows[0]),
            weight=float(totals.weight[0]), error=float(totals.error[0]), n_cells=float(totals.n_cells[0]),
            bound=float(totals.bound[0]), n_born=int(totals.n_born[0]),
        )  # fmt: skip

    def _taken_in(
        self, Y: Array, known: RecursiveFeatures, totals: Totals, law: Law, how: Plan, batch: int
    ) -> tuple[Slots, int, list[Array]]:
        """(the features after the rows, how many they are, what was told)."""
        K, at, told = known.n_features, 0, []
        if batch > 1:
            slots = _with_room(known, min(K + CANDIDATES * len(Y), max(how.most, K)) + CANDIDATES)
            room = np.empty((K + 2 * CANDIDATES * len(Y) + 2 * len(slots.counts), 4))
            K, n = filter_batch(Y, K, slots, totals, law, how, room)
            return slots, K, list(room[:n])
        slots = _with_room(known, K + _ROOM)
        room = np.empty((8 * len(slots.counts), 4))
        while at < len(Y):
            at, K, n = self._rows(Y, at, K, slots, totals, law, how, room)
            told += list(room[:n].copy())
            if at < len(Y) and len(slots.counts) < K + _ROOM // 2:
                slots = Slots(*(_grown(array, 2 * len(array), square=array is slots.together) for array in slots))
                room = np.empty((8 * len(slots.counts), 4))
        return slots, K, told

    def _rows(self, *arguments: Any) -> tuple[int, int, int]:
        return filter_rows(*arguments)  # type: ignore[no-any-return]

    # ---- order

    def in_order(
        self, known: RecursiveFeatures, law: RowLaw, plan: RowPlan
    ) -> tuple[RecursiveFeatures, list[EventNote]]:
        known, notes = self._merged(known) if plan.recipe == "residual" else (known, [])
        known = self._with_variances(known)
        return self._drifted(known, notes)

    def _merged(self, known: RecursiveFeatures) -> tuple[RecursiveFeatures, list[EventNote]]:
        """Without features that are another one, or a sum of others that are more frequent each: those have their rows
        from now on."""
        noise, feature = self._variances(known.observation)
        notes: list[EventNote] = []
        c = 0
        while c < known.n_features:
            order = np.argsort(known.counts, kind="stable")
            this = int(order[c])
            parts = parts_of(this, known, noise, noise / feature)
            if not parts:
                c += 1
                continue
            if known.told[this]:
                name, other = int(known.number[this]), float(known.number[parts[0]])
                notes.append(EventNote(known.n_rows, KINDS.index("merged"), name, other))
            known, c = without(known, this, parts, noise / feature), 0
        return known, notes

    def _drifted(self, known: RecursiveFeatures, notes: list[EventNote]) -> tuple[RecursiveFeatures, list[EventNote]]:
        """With notes on features that have moved away from where they were once they had enough rows."""
        noise, _ = self._variances(known.observation)
        is_settled, settled = known.is_settled.copy(), known.settled.copy()
        for k in np.flatnonzero(known.counts >= _SETTLED):
            if not is_settled[k]:
                is_settled[k], settled[k] = True, known.mean[k]
                continue
            far = math.sqrt(float(np.mean((known.mean[k] - settled[k]) ** 2)) / noise)
            if far > _DRIFTED:
                notes = [*notes, EventNote(known.n_rows, KINDS.index("drifted"), int(known.number[k]), far)]
                settled[k] = known.mean[k]
        return known._replace(is_settled=is_settled, settled=settled), notes

    def _with_variances(self, known: RecursiveFeatures) -> RecursiveFeatures:
        """With learned variances at the point that suits the rows so far best."""
        if not self.model.learned or known.n_cells == 0:
            return known
        spec, old = self.model, known.observation
        noise, feature = self._variances(old)
        n_dims = known.mean.shape[1]
        values: dict[str, float] = {}
        if is_distribution(spec.noise_var) and not isinstance(spec.noise_var, PerDim):
            # eq: own.stream-noise
            floor = float(np.mean(spec.floor(n_dims)))
            values["noise_var"] = best_variance(spec.noise_var, noise, known.n_cells, known.error, floor)
        if is_distribution(spec.feature_var) and known.n_features:
            spread = n_dims * noise * float((1.0 / (noise / feature + known.rows)).mean(axis=1).sum())
            square = float((known.mean**2).sum()) + spread
            # eq: own.stream-feature
            values["feature_var"] = best_variance(spec.feature_var, feature, known.n_features * n_dims, square, 0.0)
        new = old.updated(**values)
        ridge, other = noise / feature, self._variances(new)[0] / self._variances(new)[1]
        return known._replace(observation=new, mean=known.mean * ((ridge + known.rows) / (other + known.rows)))

    # ---- for others

    def codebook(self, known: RecursiveFeatures) -> GaussianCodebook:
        """In the units of the data."""
        noise, feature = self._variances(known.observation)
        scale = known.observation.units[1]
        mean = known.mean if scale is None else known.mean * scale
        spread = (1.0 / (noise / feature + known.rows)).mean(axis=1)
        return GaussianCodebook(mean.copy(), known.counts.copy(), np.diag(spread))

    def log_density(self, known: RecursiveFeatures, X: Array, chance: Array, how: str, n_samples: int) -> Array:
        """By the posterior of each cell of the features; new ones are at their prior."""
        noise, feature = self._variances(known.observation)
        n_new, n_dims = len(chance) - known.n_features, known.mean.shape[1]
        var = np.vstack([noise / (noise / feature + known.rows), np.full((n_new, known.rows.shape[1]), feature)])
        mean = np.vstack([known.mean, np.zeros((n_new, n_dims))])
        row = NextRow(chance, mean, var if var.shape[1] > 1 else var[:, 0], noise, self._weight_var, n_new)
        found = log_density(self._standard(known.observation, X), row, how, n_samples)
        scale = known.observation.units[1]
        return found if scale is None else found - ~np.isnan(X) @ np.log(np.broadcast_to(scale, n_dims))

    @property
    def _weight_var(self) -> float | None:
        """Of the weights of a row; None: it has none."""
        return None

    def check_known(self, known: Any, n_dims: int) -> None:
        if not isinstance(known, RecursiveFeatures) or type(known.observation) is not type(self.model):
            raise ValueError("what it knows is of another model")
        known.observation.require_concrete("load")
        known.observation.check_data(np.zeros((1, n_dims)))
        K = known.n_features
        shapes = {
            "mean": (K, n_dims), "counts": (K,), "exists": (K,), "age": (K,), "number": (K,), "together": (K, K),
            "settled": (K, n_dims),
        }  # fmt: skip
        sound = (
            all(getattr(known, name).shape == shape for name, shape in shapes.items())
            and known.rows.shape in ((K, 1), (K, n_dims))
            and known.number.dtype == np.int64
            and all(getattr(known, name).dtype == np.float64 for name in (*shapes, "rows") if name != "number")
            and known.is_settled.shape == (K,) and known.is_settled.dtype == np.bool_
            and known.told.shape == (K,) and known.told.dtype == np.bool_
            and all(np.isfinite(getattr(known, name)).all() for name in (*shapes, "rows"))
            and all((getattr(known, name) >= 0).all() for name in ("rows", "counts", "age"))
            and bool(((known.exists >= 0) & (known.exists <= 1)).all())
            and len(set(known.number.tolist())) == K
            and all(0 <= number < known.n_born for number in known.number.tolist())
            and all(math.isfinite(value) for value in known[11:])
            and known.n_rows >= 0 and known.weight >= 0 and known.error >= 0 and known.n_cells >= 0
        )  # fmt: skip
        if not sound:
            raise ValueError("what it knows does not fit together")

    def _variances(self, concrete: Any) -> tuple[float, float]:
        """(noise, feature) variances of the standardised data."""
        return float(concrete.units[0]), float(concrete.feature_var)

    def _standard(self, concrete: Any, X: Array) -> Array:
        Y = self.model.from_origin(X)
        Y = Y if concrete.offset is None else Y - concrete.offset
        scale = concrete.units[1]
        return Y if scale is None else Y / scale


def _gram(z: Array, ridge: float) -> Array:
    """E[z'z] + ridge."""
    gram = z.T @ z
    np.fill_diagonal(gram, z.sum(axis=0) + ridge)
    return gram


def _with_room(known: RecursiveFeatures, room: int) -> Slots:
    parts = (known.mean, known.rows, known.counts, known.exists, known.age, known.number, known.together, known.told)
    return Slots(*(_grown(part, room, square=part is known.together) for part in parts))


def _grown(array: Array, room: int, *, square: bool = False) -> Array:
    shape = (room, room) if square else (room, *array.shape[1:])
    larger = np.zeros(shape, array.dtype)
    larger[tuple(slice(size) for size in array.shape)] = array
    return larger
