"""The loop of an inference by blocks of rows: passes over data that can be read again, or batches as they come."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.data.far_rows import Seen, warn_of_far_rows
from thali.data.row_blocks import RowBlocks
from thali.data.young_rows import checked_rows, is_time, rows_from_file, rows_to_file, with_rows
from thali.inference.calibration.noise_floor import calibrate
from thali.rng import freeze, thaw
from thali.running.progress import PassProgress
from thali.running.stopping import Watch
from thali.storage.packing import pack, unpack

Array = np.ndarray

_TRIALS = 3  # other sets of features that are tried once a fit has settled
_TRIAL_PASSES = 2  # after which one must be better


class BlockRun:
    """A fit by blocks of rows, which can go on with more of them. `state` is the inference's; None before any row.

    `model` is adapted to the rows that the features began with, and `given` as it was before.
    """

    def __init__(self, rng: np.random.Generator, inference: Any, model: Model, given: Model | None = None) -> None:
        self.rng, self.inference, self.model, self.given = rng, inference, model, given
        self.young: Any = None  # all rows so far, as long as they are few
        self.n_begun = 0  # of them, with which the features began
        self.seen: Seen | None = None
        self.state: Any = None
        self.trace: list[tuple[float, int, int]] = []  # bound, features, rows that it is of: after each pass or batch
        self.settled = self.in_stream = False

    def fit(
        self, blocks: RowBlocks, *, max_time: float | None = None, verbose: bool | None = False
    ) -> tuple[bool, str | None]:
        """(whether every row was seen, why it ended early): pass after pass, at least one block of the first."""
        with Watch(max_time) as watch, PassProgress(verbose) as progress:
            inference, n_all = self.inference, blocks.n_rows
            X = blocks.some_rows(self.rng, inference.n_start)
            state = inference.begin(self.rng, self.model, X, n_all, watch.is_over)
            complete = False
            n_trials = _TRIALS if inference.moves and inference.memoised else 0
            for _ in range(inference.n_epochs):
                before = state.bound if complete else -np.inf
                state, done = self._pass(blocks, state, watch.is_over)
                complete |= done
                self._remember(state, progress)
                if not done:
                    return complete, watch.reason
                if inference.memoised and state.bound - before <= inference.tol * abs(state.bound):
                    state, better = self._other(blocks, state, watch.is_over) if n_trials else (state, False)
                    n_trials -= 1
                    self.settled = not better
                    if self.settled:
                        break
            if self.given is not None and n_all < inference.n_start:
                self.young, self.n_begun = X, n_all
            self.seen = Seen.nothing(blocks.n_dims).after(X)
            return True, "interrupt" if watch.interrupted and not self.settled else None

    def _pass(self, blocks: RowBlocks, state: Any, is_over: Callable[[], bool]) -> tuple[Any, bool]:
        """(state, whether the pass came to its end)."""
        inference = self.inference
        order: Iterable[int] = range(blocks.n_blocks)
        if not inference.memoised:  # neighbours may be alike
            order = self.rng.permutation(blocks.n_blocks)
        for index in order:
            if state.n_visits and is_over():
                return inference.in_order(state), False
            X = blocks.block(int(index))
            state = inference.visit(state, X, int(index), n_all=blocks.n_rows, keep=not blocks.on_disk)
        return inference.in_order(state), True

    def _other(self, blocks: RowBlocks, state: Any, is_over: Callable[[], bool]) -> tuple[Any, bool]:
        """(state, whether it is better): other features that some rows suggest, if all rows agree."""
        trial = self.inference.with_more(self.rng, state, self._telling(blocks, state))
        if trial is None:
            return state, False
        for _ in range(_TRIAL_PASSES):
            trial, done = self._pass(blocks, trial, is_over)
            if not done:
                return state, False
        better = trial.bound - state.bound > self.inference.tol * abs(state.bound)
        return (trial, True) if better else (state, False)

    def _telling(self, blocks: RowBlocks, state: Any) -> Array:
        """Some rows, half of them those that are explained worst: rare features would not be seen in others."""
        n_some = min(self.inference.n_start, blocks.n_rows)
        rows, scores = np.zeros(0, dtype=np.int64), np.zeros(0)
        for index in range(blocks.n_blocks):
            new = self.inference.misfit(state, blocks.block(index))
            rows = np.concatenate([rows, index * blocks.batch_size + np.arange(len(new))])
            scores = np.concatenate([scores, new])
            worst = np.argsort(-scores, kind="stable")[: n_some // 2]
            rows, scores = rows[worst], scores[worst]
        others = self.rng.choice(blocks.n_rows, n_some, replace=False)
        others = others[~np.isin(others, rows)][: n_some - len(rows)]
        return blocks.rows(np.sort(np.concatenate([rows, others])))

    def absorb(
        self, batches: Iterable[Array], *, max_time: float | None = None, verbose: bool | None = False
    ) -> str | None:
        """Take in batches, each once; why it ended before the last one. A batch that fails is not taken in."""
        if not self.in_stream:  # what came before counts as one batch
            self.in_stream, self.trace = True, self.trace[-1:]
        with Watch(max_time) as watch, PassProgress(verbose) as progress:
            for X in batches:
                before = self.snapshot()
                try:
                    self._take_in(X, watch.is_over, progress)
                except BaseException:
                    self.restore(before)
                    raise
                if watch.is_over():
                    break
            else:
                return None
            return watch.reason

    def _take_in(self, X: Array, is_over: Callable[[], bool], progress: PassProgress) -> None:
        """One batch. Features begin with the first one and, as long as rows are few, anew when they have doubled."""
        inference, state, rows = self.inference, self.state, X
        self.seen = self.seen or Seen.nothing(X.shape[1])
        warn_of_far_rows(self.seen, X)
        self.seen = self.seen.after(X)
        if state is None or self.young is not None:
            young = with_rows(self.young, X)
            if is_time(young.shape[0], self.n_begun, inference.n_start):
                model = self.model
                if state is not None and self.given is not None:
                    model = calibrate(self.given, young)
                begun = self._begin(model, young, is_over)
                if state is None or not is_over():
                    state, rows, self.model, self.n_begun = begun, young, model, young.shape[0]
            self.young = young if young.shape[0] < inference.n_start and self.given is not None else None
        state = inference.visit(state, rows)
        if not np.isfinite(state.bound):
            raise FloatingPointError("the bound is not finite")
        self._remember(state, progress)

    def _begin(self, model: Model, X: Array, is_over: Callable[[], bool]) -> Any:
        inference = self.inference
        if X.shape[0] > inference.n_start:
            X = X[np.sort(self.rng.choice(X.shape[0], inference.n_start, replace=False))]
        return inference.begin(self.rng, model, X, inference.n_rows, is_over)

    def snapshot(self) -> dict[str, Any]:
        """All that a batch changes: values, but for the list and the generator."""
        return vars(self) | {"trace": list(self.trace), "drawn": self.rng.bit_generator.state}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.rng.bit_generator.state = snapshot["drawn"]
        vars(self).update({name: value for name, value in snapshot.items() if name != "drawn"})

    def _remember(self, state: Any, progress: PassProgress) -> None:
        self.state = state
        self.trace.append((state.bound, state.n_features, state.n_rows))
        which = f"{'batch' if self.in_stream else 'pass'} {len(self.trace)}"
        progress(f"{which}: bound {state.bound:.8g} of {state.n_rows} rows, {state.n_features} features")

    def history(self) -> dict[str, Array]:
        """(1, pass or batch) arrays."""
        bound, n_features, n_rows = (np.array([values]) for values in zip(*self.trace, strict=True))
        flags = {"settled": np.array([self.settled]), "in_stream": np.array([self.in_stream])}
        return {"bound": bound, "n_features": n_features, "n_rows": n_rows} | flags

    def forget_blocks(self) -> None:
        """They will not come again: their sums have no use, and those of all rows are kept."""
        self.state = self.state._replace(sums={}, local={}, n_seen=self.state.n_rows)

    def filters(self) -> None:
        """It has none."""

    def to_file(self, arrays: dict[str, Array]) -> Any:
        """As JSON; the arrays go into `arrays`."""
        return {
            "rng": pack([freeze(self.rng)], "stream/rng", arrays),
            "state": pack([self.state], "stream/state", arrays),
            "trace": self.trace,
            "in_stream": self.in_stream,
            "n_begun": self.n_begun,
            "seen": None if self.seen is None else pack([self.seen], "stream/seen", arrays),
            "given": None if self.young is None else pack([self.given], "stream/given", arrays),
            "young": None if self.young is None else rows_to_file(self.young, arrays),
            "settled": self.settled,
        }

    @classmethod
    def from_file(cls, form: Any, arrays: dict[str, Array], inference: Any, model: Model) -> "BlockRun":
        """A state that does not fit is a ValueError."""
        run = cls(thaw(unpack(form["rng"], arrays, 1)[0]), inference, model)
        run.state = unpack(form["state"], arrays, 1)[0]
        inference.check_sound(run.state, model)
        run.trace = [(float(bound), int(k), int(n)) for bound, k, n in form["trace"]]
        run.in_stream, run.settled = bool(form["in_stream"]), bool(form.get("settled", False))
        run.n_begun = int(form.get("n_begun", 0))
        if form.get("seen") is not None:
            run.seen = unpack(form["seen"], arrays, 1)[0]
            if not isinstance(run.seen, Seen) or any(np.shape(part) != run.seen.low.shape for part in run.seen[:3]):
                raise ValueError("the ranges of its dims are none")
        if form.get("young") is not None:
            run.given = unpack(form["given"], arrays, 1)[0]
            run.young = checked_rows(rows_from_file(form["young"], arrays), run.given, model, run.state.n_seen)
        return run
