"""Warnings at the line that asked for the work; iterations that did not converge give one."""

import inspect
import warnings

from sklearn.exceptions import ConvergenceWarning

__all__ = ["warn_outside", "warn_unconverged"]

_OURS = ("vademecum.", "torch.", "jaxtyping.")  # with what wraps our functions


def warn_unconverged(message: str) -> None:
    """Give a `ConvergenceWarning` at the line outside of this library that asked for the work.

    Args:
        message: Which limit ended the iteration, and what was left to do.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     warn_unconverged("max_iter=3 reached with 2 mistakes")
        >>> caught[0].category.__name__
        'ConvergenceWarning'
    """
    warn_outside(message, ConvergenceWarning)


def warn_outside(message: str, category: type[Warning]) -> None:
    """Give a warning at the line outside of this library that asked for the work.

    Args:
        message: What happened, and what to do about it.
        category: Of what kind it is.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     warn_outside("the matrix is nearly singular", RuntimeWarning)
        >>> caught[0].message
        RuntimeWarning('the matrix is nearly singular')
    """
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level + 1)
