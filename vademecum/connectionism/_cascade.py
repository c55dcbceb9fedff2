r"""Threshold units that answer one after the other, computed in blocks.

Both the perceptron rule (example after example) and asynchronous Hopfield dynamics (unit after
unit) are of the form

$$c_i = \rho_i\Big(d_i + \sum_{j < i} L_{ij} c_j\Big), \qquad i = 1, \dots, n,$$

where the response $\rho_i$ is piecewise constant: a correction or none, a flip or none. Because $L$
is strictly lower triangular the solution is unique, and the iteration
$c \leftarrow \rho(d + L c)$ has the first $k$ entries right after $k$ rounds, whatever the start:
it ends after at most $n$ rounds, and after a handful when few entries respond. The result is that
of the sequential rule, while the work is matrix products.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

__all__ = ["cascade"]

Array = TypeVar("Array", np.ndarray, Tensor)


def cascade(respond: Callable[[Array], Array], drive: Array, lower: Array) -> Array:
    r"""Solve $c = \rho(d + L c)$ for a strictly lower triangular $L$.

    NumPy arrays and tensors will do, on any device (see `vademecum.arrays.views`).

    Args:
        respond: The response $\rho$, which acts on each entry by itself.
        drive: The $d$, of shape (n, batch): one column for each of a batch of independent problems.
        lower: The $L$, of shape (n, n), zero on and above the diagonal.

    Example:
        >>> fires = lambda a: (a >= 1) * 1.0
        >>> cascade(fires, np.array([[1.0], [0.0], [0.0]]), np.tri(3, k=-1)).T
        array([[1., 1., 1.]])
    """
    c = respond(drive)
    for _ in range(len(drive)):
        answered = lower @ c
        answered += drive
        before, c = c, respond(answered)
        if _same(before, c):
            break
    return c


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    return a.tobytes() == b.tobytes()  # for a few dozen rows several times faster than comparing
