"""The errors a user can meet. Each message says what was expected, what came, and what to do."""


class ThaliError(Exception):
    """Base of every error that thali raises on purpose."""


class InvalidParameterError(ThaliError, ValueError):
    """A parameter has a value outside its domain."""


class InvalidDataError(ThaliError, ValueError):
    """The data cannot be used as given."""


class InvalidDataTypeError(InvalidDataError, TypeError):
    """The same for data that are not numbers at all; scikit-learn expects a TypeError there."""


class IncompatibleModelError(ThaliError, TypeError):
    """The prior, the observation model and the inference do not fit together."""


class OutOfMemoryError(ThaliError, MemoryError):
    """What was asked for needs more memory than there is."""


class InvalidFileError(ThaliError, ValueError):
    """A file cannot be read: damaged, not ours, or from a newer version."""


def words(error: BaseException) -> str:
    """What an error says; its name if it says nothing."""
    return str(error).strip() or type(error).__name__
