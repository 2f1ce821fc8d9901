"""The names under which types stand in files: given once, so that a class can be renamed or moved and no file breaks.

Nothing is ever imported because a file names it: what comes out of a file is a type that has been registered before.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from thali.errors import InvalidParameterError

Kind = TypeVar("Kind", bound=type[Any])

_KINDS: dict[str, type[Any]] = {}
_NAMES: dict[type[Any], str] = {}


def stored(name: str) -> Callable[[Kind], Kind]:
    """Give one of thali's own types (a spec or a NamedTuple) its name in files."""

    def registered(kind: Kind) -> Kind:
        other = _KINDS.get(name)
        if other is not None and (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):
            raise InvalidParameterError(
                f"The name {name!r} is taken by {other.__module__}.{other.__qualname__}. Choose another one."
            )
        _KINDS[name], _NAMES[kind] = kind, name
        return kind

    return registered


def register(name: str) -> Callable[[Kind], Kind]:
    """Give a spec or a NamedTuple from outside of thali a name in files, so that fits with it can be saved and loaded.

    Use it as a decorator: `@thali.register("mypackage.NoisyOr")`. The name has a dot, so that it can never be one of
    thali's own; who loads the file has to import the module with the class first.
    """
    if not isinstance(name, str) or "." not in name.strip("."):
        raise InvalidParameterError(f'name must be text such as "mypackage.MyModel", with a dot in it. Got {name!r}.')
    return stored(name)


def kind_of(name: object) -> type[Any] | None:
    """The type of this name; None if there is none."""
    return _KINDS.get(name) if isinstance(name, str) else None


def name_of(kind: type[Any]) -> str:
    """The name of a type in files; a TypeError if it has none."""
    name = _NAMES.get(kind)
    if name is None:
        raise TypeError(
            f"{kind.__name__} has no name in files. Give it one: "
            f'@thali.register("{kind.__module__.partition(".")[0].strip("_")}.{kind.__name__}") above its class.'
        )
    return name
