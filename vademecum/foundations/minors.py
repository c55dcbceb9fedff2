r"""Principal minors of a matrix: what Sylvester's criterion asks for, in exact integers if wanted.

The principal minor of $A \in \mathbb R^{d \times d}$ for a set $S$ of indices is
$\det A_{S, S}$; the leading ones have $S = \{1, \dots, k\}$. A symmetric $A$ is positive definite
exactly if its $d$ leading minors are positive, negative definite exactly if
$(-1)^k \det A_{1:k, 1:k} > 0$ for all $k$, and positive semidefinite exactly if all $2^d - 1$
principal minors are at least 0.

Integer matrices are treated without division (Berkowitz): with $M = A_{1:r-1, 1:r-1}$, the rest
of row and column $R$, $S$, and $a = A_{rr}$, the coefficients of $\det(\lambda I - A_{1:r, 1:r})$,
highest power first, are those of the block before convolved with
$(1, -a, -RS, -RMS, \dots, -RM^{r-2}S)$ and cut off after $r + 1$. Only sums and products occur, so
that 64-bit words, which count modulo $2^{64}$, give the exact result as soon as it fits; it does if
$\prod_i (1 + \|A_i\|) < 2^{63}$ for the rows $A_i$ (Hadamard), and is refused if not.
Floating-point matrices are treated by LU factorisation, up to rounding. The claims are
`sylvester_criterion`, `sylvester_negative_definite` and `definiteness_trichotomy`.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from vademecum.arguments import square

__all__ = ["characteristic", "is_whole", "leading_minors", "principal_minors"]


def leading_minors(A: Shaped[Tensor, " *batch d d"]) -> Shaped[Tensor, " *batch d"]:
    r"""The determinants of the upper left blocks, $\det A_{1:k, 1:k}$ for $k = 1, \dots, d$.

    Args:
        A: Matrices; integers are treated exactly.

    Returns:
        The minors, 64-bit integers for integers.

    Raises:
        ValueError: If a matrix of integers is so large that a minor might not fit into 64 bits.

    References:
        Berkowitz, On computing the determinant in small parallel time using a small number of
        processors, Information Processing Letters, 1984.

    Example:
        >>> leading_minors(torch.tensor([[2, 1, 0], [1, 2, 1], [0, 1, 2]]))
        tensor([2, 3, 4])
    """
    if is_whole(A):
        return torch.stack([p[..., -1] * (-1) ** (p.shape[-1] - 1) for p in characteristic(A)], -1)
    sizes = range(1, square("A", A).shape[-1] + 1)
    return torch.stack([torch.linalg.det(A[..., :k, :k]) for k in sizes], -1)


def principal_minors(A: Shaped[Tensor, " *batch d d"]) -> Shaped[Tensor, " *batch subsets"]:
    r"""All $2^d - 1$ principal minors $\det A_{S, S}$.

    Args:
        A: Matrices of width 20 at most; integers are treated exactly.

    Returns:
        The minors, sorted by the size of $S$ and then as `itertools.combinations` sorts: for
        $d = 3$ the sets are 1, 2, 3, 12, 13, 23, 123.

    Raises:
        ValueError: If `A` is wider, or its minors might not fit into 64 bits.

    Example:
        The leading minors of this matrix are 0, 0 and 0, and yet it is indefinite:

        >>> principal_minors(torch.tensor([[0, 0, 0], [0, 1, 0], [0, 0, -1]]))
        tensor([ 0,  1, -1,  0,  0, -1,  0])
    """
    d = square("A", A.double() if is_whole(A) else A).shape[-1]
    if d > 20:
        raise ValueError(f"A must be at most 20 wide, got {d}: it has 2**{d} - 1 principal minors")
    found = []
    for k in range(1, d + 1):
        S = torch.tensor(list(combinations(range(d), k)), device=A.device)
        blocks = A[..., S[:, :, None], S[:, None, :]]
        found.append(leading_minors(blocks)[..., -1] if is_whole(A) else torch.linalg.det(blocks))
    return torch.cat(found, -1)


def is_whole(A: Any) -> bool:
    """Whether this is a tensor of integers.

    Example:
        >>> is_whole(torch.tensor([1])), is_whole(torch.tensor([1.0]))
        (True, False)
    """
    return isinstance(A, Tensor) and not A.is_floating_point() and not A.is_complex()


def characteristic(A: Shaped[Tensor, " *batch d d"]) -> Iterator[Shaped[Tensor, " *batch size"]]:
    r"""The characteristic polynomials of all leading blocks of an integer matrix, exactly.

    Returns:
        For each size $r$ the $r + 1$ coefficients of $\det(\lambda I - A_{1:r, 1:r})$, from
        $\lambda^r$ down.

    Example:
        >>> [p.tolist() for p in characteristic(torch.tensor([[2, 1], [1, 2]]))]
        [[1, -2], [1, -4, 3]]
    """
    rows = torch.linalg.vector_norm(square("A", A.double()), dim=-1)
    size = float(torch.log2(1 + rows).sum(-1).max())
    if size > 62.99:
        raise ValueError(
            "A must have a Hadamard bound below 2**63 for exact minors, got one of"
            f" 2**{size:.1f}: convert it to floating point"
        )
    return _berkowitz(A.long())


def _berkowitz(A: Tensor) -> Iterator[Tensor]:
    p = torch.ones_like(A[..., 0, :1])
    for r in range(1, A.shape[-1] + 1):
        M, R, power = A[..., : r - 1, : r - 1], A[..., r - 1, : r - 1], A[..., : r - 1, r - 1]
        t = [torch.ones_like(A[..., 0, 0]), -A[..., r - 1, r - 1]]
        for _ in range(r - 1):
            t.append(-(R * power).sum(-1))
            power = (M * power[..., None, :]).sum(-1)  # CUDA has no integer matrix product
        product = torch.zeros_like(torch.stack(t, -1))
        for j in range(r):
            product[..., j:] += torch.stack(t[: r + 1 - j], -1) * p[..., j, None]
        p = product
        yield p
