"""Parameters inside parameters, as in scikit-learn's `set_params(prior__mass=2.0)`, where the inner ones are frozen."""

from typing import TYPE_CHECKING, Any, Self

from thali.core.spec import Spec
from thali.errors import InvalidParameterError

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator as _Estimator
else:
    _Estimator = object


class NestedParams(_Estimator):
    """A part of `LatentFeatures`."""

    if TYPE_CHECKING:  # what the estimator has
        _model: Any

    def set_params(self, **params: Any) -> Self:
        """As in scikit-learn, nested by `prior__mass`. Specs are frozen: a changed copy takes their place."""
        own = {name: value for name, value in params.items() if "__" not in name}
        super().set_params(**own)
        model = None
        for name, value in params.items():
            outer, nested, inner = name.partition("__")
            if not nested:
                continue
            if outer not in self.get_params(deep=False):
                super().set_params(**{name: value})  # raises scikit-learn's error
            part = getattr(self, outer)
            if part is None and outer in ("prior", "observation"):
                model = model or self._model()
                part = getattr(model, outer)
            if not isinstance(part, Spec):
                raise InvalidParameterError(f"{outer} is {part!r}, which has no parameter {inner!r}.")
            setattr(self, outer, part.replace(**{inner: value}))
        return self
