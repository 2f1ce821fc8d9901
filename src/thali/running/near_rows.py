"""Distances between rows that come with the data: `fit(X, times=...)`, `transform(X, times=...)` and their like."""

from typing import Any, TypedDict, Unpack

from thali.core.model import Model
from thali.core.protocols.prior import NearRows
from thali.errors import IncompatibleModelError, InvalidDataError, InvalidParameterError
from thali.posteriors.base import Posterior
from thali.posteriors.draws import Draws
from thali.posteriors.near_draws import NearDraws
from thali.priors.proximity.distances import Coordinates, Times


class Near(TypedDict, total=False):
    """How far rows are from each other, in one of three ways."""

    distances: Any
    times: Any
    coordinates: Any


def distances_of(distances: Any = None, times: Any = None, coordinates: Any = None) -> Any:
    """The distances that were given, in one of three ways; None if there are none."""
    given = [name for name, it in (("distances", distances), ("times", times), ("coordinates", coordinates))
             if it is not None]  # fmt: skip
    if len(given) > 1:
        raise InvalidParameterError(
            f"The rows have one kind of distance: give one of distances, times and coordinates. Got {', '.join(given)}."
        )
    if times is not None:
        return Times(times)
    if coordinates is not None:
        return coordinates if isinstance(coordinates, Coordinates) else Coordinates(coordinates)
    return distances


def model_of_near_rows(model: Model, distances: Any) -> Model:
    """The model whose prior has these distances."""
    if not isinstance(model.prior, NearRows):
        raise IncompatibleModelError(
            f"{type(model.prior).__name__} has no use for distances, times or coordinates: its rows are exchangeable. "
            "Leave them out, or use prior=DistanceDependentIBP() or HierarchicalBetaProcess()."
        )
    return Model(model.prior.with_distances(distances), model.observation)


def seen_from(posterior: Posterior, n_new: int, **near: Unpack[Near]) -> Posterior:
    """The posterior as new rows at these distances from the fitted ones see it; as it is if none are given."""
    given = distances_of(**near)
    if given is None:
        return posterior
    prior = posterior.model.prior
    if not isinstance(prior, NearRows) or not isinstance(posterior, Draws):
        raise IncompatibleModelError(
            f"{type(prior).__name__} has no use for distances, times or coordinates: its rows are exchangeable. "
            "Leave them out."
        )
    apart = prior.distances_to(given)
    if len(apart) != n_new:
        raise InvalidDataError(
            f"There must be a distance, time or point for each of the {n_new} rows. Got {len(apart)}."
        )
    return NearDraws(posterior, apart)
