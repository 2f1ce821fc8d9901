"""Sweeps of a likelihood without engines of its own, features drawn beside the codes.

Given the features, what a bit does to its row does not depend on other rows. So the evidence for one column is computed
for all rows at a time; only the prior's odds, which count the other rows, are added row by row.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from thali.core.binary import column_counts
from thali.core.observation import Engine
from thali.core.odds import RowOdds, one_kind
from thali.observations.explicit.features import redraw_features
from thali.observations.explicit.rows import ExplicitData, ExplicitRows

if TYPE_CHECKING:  # which builds on this module
    from thali.observations.likelihood import Likelihood

Array = np.ndarray
Generator = np.random.Generator

_TRIES = 4  # sets of features that a row alone has, proposed in a sweep


class ExplicitSweeps(Engine):
    """ConditionalRows, SliceRows and GroupedRows of any likelihood."""

    model: "Likelihood"

    def conditional_sweep(self, rng: Generator, data: ExplicitData, local: ExplicitRows, odds: RowOdds) -> ExplicitRows:
        codes = local.codes.copy()
        features = redraw_features(rng, self.model, data.X, data.seen, codes, local.features)
        counts = column_counts((codes != 0).astype(np.uint8))
        for k in rng.permutation(codes.shape[1]):
            on, evidence = self._evidence(rng, data, codes, features, k)
            chances = rng.random(len(codes))
            for n in range(len(codes)):
                others = int(counts[k] - (codes[n, k] != 0))
                if others == 0 and odds.infinite:
                    continue  # the feature of one row alone is drawn anew below
                counts[k] += self._flip(codes, n, k, on[n], odds.of(n, k, others) + evidence[n], chances[n])
        self._refresh(rng, data, codes, features)
        if odds.infinite:
            codes, features = self._own_features(rng, data, codes, features, odds)
        return ExplicitRows((codes != 0).astype(np.uint8), codes, features)

    def weighted_sweep(
        self,
        rng: Generator,
        data: ExplicitData,
        local: ExplicitRows,
        used: Array,
        unused: Array,
        level: float = 0.0,
    ) -> ExplicitRows:
        return self.grouped_sweep(rng, data, local, *one_kind(len(local.codes), used, unused), level)[0]

    def grouped_sweep(
        self,
        rng: Generator,
        data: ExplicitData,
        local: ExplicitRows,
        chances: Array,
        kinds: Array,
        sizes: Array,
        level: float = 0.0,
    ) -> tuple[ExplicitRows, Array]:
        fresh = self.model.draw_features(rng, len(sizes) - len(local.features), data.n_dims)
        features = redraw_features(rng, self.model, data.X, data.seen, local.codes, local.features)
        features = np.vstack([features, fresh])
        codes = np.hstack([local.codes, np.zeros((len(local.codes), len(fresh)))])
        counts = column_counts((codes != 0).astype(np.uint8))
        for k in rng.permutation(len(sizes)):
            if sizes[k] < level:
                continue
            on, evidence = self._evidence(rng, data, codes, features, k)
            uniform = rng.random(len(codes))
            log_odds = [math.log(chance) - math.log1p(-chance) for chance in chances[:, k]]
            smallest = sizes[(counts > 0) & (np.arange(len(sizes)) != k)].min(initial=1.0)
            in_use = math.log(smallest) - math.log(min(smallest, sizes[k]))  # the slice below what is in use
            for n in range(len(codes)):
                alone = counts[k] == (codes[n, k] != 0)
                odds = log_odds[kinds[n]] + (in_use if alone else 0.0)  # eq: T07.slice-odds
                counts[k] += self._flip(codes, n, k, on[n], odds + evidence[n], uniform[n])
        self._refresh(rng, data, codes, features)
        kept = (codes != 0).any(axis=0)
        codes, features = codes[:, kept], features[kept]
        return ExplicitRows((codes != 0).astype(np.uint8), codes, features), kept

    # ---- one column

    def _log_rows(self, data: ExplicitData, codes: Array, features: Array) -> Array:
        """Log density of each row's observed cells."""
        with np.errstate(all="ignore"):
            cells = self.model.log_cells(data.X, codes, features)
        return np.where(data.seen, cells, 0.0).sum(axis=1)

    def _evidence(
        self, rng: Generator, data: ExplicitData, codes: Array, features: Array, k: int
    ) -> tuple[Array, Array]:
        """(what the code of feature k is if it is on: as it is, or from its prior; the evidence of each row for it)."""
        is_on = codes[:, k] != 0
        drawn = self.model.draw_codes(rng, np.ones((len(codes), 1), dtype=np.uint8))[:, 0].astype(float)
        on = np.where(is_on, codes[:, k], drawn)
        trial = codes.copy()
        trial[:, k] = on
        with_it = self._log_rows(data, trial, features)
        trial[:, k] = 0.0
        with np.errstate(invalid="ignore"):
            evidence = with_it - self._log_rows(data, trial, features)
        return on, np.nan_to_num(evidence, nan=0.0, posinf=1e300, neginf=-1e300)

    def _flip(self, codes: Array, n: int, k: int, on: float, odds: float, chance: float) -> int:
        """Draw one bit, a Gibbs step; with a weight that was proposed from its prior, a Metropolis step. By how much
        the count of its column changes."""
        was_on = codes[n, k] != 0
        if self.model.code_kind == "bits":
            is_on = bool(chance < expit(odds))
        else:
            changes = math.log(max(chance, 1e-300)) < (-odds if was_on else odds)
            is_on = was_on != changes
        codes[n, k] = on if is_on else 0.0
        return int(is_on) - int(was_on)

    def _refresh(self, rng: Generator, data: ExplicitData, codes: Array, features: Array) -> None:
        """Weights that are on, proposed from their prior; changed in place."""
        if self.model.code_kind == "bits":
            return
        before = self._log_rows(data, codes, features)
        for k in rng.permutation(codes.shape[1]):
            on = codes[:, k] != 0
            trial = codes.copy()
            trial[on, k] = self.model.draw_codes(rng, np.ones((int(on.sum()), 1), dtype=np.uint8))[:, 0]
            after = self._log_rows(data, trial, features)
            accepted = on & (np.log(1.0 - rng.random(len(codes))) < after - before)
            codes[accepted, k] = trial[accepted, k]
            before = np.where(accepted, after, before)

    # ---- features that a row alone has

    def _own_features(
        self, rng: Generator, data: ExplicitData, codes: Array, features: Array, odds: RowOdds
    ) -> tuple[Array, Array]:
        """Metropolis steps that put a set from the prior in the place of the features that a row alone has."""
        model = self.model
        for n in range(len(codes)):
            row = ExplicitData(data.X[n : n + 1], data.seen[n : n + 1])
            for _ in range(_TRIES):
                own = (codes[n] != 0) & ((codes != 0).sum(axis=0) == 1)
                n_new = int(rng.poisson(odds.rate_of(n)))
                if n_new == 0 and not own.any():
                    continue
                fresh = model.draw_features(rng, n_new, data.n_dims)
                new = model.draw_codes(rng, np.ones((1, n_new), dtype=np.uint8)).astype(float)
                shared = codes[n : n + 1, ~own]
                before = self._log_rows(row, codes[n : n + 1], features)[0]
                after = self._log_rows(row, np.hstack([shared, new]), np.vstack([features[~own], fresh]))[0]
                with np.errstate(invalid="ignore"):
                    gain = after - before
                if math.log(1.0 - rng.random()) < (gain if not math.isnan(gain) else 0.0):
                    columns = np.zeros((len(codes), n_new))
                    columns[n] = new
                    codes, features = np.hstack([codes[:, ~own], columns]), np.vstack([features[~own], fresh])
        return np.ascontiguousarray(codes), features
