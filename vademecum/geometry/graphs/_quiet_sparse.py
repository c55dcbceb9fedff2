"""Sparse matrices made without torch's two words on them.

Torch says once that compressed rows are in beta; torch 2.11 and 2.12 also say that invariants are
not checked, even to those who passed `check_invariants`.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet_sparse"]


@contextmanager
def quiet_sparse() -> Iterator[None]:
    """Leave out torch's warnings on sparse tensors, and no others."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse (CSR|invariant)", UserWarning)
        yield
