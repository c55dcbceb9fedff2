r"""Cholesky's decomposition of a kernel matrix, with the jitter it needed, and its inverse.

A matrix of a positive semidefinite kernel has eigenvalues that rounding can make negative: by
some $\varepsilon \operatorname{tr} K$ at most, with the machine precision $\varepsilon$. So if
$K = L L^\top$ fails, it is tried with $K + j I$ for $j = \varepsilon \bar k, 10\, \varepsilon \bar
k, \dots$ ($\bar k$ is the mean of the diagonal) up to $10\, \varepsilon \operatorname{tr} K$; what
fails then is no such matrix, and its least eigenvalue says so.

The inverse $K^{-1} = M^\top M$ comes from $M = L^{-1}$ in blocks, about $n^3$ operations after the
$\frac13 n^3$ of the decomposition, all of them in products of large matrices:

$$\begin{pmatrix} A & \\ B & C \end{pmatrix}^{-1} =
\begin{pmatrix} A^{-1} & \\ -C^{-1} B A^{-1} & C^{-1} \end{pmatrix}, \qquad
(M^\top M)_{ij} = \sum_{k \ge \max(i, j)} M_{ki}^\top M_{kj} .$$

Exact up to rounding; the claims `gp_regression_mean` and `kernel_ridge` rely on it.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Factor", "factorised"]

BLOCK = 128  # rows of a block: smaller ones cost products, larger ones flops (a tenth at 512)


class Factor(NamedTuple):
    r"""The $L$ of $K + j I = L L^\top$ and the jitter $j$."""

    lower: Float[Tensor, " n n"]
    jitter: float

    def solve(self, b: Float[Tensor, " n r"]) -> Float[Tensor, " n r"]:
        r"""The solution $K^{-1} b$."""
        return torch.linalg.solve_triangular(self.lower.mT, self.half(b), upper=True)

    def half(self, b: Float[Tensor, " n r"]) -> Float[Tensor, " n r"]:
        r"""The $L^{-1} b$."""
        return torch.linalg.solve_triangular(self.lower, b, upper=False)

    def log_det(self) -> float:
        r"""The $\log \det K$."""
        return 2 * float(self.lower.diagonal().double().log().sum())

    def inverse(self) -> Float[Tensor, " n n"]:
        r"""The $K^{-1}$, exactly symmetric."""
        n = len(self.lower)
        M = _triangular_inverse(self.lower)
        found = torch.empty_like(self.lower, memory_format=torch.contiguous_format)
        for start in range(0, n, BLOCK):
            end = min(start + BLOCK, n)
            rows = M[start:, start:end].T @ M[start:, :end]
            found[start:end, :end] = rows
            found[:start, start:end] = rows[:, :start].T
            square = rows[:, start:]
            found[start:end, start:end] = (square + square.T) / 2
        return found

    def condition(self, K: Float[Tensor, " n n"], *, steps: int = 12) -> float:
        """A lower estimate of the condition number, by powers of K and of its inverse."""
        sizes = []
        for product in (lambda v: K @ v, self.solve):
            v = torch.ones_like(K[:, :1]) + torch.arange(len(K)).to(K)[:, None] % 3
            for _ in range(steps):
                v = product(v / v.norm())
            sizes.append(float(v.norm()))
        return math.prod(sizes)


def factorised(
    K: Float[Tensor, " n n"], *, diagonal: float | Tensor = 0.0, limited: bool = True
) -> Factor:
    """Decompose a symmetric matrix plus a diagonal, with as little jitter as it takes.

    Args:
        K: The matrix; its diagonal is changed meanwhile.
        diagonal: What to add to its diagonal.
        limited: Whether a jitter beyond what rounding explains is an error.

    Raises:
        ValueError: If the matrix is not finite, or not positive semidefinite.
    """
    eps, jitter, own = torch.finfo(K.dtype).eps, 0.0, K.diagonal().clone()
    if not math.isfinite(float(K.sum())) and not K.isfinite().all():
        raise ValueError("kernel must give finite numbers, got others")
    mean = float((own + diagonal).double().mean())
    try:
        while True:
            K.diagonal().copy_(own + diagonal + jitter)
            lower, info = torch.linalg.cholesky_ex(K)
            if not info:
                return Factor(lower, jitter)
            jitter = 10 * jitter or eps * abs(mean) or torch.finfo(K.dtype).tiny
            much = max(10 * len(K) * eps * mean, torch.finfo(K.dtype).tiny)
            if (limited and jitter > much) or not math.isfinite(jitter):
                break
    finally:
        K.diagonal().copy_(own)
    raise ValueError(_indefinite(K, diagonal))


def _indefinite(K: Tensor, diagonal: float | Tensor) -> str:
    least = float(torch.linalg.eigvalsh(K)[0])
    added = float(torch.as_tensor(diagonal).min())
    beside = f", and {added:.3g} was added to its diagonal" if added else ""
    return (
        "kernel must be positive semidefinite, got a matrix of"
        f" {len(K)} inputs with the smallest eigenvalue {least:.3g}{beside}"
    )


def _triangular_inverse(L: Tensor) -> Tensor:
    """The inverse of a lower triangular matrix, zeros above its diagonal."""
    n = len(L)
    M = torch.zeros_like(L)
    _invert_into(M, L, 0, n)
    return M


def _invert_into(M: Tensor, L: Tensor, start: int, end: int) -> None:
    here = slice(start, end)
    if end - start <= BLOCK:
        eye = torch.eye(end - start, dtype=L.dtype, device=L.device)
        M[here, here] = torch.linalg.solve_triangular(L[here, here], eye, upper=False)
        return
    middle = start + (end - start) // 2
    _invert_into(M, L, start, middle)
    _invert_into(M, L, middle, end)
    left, right = slice(start, middle), slice(middle, end)
    M[right, left] = -(M[right, right] @ (L[right, left] @ M[left, left]))
