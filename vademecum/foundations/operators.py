r"""Linear operators: matrices known only by what they do to blocks of vectors.

An operator $A \in \mathbb{K}^{m \times n}$, $\mathbb{K} = \mathbb{R}$ or $\mathbb{C}$, is a pair of
functions, $X \mapsto A X$ on blocks $X \in \mathbb{K}^{n \times k}$ and its adjoint
$Y \mapsto A^H Y$. From such pairs follow those of

$$(A + B) X = A X + B X, \quad (c A) X = c\,(A X), \quad (A B) X = A (B X), \quad
A^T Y = \overline{A^H \overline{Y}},$$

with $(A + B)^H = A^H + B^H$, $(c A)^H = \bar c A^H$ and $(A B)^H = B^H A^H$. Blocks rather than
single vectors, since one pass over the data then serves $k$ of them.

All of this is exact up to rounding.
"""

from collections.abc import Callable
from functools import partial
from numbers import Number
from typing import Any

import numpy as np
import torch
from jaxtyping import Inexact
from torch import Tensor

from vademecum.arguments import floats, whole
from vademecum.foundations._operator_functions import (
    as_array,
    as_tensor,
    from_arrays,
    of_conjugates,
    of_product,
    of_sum,
    on_arrays,
    scaled,
    times,
)

__all__ = ["LinearOperator", "aslinearoperator"]

Block = Callable[[Tensor], Tensor]


class LinearOperator:
    r"""A matrix known by its products with blocks of vectors.

    Operators are added, subtracted, multiplied (`@`) and scaled by numbers. Other operands may be
    anything that `aslinearoperator` takes, except that the product with a dense tensor is one: the
    image of a vector `(n,)` or of a block `(n, k)`; and that with an array is an array, wherever
    the operator is. A real operator takes complex blocks, too. Gradients flow through the functions
    given. An operator can be pickled if they can; those that are made of matrices can.

    Args:
        shape: The shape $(m, n)$.
        matvec: The function $X \mapsto A X$, from blocks `(n, k)` to blocks `(m, k)`.
        adjoint: The function $Y \mapsto A^H Y$; the same one for a self-adjoint operator. Without
            it there are no `.T` and `.H`.
        dtype: Of the entries, and of the blocks that the functions are given; torch's default dtype
            if there is none.
        device: Where the blocks are.

    Example:
        >>> d = torch.tensor([[1.0], [2.0]])
        >>> A = LinearOperator((2, 2), lambda x: d * x, lambda y: d * y)
        >>> B = 3 * A + torch.ones(2, 2)
        >>> B @ torch.tensor([1.0, 1.0])
        tensor([5., 8.])
        >>> (A @ B).dense()
        tensor([[ 4.,  1.],
                [ 2., 14.]])
        >>> B
        LinearOperator(2 x 2, torch.float32, cpu)
    """

    __array_ufunc__ = None  # NumPy's numbers leave products with an operator to the operator

    def __init__(
        self,
        shape: tuple[int, int],
        matvec: Block,
        adjoint: Block | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        if len(shape) != 2:
            raise ValueError(f"shape must be (m, n), got {tuple(shape)}")
        self._shape = (whole("shape[0]", shape[0], low=1), whole("shape[1]", shape[1], low=1))
        self.dtype = dtype or torch.get_default_dtype()
        if not (self.dtype.is_floating_point or self.dtype.is_complex):
            raise ValueError(f"dtype must be floating point or complex, got {self.dtype}")
        self.device = torch.device(device or torch.get_default_device())
        self._matvec, self._adjoint = matvec, adjoint

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (m, n)."""
        return self._shape

    def __repr__(self) -> str:
        m, n = self.shape
        return f"LinearOperator({m} x {n}, {self.dtype}, {self.device})"

    def __matmul__(self, other: Any) -> Any:
        """The image of a vector or of a block of vectors, or the product with an operator."""
        if isinstance(other, np.ndarray):
            return as_array(self @ as_tensor(other, self.device))
        if isinstance(other, Tensor) and other.layout == torch.strided:
            if other.ndim == 1:
                return self._apply(other[:, None])[:, 0]
            return self._apply(other)
        other = aslinearoperator(other)
        if self.shape[1] != other.shape[0]:
            raise ValueError(f"the shapes must match, got {self.shape} and {other.shape}")
        return self._with(other, (self.shape[0], other.shape[1]), of_product)

    def __rmatmul__(self, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return as_array(as_tensor(other, self.device) @ self)
        if isinstance(other, Tensor) and other.layout == torch.strided:
            return (self.T @ other.mT).mT if other.ndim > 1 else self.T @ other
        return aslinearoperator(other) @ self

    def __add__(self, other: Any) -> "LinearOperator":
        other = aslinearoperator(other)
        if self.shape != other.shape:
            raise ValueError(f"the shapes must be equal, got {self.shape} and {other.shape}")
        return self._with(other, self.shape, of_sum)

    __radd__ = __add__

    def __mul__(self, c: complex) -> "LinearOperator":
        if not isinstance(c, Number) or not np.isfinite(c):
            raise ValueError(f"the factor must be a finite number, got {c!r}")
        dtype = self.dtype.to_complex() if np.iscomplexobj(c) else self.dtype
        product = partial(scaled, self, c)
        return self._like(self.shape, product, partial(product, adjoint=True), dtype)

    __rmul__ = __mul__

    def __truediv__(self, c: complex) -> "LinearOperator":
        return self * (1 / c)

    def __neg__(self) -> "LinearOperator":
        return self * -1

    def __sub__(self, other: Any) -> "LinearOperator":
        return self + -aslinearoperator(other)

    def __rsub__(self, other: Any) -> "LinearOperator":
        return aslinearoperator(other) - self

    @property
    def H(self) -> "LinearOperator":
        """The adjoint, which for a real operator is the transpose."""
        if self._adjoint is None:
            raise ValueError("the operator has no adjoint: give `adjoint` when making it")
        return self._like((self.shape[1], self.shape[0]), self._adjoint, self._matvec)

    @property
    def T(self) -> "LinearOperator":
        """The transpose."""
        if not self.dtype.is_complex:
            return self.H
        adjoint = self.H
        both = partial(of_conjugates, adjoint), partial(of_conjugates, self)
        return self._like(adjoint.shape, *both)

    def dense(self) -> Inexact[Tensor, " m n"]:
        """The matrix, from its product with the identity."""
        return self @ torch.eye(self.shape[1], dtype=self.dtype, device=self.device)

    def scipy(self) -> Any:
        """The same operator as a `scipy.sparse.linalg.LinearOperator`, for arrays."""
        from scipy.sparse.linalg import LinearOperator as Peer

        forward = partial(on_arrays, self)
        backward = partial(forward, adjoint=True)
        dtype = torch.empty(0, dtype=self.dtype).numpy().dtype
        products = {"matvec": forward, "rmatvec": backward, "matmat": forward, "rmatmat": backward}
        return Peer(shape=self.shape, dtype=dtype, **products)  # pyright: ignore[reportCallIssue]

    def _apply(self, x: Tensor) -> Tensor:
        if x.ndim != 2 or x.shape[0] != self.shape[1]:
            raise ValueError(f"x must have {self.shape[1]} rows, got shape {tuple(x.shape)}")
        if x.device.type != self.device.type:
            raise ValueError(f"x must be on {self.device}, got one on {x.device}")
        if self.dtype.is_complex and x.dtype == self.dtype.to_real():
            x = x.to(self.dtype)
        if x.is_complex() and x.dtype.to_real() == self.dtype:
            return torch.complex(self._apply(x.real), self._apply(x.imag))
        if x.dtype != self.dtype:
            raise ValueError(f"x must be of dtype {self.dtype}, got {x.dtype}")
        y = self._matvec(x)
        if y.shape != (self.shape[0], x.shape[1]) or y.dtype != self.dtype:
            raise ValueError(
                f"matvec must return a block of shape {(self.shape[0], x.shape[1])} and dtype"
                f" {self.dtype}, got {tuple(y.shape)} and {y.dtype}"
            )
        return y

    def _with(self, other: "LinearOperator", shape: tuple[int, int], f: Callable) -> Any:
        if self.device.type != other.device.type:
            raise ValueError(f"devices must be equal, got {self.device} and {other.device}")
        if self.dtype.to_real() != other.dtype.to_real():
            raise ValueError(f"precisions must be equal, got {self.dtype} and {other.dtype}")
        product, dtype = partial(f, self, other), torch.promote_types(self.dtype, other.dtype)
        return self._like(shape, product, partial(product, adjoint=True), dtype)

    def _like(
        self, shape: tuple[int, int], matvec: Block, adjoint: Block, dtype: Any = None
    ) -> "LinearOperator":
        dtype = dtype or self.dtype
        return LinearOperator(shape, matvec, adjoint, dtype=dtype, device=self.device)


def aslinearoperator(A: Any) -> LinearOperator:
    """A matrix of any kind as an operator; an operator as it is.

    Args:
        A: An operator, a dense or sparse tensor, an array, or what SciPy takes for an operator:
            its sparse arrays and its own operators. Of those that state no dtype, or an integer
            one, it is that of their product with an array in double precision.

    Raises:
        ValueError: If there are not two axes, or an entry is no floating-point number, or a dense
            one is not finite.

    Example:
        >>> aslinearoperator(np.array([[1.0, 2.0]])).T.dense()
        tensor([[1.], [2.]], dtype=torch.float64)
    """
    if isinstance(A, LinearOperator):
        return A
    if isinstance(A, np.ndarray):
        A = as_tensor(A)
    if not isinstance(A, Tensor):
        return _from_scipy(A)
    if A.ndim != 2:
        raise ValueError(f"A must have 2 axes, got shape {tuple(A.shape)}")
    if A.layout == torch.sparse_coo:
        A = A.coalesce()
    dense = A.layout == torch.strided
    floats("A", A if dense else A.values().clone(), empty=not dense)  # torch fails on the view
    product = partial(times, A)
    return LinearOperator(
        (A.shape[0], A.shape[1]),
        product,
        partial(product, adjoint=True),
        dtype=A.dtype,
        device=A.device,
    )


def _from_scipy(A: Any) -> LinearOperator:
    from scipy.sparse import issparse
    from scipy.sparse.linalg import aslinearoperator as scipy_operator

    if issparse(A):
        dtype, products = A.dtype, (A.__matmul__, A.conjugate(copy=False).T.__matmul__)
    else:
        try:
            A = scipy_operator(A)
        except TypeError:
            kind = type(A).__name__
            raise ValueError(f"A must be a matrix or an operator, got {kind}") from None
        dtype, products = A.dtype, (A.matmat, A.rmatmat)
        if dtype is None or dtype.kind in "iub":  # SciPy finds it by trying integers
            dtype = np.asarray(A.matvec(np.zeros(A.shape[1]))).dtype
    dtype = torch.as_tensor(np.empty(0, dtype)).dtype
    forward, backward = (partial(from_arrays, product, dtype) for product in products)
    return LinearOperator(A.shape, forward, backward, dtype=dtype, device="cpu")
