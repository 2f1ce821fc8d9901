"""The loop of an inference by blocks of rows: passes over data that can be read again, or batches as they come."""

import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from thali.blocks import RowBlocks
from thali.model import Model
from thali.packing import pack, unpack
from thali.rng import freeze, thaw
from thali.stopping import Watch

Array = np.ndarray

_TRIALS = 3  # other sets of features that are tried once a fit has settled
_TRIAL_PASSES = 2  # after which one must be better


class BlockRun:
    """A fit by blocks of rows, which can go on with more of them. `state` is the inference's; None before any row."""

    def __init__(self, rng: np.random.Generator, inference: Any, model: Model) -> None:
        self.rng, self.inference, self.model = rng, inference, model
        self.state: Any = None
        self.trace: list[tuple[float, int, int]] = []  # bound, features, rows that it is of: after each pass or batch
        self.settled = self.in_stream = False

    def fit(
        self, blocks: RowBlocks, *, max_time: float | None = None, verbose: bool = False
    ) -> tuple[bool, str | None]:
        """(whether every row was seen, why it ended early): pass after pass, at least one block of the first."""
        with Watch(max_time) as watch:
            inference, n_all = self.inference, blocks.n_rows
            X = blocks.some_rows(self.rng, inference.n_start)
            state = inference.begin(self.rng, self.model, X, n_all, watch.is_over)
            complete = False
            n_trials = _TRIALS if inference.moves and inference.memoised else 0
            for _ in range(inference.n_epochs):
                before = state.bound if complete else -np.inf
                state, done = self._pass(blocks, state, watch.is_over)
                complete |= done
                self._remember(state, verbose)
                if not done:
                    return complete, watch.reason
                if inference.memoised and state.bound - before <= inference.tol * abs(state.bound):
                    state, better = self._other(blocks, state, watch.is_over) if n_trials else (state, False)
                    n_trials -= 1
                    self.settled = not better
                    if self.settled:
                        break
            return True, None

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

    def absorb(self, batches: Iterable[Array], *, max_time: float | None = None, verbose: bool = False) -> str | None:
        """Take in batches, each once; why it ended before the last one. The features begin with the first batch."""
        if not self.in_stream:  # what came before counts as one batch
            self.in_stream, self.trace = True, self.trace[-1:]
        with Watch(max_time) as watch:
            for X in batches:
                if self.state is None:
                    inference, rows = self.inference, X
                    if X.shape[0] > inference.n_start:
                        rows = X[np.sort(self.rng.choice(X.shape[0], inference.n_start, replace=False))]
                    self.state = inference.begin(self.rng, self.model, rows, inference.n_rows, watch.is_over)
                self._remember(self.inference.visit(self.state, X), verbose)
                if watch.is_over():
                    break
            else:
                return None
            return watch.reason

    def _remember(self, state: Any, verbose: bool) -> None:
        self.state = state
        self.trace.append((state.bound, state.n_features, state.n_rows))
        if verbose:
            which = f"{'batch' if self.in_stream else 'pass'} {len(self.trace)}"
            words = f"{which}: bound {state.bound:.8g} of {state.n_rows} rows, {state.n_features} features"
            print(words, file=sys.stderr, flush=True)

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
        return run
