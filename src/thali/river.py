"""A fit of rows that come one by one as dictionaries, or a few at a time as data frames: the way of river.

Where river is installed the class is one of its transformers, for pipelines with `|` and all else; without it the same
methods are there.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from thali.core.caller import warn_caller
from thali.data.plain_numbers import plain_numbers
from thali.data.waiting_rows import WaitingRows
from thali.errors import IncompatibleModelError, InvalidDataError, InvalidParameterError
from thali.estimator import LatentFeatures
from thali.inference import StochasticMeanField
from thali.running.fitting import check_more
from thali.running.settings import model_of

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["OnlineLatentFeatures"]

_Transformer: Any
try:
    from river.base import MiniBatchTransformer as _Transformer
except ImportError:
    _Transformer = object

Array = np.ndarray
Row = Mapping[Hashable, Any]


class OnlineLatentFeatures(_Transformer):
    """Codes of rows by features that are found while the rows come.

    A name that a row lacks is a missing cell. The first rows wait until there are `batch` of them: their names become
    the dims, and the scale of the data is theirs. Until then there are no codes. Afterwards names that are not among
    the dims are left out. Learning row by row and many rows at once are the same.

    Parameters
    ----------
    model : LatentFeatures or None
        What is fitted: a copy of it, so that it stays as it is. Its inference must have `partial_fit`. None means
        LatentFeatures(inference=StochasticMeanField()).
    batch : int
        Rows that the fit begins with. An inference whose result depends on its batches (`StochasticMeanField`) takes in
        that many at a time later, too; others take in each row when it comes.
    dims : tuple of names or None
        The names of the dims; None: those of the first rows.

    Attributes
    ----------
    fitted : LatentFeatures or None
        The fit so far, to be saved or looked at; None while the first rows wait.

    Examples
    --------
    >>> from thali.river import OnlineLatentFeatures
    >>> codes = OnlineLatentFeatures(batch=50)
    >>> codes.learn_one({"a": 1.2, "b": 0.1})
    >>> codes.transform_one({"a": 1.2})
    {}
    """

    def __init__(
        self, model: LatentFeatures | None = None, batch: int = 100, dims: tuple[Hashable, ...] | None = None
    ) -> None:
        self.model = model
        self.batch = batch
        self.dims = dims
        self.fitted: LatentFeatures | None = None
        self._first: list[dict[Hashable, Any]] = []  # as long as they are fewer than a batch
        self._names: list[Hashable] = []
        self._known: frozenset[Hashable] = frozenset()
        self._waiting: WaitingRows | None = None
        self._has_warned = False

    # ---- rows

    def learn_one(self, x: Row) -> None:
        """Take a row in. A row with an error leaves all as it was."""
        self._learn([x])

    def learn_many(self, X: "DataFrame") -> None:
        """Take some rows in, one after the other."""
        self._learn(X.to_dict("records"))

    def transform_one(self, x: Row) -> dict[str, float]:
        """The codes of a row by name: feature_0, feature_1, ..."""
        if self.fitted is None:
            return {}
        (codes,) = self.fitted.transform(self._named(self._matrix([x]))).tolist()
        return {f"feature_{k}": code for k, code in enumerate(codes)}

    def transform_many(self, X: "DataFrame") -> "DataFrame":
        """The codes of rows, with the index of X."""
        from pandas import DataFrame

        if self.fitted is None or not len(X):
            return DataFrame(index=X.index)
        codes = self.fitted.transform(self._named(self._matrix(X.to_dict("records"))))
        return DataFrame(codes, index=X.index, columns=[f"feature_{k}" for k in range(codes.shape[1])])

    # ---- how

    def _learn(self, rows: list[Row]) -> None:
        if self.fitted is None:
            n_lacking = self._size - len(self._first)
            first, rows = rows[:n_lacking], rows[n_lacking:]
            seen = [dict(row) for row in first if _has_a_cell(row)]
            for row in seen:
                self._checked(_as_matrix([row], list(row)))
            self._first += seen
            if len(self._first) < self._size:
                return self._learn(rows) if rows else None
            self._begin()
        rows = [row for row in rows if _has_a_cell(row, self._known)]
        if rows:
            self._tell_of_others(rows)
            X = self._checked(self._matrix(rows))
            self._put(X)
        return None

    @property
    def _size(self) -> int:
        if isinstance(self.batch, bool) or not isinstance(self.batch, int | np.integer) or self.batch < 1:
            raise InvalidParameterError(f"batch must be an integer, 1 or more. Got {self.batch!r}.")
        return int(self.batch)

    def _begin(self) -> None:
        """With the first rows. If that fails they wait for the next one."""
        given = LatentFeatures(inference=StochasticMeanField()) if self.model is None else self.model
        model = LatentFeatures(**given.get_params(deep=False))
        if not hasattr(model, "partial_fit"):
            raise IncompatibleModelError(
                f"model must have an inference that takes rows as they come. Got {model.inference!r}. Use "
                "StochasticMeanField() or ParticleFilter()."
            )
        names = list(self.dims) if self.dims is not None else sorted({n for row in self._first for n in row}, key=str)
        X = _as_matrix(self._first, names)
        if self.dims is None:  # a name without a number is no dim
            there = ~np.isnan(X).all(axis=0)
            names, X = [name for name, is_there in zip(names, there, strict=True) if is_there], X[:, there]
        self._names = names
        model.partial_fit(self._named(X))
        self.fitted, self._known, self._first = model, frozenset(names), []
        self._waiting = WaitingRows(self._size, len(X), freely=model.inference.shape == "rows")

    def _put(self, X: Array) -> None:
        assert self.fitted is not None
        assert self._waiting is not None
        self._waiting.put(X, np.zeros(len(X)))
        batches = self._waiting.rest() if self._waiting.any_will_do else self._waiting.full()
        for batch, _ in batches:
            self.fitted.partial_fit(self._named(batch))

    def _checked(self, X: Array) -> Array:
        """Rows that the observation model takes, each on its own, or an error before any of them is taken in."""
        given = self.model if self.model is not None else LatentFeatures()
        observation = model_of(given.observation, given.prior).observation
        check_more(observation, X)
        return X

    def _matrix(self, rows: list[Row]) -> Array:
        return _as_matrix(rows, self._names)

    def _named(self, X: Array) -> Any:
        """With names of dims, which scikit-learn wants to be texts."""
        if not all(isinstance(name, str) for name in self._names):
            return X
        from pandas import DataFrame

        return DataFrame(X, columns=self._names)

    def _tell_of_others(self, rows: Iterable[Row]) -> None:
        """Once."""
        if self._has_warned:
            return
        for row in rows:
            for name in row:
                if name not in self._known:
                    self._has_warned = True
                    warn_caller(
                        f"{name!r:.60} is not among the dims, and such names are left out: the dims are those of the "
                        f"first {self.batch} rows. Name all of them by `dims` if some come later."
                    )
                    return


def _as_matrix(rows: Sequence[Row], names: list[Hashable]) -> Array:
    """NaN where a row lacks a name."""
    cells = np.empty((len(rows), len(names)), dtype=object)
    for n, row in enumerate(rows):
        cells[n] = [row.get(name, np.nan) for name in names]
    try:
        return np.ascontiguousarray(plain_numbers(cells), dtype=np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidDataError):
            raise
        raise InvalidDataError(f"A row must hold real numbers. Got: {error}. Leave other things out.") from error


def _has_a_cell(row: Row, known: frozenset[Hashable] | None = None) -> bool:
    """Whether anything is known of a row: it is left out otherwise, since nothing can be learned from it."""
    values = (value for name, value in row.items() if known is None or name in known)
    return any(value is not None and value == value for value in values)
