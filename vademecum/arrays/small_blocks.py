"""Small products on the CPU, by NumPy and in one thread.

On a few dozen rows a call of NumPy costs about half of one of torch, and more threads than one
cost more than they save.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch
from threadpoolctl import ThreadpoolController  # comes with scikit-learn
from torch import Tensor

__all__ = ["one_blas_thread", "one_torch_thread", "views"]


def views(*tensors: Tensor) -> tuple[Any, ...]:
    """What to compute small blocks with: on a CPU NumPy's views of the tensors, else the tensors.

    Views share the tensors' memory.

    Example:
        >>> x = torch.zeros(2)
        >>> views(x)[0][:] = 1
        >>> x
        tensor([1., 1.])
    """
    return tuple(t.numpy() if t.device.type == "cpu" else t for t in tensors)


def one_blas_thread() -> AbstractContextManager[Any]:
    """A context in which NumPy's products take one thread, as small ones should.

    Its threads and torch's know nothing of each other: on a machine with few free cores they would
    wait for each other's turns, which can take ten times as long as the work.
    """
    return _blas().limit(limits=1)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """A context in which torch takes one thread, for many short operations in a row.

    Example:
        >>> with one_torch_thread():
        ...     torch.get_num_threads()
        1
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
