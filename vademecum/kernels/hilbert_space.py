r"""Inner products and norms in the Hilbert space of functions that a kernel reproduces.

For $f = \sum_i \alpha_i k(x_i, \cdot)$ and $g = \sum_j \beta_j k(z_j, \cdot)$

$$\langle f, g \rangle = \sum_{ij} \alpha_i\, k(x_i, z_j)\, \beta_j, \qquad
\|f\| = \sqrt{\alpha^\top K \alpha}, \qquad f(x) = \langle f, k(x, \cdot) \rangle.$$

If $k(x, z) = \varphi(x)^\top \varphi(z)$, the norm is that of the least parameters $\theta$ with
$f(x) = \theta^\top \varphi(x)$. The matrix is formed in strips of rows. Exact to
rounding. Checked by the claims `kernels.rkhs` and `kernels.rkhs_norm`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, whole
from vademecum.arrays import portions
from vademecum.kernels._kernel import pair
from vademecum.kernels.matrices import KernelFunction, gram

__all__ = ["rkhs_inner", "rkhs_norm"]

_STRIP = 2**26  # bytes of the matrix at a time


def rkhs_inner(
    kernel: KernelFunction,
    x: Tensor,
    alpha: Float[Tensor, " n *k"],
    z: Tensor,
    beta: Float[Tensor, " m *beta"],
    *,
    memory: int | None = None,
) -> Float[Tensor, " *k"]:
    r"""The inner product of $\sum_i \alpha_i k(x_i, \cdot)$ and $\sum_j \beta_j k(z_j, \cdot)$.

    Args:
        kernel: A kernel, or a function of two sets of inputs that gives their matrix.
        x: The inputs at which the first function's terms sit.
        alpha: Their coefficients; a column for each of k functions.
        z: The inputs of the second function.
        beta: Its coefficients.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Example:
        >>> from vademecum.kernels import LinearKernel
        >>> x, z = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0]])
        >>> rkhs_inner(LinearKernel(), x, torch.tensor([1.0, 1.0]), z, torch.tensor([2.0]))
        tensor(18.)
    """
    x, other = pair(x, z, name="x", other="z")
    assert other is not None
    alpha, beta = _fitting("alpha", alpha, x), _fitting("beta", beta, other)
    if alpha.shape[1:] != beta.shape[1:]:
        raise ValueError(
            f"beta must be of as many functions as alpha, {tuple(alpha.shape[1:])},"
            f" got {tuple(beta.shape[1:])}"
        )
    limit = _STRIP if memory is None else whole("memory", memory, low=1)
    total = alpha.new_zeros(alpha.shape[1:])
    for rows in portions(len(x), each=4 * len(other) * x.dtype.itemsize, memory=limit):
        total = total + (alpha[rows] * (gram(kernel, x[rows], other) @ beta)).sum(0)
    return total


def rkhs_norm(
    kernel: KernelFunction,
    x: Tensor,
    alpha: Float[Tensor, " n *k"],
    *,
    memory: int | None = None,
) -> Float[Tensor, " *k"]:
    r"""The norm of $f = \sum_i \alpha_i k(x_i, \cdot)$, which bounds it: $|f| \le \|f\| \sqrt k$.

    Args:
        kernel: A kernel, or a function of two sets of inputs that gives their matrix.
        x: The inputs at which the function's terms sit.
        alpha: Their coefficients; a column for each of k functions.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Raises:
        ValueError: If a norm would be the root of a negative number: the kernel is none.

    Example:
        >>> from vademecum.kernels import LinearKernel
        >>> rkhs_norm(LinearKernel(), torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 1.0]))
        tensor(3.)
    """
    square = rkhs_inner(kernel, x, alpha, x, alpha, memory=memory)
    low = square.min().item() if square.numel() else 0.0
    if low < 0:
        absolute = rkhs_inner(_Absolute(kernel), x, alpha.abs(), x, alpha.abs(), memory=memory)
        if low < -100 * len(x) * torch.finfo(x.dtype).eps * absolute.max().item():
            raise ValueError(
                f"kernel must be positive semidefinite, got {low:.6g} for the squared norm"
            )
    return square.clamp(min=0).sqrt()


class _Absolute:
    """The absolute values of a kernel's matrix, to tell how much rounding can do."""

    def __init__(self, kernel: KernelFunction):
        self.kernel = kernel

    def __call__(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.kernel(x1, x2).abs()


def _fitting(name: str, coefficients: Tensor, x: Tensor) -> Tensor:
    coefficients = floats(name, coefficients)
    if coefficients.ndim not in (1, 2) or len(coefficients) != len(x):
        raise ValueError(
            f"{name} must have {len(x)} rows, one for each input, got {tuple(coefficients.shape)}"
        )
    if coefficients.dtype != x.dtype or coefficients.device != x.device:
        raise ValueError(
            f"{name} must be {x.dtype} on {x.device} as the inputs are,"
            f" got {coefficients.dtype} on {coefficients.device}"
        )
    return coefficients
