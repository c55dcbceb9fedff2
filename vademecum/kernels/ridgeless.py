r"""Kernel regression without ridge: the least function in the kernel's space that fits best.

With $K = \sum_i \lambda_i u_i u_i^\top$ of the training inputs and the outputs $f_0$ before
training,

$$f(x) = f_0(x) + k(x, X)\, \alpha, \qquad \alpha = K^+ (y - f_0)
= \sum_{\lambda_i > \tau} \frac{u_i u_i^\top (y - f_0)}{\lambda_i}.$$

It is where gradient descent from $f_0$ ends. What no function in the space can fit is left over:
the residual $y - f(X)$ is the projection of $y - f_0$ on the null space of K. Which eigenvalues
count as 0 cannot be told exactly: the threshold is $\tau = \lambda_{\max}\, n\, \varepsilon$ by
default, what rounding does to K. Checked by the claim `kernels.dual_coefficients`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import choice, floats, number
from vademecum.kernels._kernel import pair
from vademecum.kernels.matrices import KernelFunction, gram
from vademecum.results import one_line

__all__ = ["KernelRegression", "kernel_regression"]


class KernelRegression(NamedTuple):
    """What kernel regression without ridge found.

    Example:
        >>> from vademecum.kernels import LinearKernel
        >>> x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 2.0])
        >>> kernel_regression(LinearKernel(), x, y).predict(torch.tensor([[5.0]]))
        tensor([5.])
    """

    coefficients: Float[Tensor, " n *k"]
    """The coefficients of the training inputs, in double precision: they may be large."""
    rank: int
    """How many eigenvalues count."""
    threshold: float
    """The largest eigenvalue that would not count."""
    eigenvalues: Float[Tensor, " n"]
    """All eigenvalues of the kernel matrix, increasing."""
    residual: Float[Tensor, " n *k"]
    """What is left over of the training targets."""
    norm: Float[Tensor, " *k"]
    """The norm of what was learned, in the kernel's space."""
    kernel: KernelFunction
    """The kernel."""
    x: Tensor
    """The training inputs."""

    def predict(self, x: Tensor, f0: Tensor | None = None) -> Float[Tensor, " m *k"]:
        """The outputs for other inputs.

        Args:
            x: The inputs.
            f0: The outputs for them before training; 0 by default.
        """
        pair(self.x, x, name="the training set", other="x")
        found = (gram(self.kernel, x, self.x).double() @ self.coefficients).to(x.dtype)
        return found if f0 is None else _targets("f0", f0, x, found) + found

    __repr__ = one_line


def kernel_regression(
    kernel: KernelFunction,
    x: Tensor,
    y: Float[Tensor, " n *k"],
    *,
    f0: Float[Tensor, " n *f0"] | None = None,
    rtol: float | None = None,
    conflicts: str = "refuse",
) -> KernelRegression:
    """Fit targets by the function of least norm, without ridge (with one: `KernelRidge`).

    Args:
        kernel: A kernel, or a function of two sets of inputs that gives their matrix.
        x: The training inputs.
        y: Their targets, a column for each of k outputs.
        f0: The outputs before training; 0 by default.
        rtol: Eigenvalues up to this times the largest count as 0; by default the number of
            examples times the precision of the inputs' dtype.
        conflicts: What to do if equal inputs have different targets, which no function fits:
            "refuse", or "average" for the least squares.

    Raises:
        ValueError: If the kernel's matrix is not symmetric, or has a negative eigenvalue beyond
            rounding, or equal inputs have different targets.

    Example:
        >>> from vademecum.kernels import RBFKernel
        >>> x, y = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([1.0, 0.0, 2.0])
        >>> found = kernel_regression(RBFKernel(), x, y)
        >>> found.rank, bool(found.residual.abs().max() < 1e-6)
        (3, True)
    """
    x, _ = pair(x, None, name="x")
    y = _targets("y", y, x)
    if choice("conflicts", conflicts, ("refuse", "average")) == "refuse":
        _refuse_conflicts(x, y)
    r = (y if f0 is None else y - _targets("f0", f0, x, y)).double()
    eps = torch.finfo(x.dtype).eps
    rtol = len(x) * eps if rtol is None else number("rtol", rtol, low=0, below=1)
    lam, U = torch.linalg.eigh(gram(kernel, x).double())
    low, top = float(lam[0]), float(lam[-1])
    if low < -max(100 * len(x) * eps, eps ** (2 / 3)) * max(top, 0.0):
        raise ValueError(
            f"kernel must be positive semidefinite, got a matrix whose smallest eigenvalue is"
            f" {low:.6g}, the largest {top:.6g}"
        )
    threshold = rtol * max(top, 0.0)
    kept = lam > threshold
    parts = U.T @ r
    inverse = torch.where(kept, lam, torch.inf).reciprocal()
    scaled = parts * inverse.view(-1, *[1] * (r.ndim - 1))
    rest = U[:, ~kept] @ parts[~kept]
    return KernelRegression(
        coefficients=U @ scaled,
        rank=int(kept.sum()),
        threshold=threshold,
        eigenvalues=lam.to(x.dtype),
        residual=rest.to(x.dtype),
        norm=(parts * scaled).sum(0).sqrt().to(x.dtype),
        kernel=kernel,
        x=x,
    )


def _targets(name: str, y: Tensor, x: Tensor, like: Tensor | None = None) -> Tensor:
    y = floats(name, y)
    if y.ndim not in (1, 2) or len(y) != len(x):
        raise ValueError(f"{name} must have {len(x)} rows as x has, got shape {tuple(y.shape)}")
    if like is not None and y.shape != like.shape:
        raise ValueError(f"{name} must have shape {tuple(like.shape)}, got {tuple(y.shape)}")
    if y.dtype != x.dtype or y.device != x.device:
        raise ValueError(
            f"{name} must be {x.dtype} on {x.device} as x is, got {y.dtype} on {y.device}"
        )
    return y


def _refuse_conflicts(x: Tensor, y: Tensor) -> None:
    """Name two equal inputs with different targets."""
    _, group = torch.unique(x.flatten(1) if x.ndim > 1 else x, dim=0, return_inverse=True)
    first = torch.full((len(x),), len(x), device=x.device)
    rows = torch.arange(len(x), device=x.device)
    first = first.scatter_reduce(0, group, rows, "amin")[group]
    other = (y[first] != y).view(len(y), -1).any(1).nonzero()
    if len(other):
        j = int(other[0])
        i = int(first[j])
        raise ValueError(
            f"x must not have equal inputs with different targets without noise, got rows {i} and"
            f" {j} with {y[i].tolist()} and {y[j].tolist()}; KernelRidge has noise"
        )
