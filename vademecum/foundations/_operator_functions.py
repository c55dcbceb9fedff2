r"""What operators do to blocks, as functions that can be pickled, unlike those made on the spot.

With `adjoint` they are $Y \mapsto A^H Y$. Operators made of a matrix also tell which one it is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "as_array", "as_tensor", "from_arrays", "matrix_of", "of_conjugates", "of_product", "of_sum",
    "on_arrays", "scaled", "times",
]  # fmt: skip


def times(A: Tensor, x: Tensor, *, adjoint: bool = False) -> Tensor:
    """The product with a tensor, dense or sparse."""
    return A.mH @ x if adjoint else A @ x


def of_sum(a: Any, b: Any, x: Tensor, *, adjoint: bool = False) -> Tensor:
    """The product with the sum of two operators."""
    return a.H @ x + b.H @ x if adjoint else a @ x + b @ x


def of_product(a: Any, b: Any, x: Tensor, *, adjoint: bool = False) -> Tensor:
    """The product with the product of two operators."""
    return b.H @ (a.H @ x) if adjoint else a @ (b @ x)


def scaled(a: Any, c: complex, x: Tensor, *, adjoint: bool = False) -> Tensor:
    """The product with an operator times a number."""
    return (a.H @ x) * c.conjugate() if adjoint else (a @ x) * c


def of_conjugates(a: Any, x: Tensor) -> Tensor:
    """The product with an operator whose entries are conjugates."""
    return (a @ x.conj()).conj()


def on_arrays(a: Any, x: np.ndarray, *, adjoint: bool = False) -> np.ndarray:
    """The product of an operator with an array, in the precision and on the device of the former.

    Example:
        >>> from vademecum.foundations import aslinearoperator
        >>> on_arrays(aslinearoperator(2 * torch.eye(2)), np.array([1, 2]))
        array([2., 4.], dtype=float32)
    """
    return as_array((a.H if adjoint else a) @ as_tensor(x, a.device).to(a.dtype))


def as_array(x: Tensor) -> np.ndarray:
    """The numbers of a tensor, wherever they are."""
    return x.numpy(force=True)


def as_tensor(x: np.ndarray, device: torch.device | None = None) -> Tensor:
    """The numbers of an array, copied if torch does not take them as they lie.

    Example:
        >>> as_tensor(np.arange(3)[::-1])
        tensor([2, 1, 0])
    """
    fit = x.flags.writeable and min(x.strides, default=0) >= 0
    return torch.as_tensor(x if fit else x.copy(), device=device)


def from_arrays(product: Callable[[np.ndarray], Any], dtype: torch.dtype, x: Tensor) -> Tensor:
    """A product of arrays, on tensors."""
    return as_tensor(np.asarray(product(as_array(x)))).to(dtype)


def matrix_of(a: Any) -> Any:
    """The matrix that an operator was made of, a tensor or one of SciPy's; None if there is none.

    Example:
        >>> from vademecum.foundations import LinearOperator, aslinearoperator
        >>> matrix_of(aslinearoperator(torch.eye(1))), matrix_of(LinearOperator((1, 1), abs))
        (tensor([[1.]]), None)
    """
    from scipy.sparse import issparse

    f = a._matvec
    if not isinstance(f, partial) or f.keywords or f.func not in (times, from_arrays):
        return None
    A = f.args[0] if f.func is times else f.args[0].__self__
    return A if isinstance(A, Tensor) or issparse(A) else None
