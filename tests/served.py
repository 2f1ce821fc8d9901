"""Whether a model has an engine that does all that a protocol asks for."""


def serves(model, kind):
    """Has an engine of this kind, with each of the protocol's members."""
    asked = {name for name in {**vars(kind), **kind.__annotations__} if not name.startswith("_")}
    return bool(asked) and model.has(kind) and all(hasattr(model.engine(kind), name) for name in asked)
