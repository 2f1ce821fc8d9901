"""dependence_pays: whether hidden cells are predicted better once rows that are near each other share features."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, Unpack

import numpy as np
from scipy.special import ndtri

from thali.data.hidden_cells import hidden_cells
from thali.errors import IncompatibleModelError, InvalidDataError, InvalidParameterError
from thali.estimator import LatentFeatures
from thali.posteriors import prediction
from thali.priors.ibp import IBP
from thali.priors.proximity.decays import ExponentialDecay
from thali.priors.proximity.distance_dependent import DistanceDependentIBP
from thali.priors.proximity.distances import as_distances, near_pairs
from thali.rng import make_generator
from thali.running.choose import sampler
from thali.running.near_rows import Near, distances_of
from thali.running.settings import model_of

Array = np.ndarray

EXCHANGEABLE = "exchangeable"
_REACHES = (1, 4, 16)  # neighbours over which proximity falls to 1 / e
_FALSE_ALARM = 0.05


class Score(NamedTuple):
    """How well one prior predicts the hidden cells."""

    name: str
    prior: Any
    log_density: float  # per hidden cell; those of a row together
    gain: float  # of that over exchangeable rows
    gain_error: float  # standard error: over the rows that have hidden cells, not over runs of the sampler
    rmse: float  # of the imputed cells
    n_features: int  # that persist
    converged: bool


class Dependence(NamedTuple):
    """Exchangeable rows against decays, by the same hidden cells. Printed, it is a table with its meaning below."""

    table: tuple[Score, ...]
    best: str  # the name of the prior with the highest log density
    pays: bool | None  # None if the differences are within what chance allows
    reason: str

    def __str__(self) -> str:
        width = max(len(score.name) for score in self.table)
        head = f"{'prior':<{width}}  log density   gain   error    rmse  features"
        lines = [
            f"{score.name:<{width}}  {score.log_density:11.4f}  {score.gain:+.4f}  {score.gain_error:.4f}  "
            f"{score.rmse:6.4g}  {score.n_features:8d}{'' if score.converged else '  not converged'}"
            for score in self.table
        ]
        return "\n".join([head, *lines, self.reason])


def dependence_pays(
    X: Any,
    *,
    decays: Mapping[str, Any] | None = None,
    hidden: float = 0.1,
    sequential: bool = False,
    observation: Any = None,
    n_warmup: int = 500,
    n_draws: int = 500,
    random_state: Any = 0,
    verbose: bool = False,
    n_chains: int = 4,
    n_jobs: int | None = None,
    **near: Unpack[Near],
) -> Dependence:
    """Fit X with exchangeable rows and with features that near rows share, and compare them by hidden cells.

    Every fit lacks the same cells and has the same length. There is one for each decay and one for exchangeable rows.

    Parameters
    ----------
    X : array of shape (n_rows, n_dims)
        NaN cells are missing; they stay so and are not scored.
    times, coordinates, distances : array
        One of them, as for `LatentFeatures.fit`.
    decays : dict of str to decay, or None
        What to try, by name: "window", WindowDecay(2.0), ExponentialDecay(Gamma(1.0, 5.0)), a function. None tries
        exponential decays over 1, 4 and 16 times the usual distance of a row from the one that is nearest to it.
    hidden : float
        The share of the observed cells that no fit sees.
    sequential : bool
        Whether rows link only to earlier ones, as for `DistanceDependentIBP`.
    observation : Observation or None
        None means LinearGaussian().
    n_warmup, n_draws, random_state, verbose, n_chains, n_jobs
        As for `CollapsedGibbs` and `LatentFeatures`.
    """
    given = distances_of(**near)
    if given is None:
        raise InvalidParameterError(
            "dependence_pays needs to know how far rows are from each other. Give it times, coordinates or distances."
        )
    distances = as_distances(given)
    tried = _tried(decays, distances)
    values = LatentFeatures()._validated(X, reset=True)
    mask = _hidden(values, hidden, random_state)
    seen = np.where(mask, np.nan, values)
    priors: dict[str, Any] = {EXCHANGEABLE: IBP()}
    priors |= {name: DistanceDependentIBP(decay=decay, sequential=sequential) for name, decay in tried.items()}
    observation = model_of(observation, None).observation
    rows: list[Array] = []
    table: list[Score] = []
    for name, prior in priors.items():
        how = sampler(prior, observation, *seen.shape)
        if how is None:
            raise IncompatibleModelError(
                f"No sampler serves {type(prior).__name__} with {type(observation).__name__}, so there is nothing to "
                "compare. Use observation=LinearGaussian()."
            )
        model = LatentFeatures(
            observation, prior, how.inference.replace(n_warmup=n_warmup, n_draws=n_draws), n_chains=n_chains,
            n_jobs=n_jobs, random_state=random_state, verbose=verbose,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "not converged|not judged")  # the table says so
            model.fit(seen, distances=None if name == EXCHANGEABLE else distances)
        if model.interrupted_:
            raise KeyboardInterrupt("interrupted before all fits were done")
        rows.append(prediction.log_heldout(model.posterior_, values, mask, "row", fitted=True))
        gain = rows[-1] - rows[0]
        table.append(
            Score(
                name=name,
                prior=model.posterior_.model.prior,
                log_density=float(rows[-1].sum() / mask.sum()),
                gain=float(gain.sum() / mask.sum()),
                gain_error=float(np.sqrt(len(gain)) * gain.std(ddof=1) / mask.sum()) if len(gain) > 1 else np.inf,
                rmse=float(np.sqrt(np.mean((model.impute(seen) - values)[mask] ** 2))),
                n_features=model.n_components_,
                converged=model.converged_,
            )
        )
    return judged(tuple(table))


def judged(table: tuple[Score, ...]) -> Dependence:
    """What a table says, whose first line are exchangeable rows."""
    others = table[1:]
    limit = float(-ndtri(0.5 * _FALSE_ALARM / len(others)))  # the best of several looks better than it is
    best = max(others, key=lambda score: score.gain)
    size = f"{abs(best.gain):.4f} nats per cell (standard error {best.gain_error:.4f})"
    if best.gain > limit * best.gain_error:
        pays, words = True, f"Dependence pays: {best.name!r} predicts hidden cells better by {size}."
    elif all(score.gain < -limit * score.gain_error for score in others):
        pays = False
        words = f"Dependence does not pay: every decay predicts hidden cells worse, the best of them by {size}."
    else:
        pays, side = None, "better" if best.gain > 0 else "worse"
        words = f"Cannot tell: the best decay, {best.name!r}, is {side} by {size}, which may be chance."
    unsure = sum(not score.converged for score in table)
    if unsure:
        words += (
            f" {unsure} of {len(table)} fits {'has' if unsure == 1 else 'have'} not converged: more draws may help."
        )
    winner = max(table, key=lambda score: score.log_density)
    return Dependence(table, winner.name, pays, words)


def _hidden(X: Array, share: float, random_state: Any) -> Array:
    """Which cells are hidden."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise InvalidParameterError(f"hidden must be a share of the cells, above 0 and below 1. Got {share!r}.")
    mask = hidden_cells(make_generator(random_state), X, float(share))
    if mask.any(axis=1).sum() < 2:
        raise InvalidDataError(
            f"Cells of at least two rows must be hidden. Of {X.shape[0]} x {X.shape[1]} cells hidden={share} hides "
            f"{int(mask.sum())}: hide more, or give more data."
        )
    return mask


def _tried(decays: Mapping[str, Any] | None, distances: Any) -> dict[str, Any]:
    """Decays by name."""
    if decays is None:
        step = _step(distances)
        return {f"exponential over {n * step:.3g}": ExponentialDecay(1.0 / (n * step)) for n in _REACHES}
    if not isinstance(decays, Mapping) or not decays or EXCHANGEABLE in decays:
        raise InvalidParameterError(
            f"decays must map names to decays, such as {{'window': WindowDecay(2.0)}}; {EXCHANGEABLE!r} is taken. "
            f"Got {decays!r}."
        )
    return {str(name): decay for name, decay in decays.items()}


def _step(distances: Any) -> float:
    """The usual distance of a row from the one that is nearest to it."""
    nearest: dict[int, float] = {}
    for rows, _, d in near_pairs(distances, np.inf):
        apart = (d > 0) & np.isfinite(d)
        some, values = rows[apart], d[apart]
        order = np.lexsort((values, some))
        first, at = np.unique(some[order], return_index=True)
        for row, value in zip(first.tolist(), values[order][at].tolist(), strict=True):
            nearest[row] = min(value, nearest.get(row, np.inf))
    if not nearest:
        raise InvalidParameterError(
            "No two rows have a distance that is finite and not 0, so no decay suggests itself. Give decays."
        )
    return float(np.median(list(nearest.values())))
