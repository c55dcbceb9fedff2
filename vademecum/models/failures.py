"""What an error of torch means: memory that ran out is not an operation that cannot be done.

torch raises `RuntimeError` for nearly everything. Whoever tries a fast way and knows a slower one
must not take the slow one because memory ran out, and says so if it takes it.
"""

import warnings

import torch

__all__ = ["FAILURES", "SlowPathWarning", "cannot_be_mapped", "out_of_memory", "warn_of_slow_path"]

FAILURES = (RuntimeError, IndexError, AssertionError, ValueError)
"""What models raise that do not take what they are given."""


class SlowPathWarning(UserWarning):
    """A slower way was taken than the one that is there for most models."""


def out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, on any device.

    Example:
        >>> out_of_memory(torch.OutOfMemoryError("CUDA out of memory")), out_of_memory(ValueError())
        (True, False)
    """
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "alloc_cpu" in str(error)


def cannot_be_mapped(error: RuntimeError) -> bool:
    """Whether `torch.func.vmap` met an operation, or a choice by values, that it cannot map.

    Example:
        >>> try:
        ...     _ = torch.func.vmap(lambda x: float(x))(torch.ones(2))
        ... except RuntimeError as error:
        ...     print(cannot_be_mapped(error))
        True
    """
    text = str(error)
    words = ("vmap", "atching rule", "functorch", "torch.func", "that doesn't have storage")
    return not out_of_memory(error) and any(word in text for word in words)


def warn_of_slow_path(what: str, reason: RuntimeError | str) -> None:
    """Say what is done in a slower way, and for what reason."""
    reason = str(reason).strip().partition("\n")[0]
    warnings.warn(f"{what}, which is slower: {reason}", SlowPathWarning, stacklevel=3)
