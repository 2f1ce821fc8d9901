"""The engine of filters that keep a posterior of each feature and nothing of the rows."""

from typing import Any, NamedTuple, Protocol, TypeAlias

from thali.core.codebook import Codebook
from thali.core.events import EventNote
from thali.core.observation import Observation
from thali.core.protocols.engines import Array

Known: TypeAlias = Any  # opaque but for the fields that `RecursiveRows` names: each engine has its own


class RowLaw(NamedTuple):
    """What a filter asks of the prior of bits, whose features are numbered in order of appearance."""

    mass: float
    concentration: float
    births: str  # "poisson", "independent", "comonotone" or "anchored"


class RowPlan(NamedTuple):
    """How rows are taken in."""

    n_inner: int  # passes over a row's factors, at most
    tol: float  # of the largest change of a probability, where they end
    forgetting: float  # share of its weight that each row leaves what came before; 1 forgets nothing
    fade_below: float  # share of the rows since its birth below which a feature is dropped
    most: int  # features at a time
    n_start: int  # rows with which it begins
    batch: int  # rows that share one posterior of the features; 1: that after a row is the prior of the next
    recipe: str  # "residual": new features begin at what the others leave; "paper": all begin at the prior


class RecursiveRows(Protocol):
    """Rows one after the other: the posterior of the features after a row is the prior of the next one.

    What is `known` is the engine's own NamedTuple, with `n_rows`, `weight` (of the rows, discounted), `counts`,
    `exists`, `number` (one for each feature), `bound`, and `observation`, the concrete model. All methods are pure.
    """

    def check_recursive(self, plan: RowPlan) -> None:
        """An error if something is learned that cannot be in a stream, or the recipe is not known."""

    def nothing_known(self, n_dims: int) -> Known:
        """Before the first row; learned hyperparameters are at the centre of their priors."""

    def known_of(self, X: Array, z_prob: Array, codes: Array, observation: Observation) -> Known:
        """After these rows, if they have features with these probabilities and expected codes: where a filter may
        begin. observation: concrete; of what it says, numbers of each dim stay."""

    def filter_rows(self, known: Known, X: Array, law: RowLaw, plan: RowPlan) -> tuple[Known, list[EventNote]]:
        """(what is known after the rows of X, what happened to features).

        With plan.batch = 1 it does not depend on how rows are given; else X is one batch, or the begin of one."""

    def in_order(self, known: Known, law: RowLaw, plan: RowPlan) -> tuple[Known, list[EventNote]]:
        """What is known with features merged that are the same, and hyperparameters at what the rows say of them."""

    def codebook(self, known: Known) -> Codebook:
        """What the features are, for predictions by `known.observation`."""

    def log_density(self, known: Known, X: Array, chance: Array, how: str, n_samples: int) -> Array:
        """log p of each row of X as the next one, if it has each known feature, and then new ones, with this chance.

        how: "auto", or the name of an estimate of the engine's own, from so many draws."""

    def check_known(self, known: Known, n_dims: int) -> None:
        """A ValueError if it comes from a file and does not fit itself."""
