"""The base of observation models: what a likelihood is, what is declared of it, and the engines that use it."""

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import numpy as np

from thali.core.spec import Spec
from thali.errors import IncompatibleModelError

Array = np.ndarray
Generator = np.random.Generator
CodeKind = Literal["bits", "real", "positive"]
Owners = Literal["rows", "dims"]

E = TypeVar("E")


class Engine:
    """How one family of inference computes with a likelihood. It is made from the model, and holds nothing else."""

    model: Any  # subclasses say of which kind

    def __init__(self, model: Any) -> None:
        self.model = model


class Observation(Spec):
    """A distribution of data X (n_rows, n_dims) given which row has which feature (Z) and what the features are.

    `codes` (n_rows, n_features) are what multiplies the features: the bits of Z, or their weights where they are on.
    """

    words: ClassVar[str]  # what the data are taken for, in a line on the command line
    code_kind: ClassVar[CodeKind]  # what codes are; weights may be real or positive
    takes_sparse: ClassVar[bool] = False  # whether X may be a scipy.sparse matrix
    engines: ClassVar[Mapping[type, type[Engine]]] = {}  # by the capability that an inference asks for

    # ---- engines

    @cached_property
    def _made(self) -> dict[Any, Any]:
        return {}

    def has(self, capability: type) -> bool:
        """Whether there is an engine of this kind."""
        return capability in self.engines

    def engine(self, capability: type[E]) -> E:
        """The engine of this kind, or an error that says that there is none."""
        found = self._made.get(capability)
        if found is None:
            if not self.has(capability):
                raise IncompatibleModelError(f"{type(self).__name__} has no engine of the kind {capability.__name__}.")
            found = self._made[capability] = self._engine_kind(capability)(self)
        return cast(E, found)

    def _engine_kind(self, capability: type) -> type[Engine]:
        """Models with engines that depend on their settings choose here."""
        return self.engines[capability]

    # ---- declared facts

    @property
    def has_bits(self) -> bool:
        """Whether a row can lack a feature; if not, there is nothing to sample."""
        return True

    @property
    def owners(self) -> Owners:
        """What has features or lacks them: the rows of X, or its dims."""
        return "rows"

    def n_owners(self, shape: tuple[int, int]) -> int:
        """How many rows Z has, for X of this shape."""
        return shape[0] if self.owners == "rows" else shape[1]

    def by_owner(self, X: Array) -> Array:
        """X with a row for each row of Z. It is its own inverse."""
        return X if self.owners == "rows" else X.T

    @property
    def floor_share(self) -> float | None:
        """The mean share of the variance below which learned noise does not go, on which the number of features hangs;
        None if there is no such thing."""
        return None

    # ---- the generative model

    @abstractmethod
    def check_data(self, X: Any) -> Any:
        """X as this model needs it, NaN for missing cells, or an error that says what is wrong."""

    @abstractmethod
    def adapt(self, X: Any) -> Self:
        """This model with what depends on the scale of the data (relative priors) made absolute."""

    @abstractmethod
    def draw(self, rng: Generator, n_dims: int) -> Self:
        """This model with a number in place of each distribution."""

    @abstractmethod
    def draw_features(self, rng: Generator, n_features: int, n_dims: int) -> Array:
        """Features from their prior, (n_features, n_dims)."""

    @abstractmethod
    def draw_codes(self, rng: Generator, Z: Array) -> Array:
        """Codes of rows with these bits, from their prior."""

    @abstractmethod
    def simulate(
        self,
        rng: Generator,
        Z: Array,
        *,
        n_dims: int | None = None,
        features: Array | None = None,
        codes: Array | None = None,
    ) -> Array:
        """A draw of X; features and codes are drawn, too, where they are not given."""

    @abstractmethod
    def reconstruct(self, codes: Array, features: Array) -> Array:
        """Expected rows of X given codes (n_rows, n_features), in the data's units."""

    @abstractmethod
    def log_prob(self, X: Any, codes: Array, features: Array) -> float:
        """Log density of the observed cells of X given codes and features."""

    def log_by_dim(self, visible: Array, X: Array) -> tuple[str, Array]:
        """(what is known of each dim alone from its visible cells, NaN elsewhere; the log density of each cell of X by
        it): what a fit should beat."""
        mean, var = np.nanmean(visible, axis=0), np.nanvar(visible, axis=0)
        var = np.maximum(var, 1e-12 * max(float(var.max()), 1e-300))  # a dim that is constant where it is visible
        return "mean_and_variance", -0.5 * (np.log(2 * np.pi * var) + (X - mean) ** 2 / var)

    @abstractmethod
    def log_hyper(self, current: Self) -> float:
        """Log density of the learned hyperparameters of `current`, up to a constant."""
