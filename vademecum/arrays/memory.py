"""Work in portions, so that what it takes at a time keeps to a memory limit."""

__all__ = ["portions"]


def portions(n: int, *, each: int, memory: int) -> list[slice]:
    """Slices that cover `n` items in order, as many at a time as the memory has room for.

    Args:
        n: How many items there are.
        each: How many bytes (or whatever `memory` counts) the work on one item takes.
        memory: How many the work on one portion may take; one item is taken in any case.

    Example:
        >>> portions(5, each=4, memory=8)
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = max(1, memory // max(1, each))
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
