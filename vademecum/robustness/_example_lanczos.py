r"""Lanczos' method for many symmetric operators at once, one for each example.

From a random start $q_1$ the vectors $q_1, \dots, q_t$ are an orthonormal basis of the Krylov space
of a positive semidefinite $M$, in which $M$ is the tridiagonal matrix $T$ with the diagonal
$\alpha$ and the off-diagonal $\beta$. The largest eigenvalue $\theta$ of $T$ with its vector $s$
has in $M$ the residual $\beta_t |s_t|$, and rises to that of $M$. All examples take the same number
of steps, until the last residual is small. Vectors are made orthogonal to all before them, twice.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["largest_eigenvectors"]

_LOOK = 4  # steps from one look at the residuals to the next


def largest_eigenvectors(
    product: Callable[[Tensor], Tensor],
    start: Float[Tensor, " n s"],
    tol: float,
    max_iter: int,
) -> tuple[Float[Tensor, " n s"], Bool[Tensor, " n"]]:
    """Unit vectors that belong to the largest eigenvalues, and whether their residuals are small.

    Args:
        product: Takes vectors (n, s) to their images under n symmetric operators.
        start: Vectors to start from.
        tol: The residual relative to the eigenvalue at which to stop.
        max_iter: The most products for each example.

    Example:
        >>> A = torch.tensor([[3.0, 1.0], [2.0, 5.0]])  # two diagonal matrices
        >>> u, converged = largest_eigenvectors(lambda q: A * q, torch.ones(2, 2), 1e-3, 9)
        >>> u.abs().round(decimals=3), converged
        (tensor([[1., 0.], [0., 1.]]), tensor([True, True]))
    """
    basis, diagonal, off = [_unit(start)], [], []
    while True:
        image = product(basis[-1])
        diagonal.append((basis[-1] * image).sum(1))
        Q = torch.stack(basis, 1)
        for _ in range(2):
            image = image - torch.einsum("nts,nt->ns", Q, torch.einsum("nts,ns->nt", Q, image))
        off.append(torch.linalg.vector_norm(image, dim=1))
        t = len(diagonal)
        if t % _LOOK == 0 or t in (max_iter, start.shape[1]):
            theta, s, residual = _largest(diagonal, off)
            if not bool(theta.isfinite().all()):
                raise ValueError("products with the Jacobian of model must be finite, got others")
            converged = residual <= tol * theta
            if t >= max_iter or bool(converged.all()):
                return _unit(torch.einsum("nts,nt->ns", Q, s)), converged
        floor = torch.finfo(image.dtype).eps * torch.stack(diagonal).abs().amax(0)
        basis.append(_unit(image) * (off[-1] > floor)[:, None])  # else the space is exhausted


def _largest(diagonal: list[Tensor], off: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The largest eigenvalue of the tridiagonal matrix, its vector and its residual."""
    beta = torch.stack(off, 1)
    T = torch.diag_embed(torch.stack(diagonal, 1))
    T = T + torch.diag_embed(beta[:, :-1], 1) + torch.diag_embed(beta[:, :-1], -1)
    values, vectors = torch.linalg.eigh(T)
    s = vectors[:, :, -1]
    return values[:, -1], s, beta[:, -1] * s[:, -1].abs()


def _unit(x: Tensor) -> Tensor:
    return x / torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
