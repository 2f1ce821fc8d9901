"""Distances between rows that come with the data: `fit(X, times=...)` and its like."""

from typing import Any

from thali.core.model import Model
from thali.core.protocols.prior import Links
from thali.errors import IncompatibleModelError, InvalidParameterError
from thali.priors.proximity.distances import Coordinates, Times


def distances_of(distances: Any, times: Any, coordinates: Any) -> Any:
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
    if not isinstance(model.prior, Links):
        raise IncompatibleModelError(
            f"{type(model.prior).__name__} has no use for distances, times or coordinates: its rows are exchangeable. "
            "Leave them out, or use prior=DistanceDependentIBP()."
        )
    return Model(model.prior.with_distances(distances), model.observation)
