r"""Operator norms of a matrix between $\ell_p$ spaces.

$$\|A\|_{p, q} = \max_{\|x\|_p \le 1} \|A x\|_q = \|A^\top\|_{q', p'}, \qquad
\tfrac1p + \tfrac1{p'} = \tfrac1q + \tfrac1{q'} = 1 .$$

A convex function is largest at an extreme point, so there are formulas where the ball has few of
them, or the dual one has:

| $p$ | $q$ | the norm | cost |
|---|---|---|---|
| 1 | any | the largest $\ell_q$ norm of a column | $m n$ |
| any | $\infty$ | the largest $\ell_{p'}$ norm of a row | $m n$ |
| 2 | 2 | the largest singular value | $m n \min(m, n)$ |
| $\infty$ | any | the largest $\|A s\|_q$ over signs $s \in \{\pm 1\}^n$ | $m 2^n$ |
| any | 1 | the largest $\|A^\top s\|_{p'}$ over signs $s \in \{\pm 1\}^m$ | $n 2^m$ |

All are exact up to rounding. The last two are hard problems in general; signs are enumerated up to
24 of them, and more are refused, as are other exponents, where nothing exact is known. Checked by
the claim `robustness.adversarial_operator_norm`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number

__all__ = ["operator_norm"]

_SIGNS = 24
_CELLS = 2**22  # entries of a block of images A s that are made at a time


def operator_norm(matrix: Float[Tensor, " *batch m n"], p: float, q: float) -> Tensor:
    r"""The largest $\|A x\|_q$ over $\|x\|_p \le 1$.

    Args:
        matrix: The matrix $A$, or many in leading axes.
        p: The exponent of the norm of $x$, from 1 to infinity.
        q: The exponent of the norm of $A x$, from 1 to infinity. One of `p = 1`, `q = inf`,
            `p = q = 2`, `p = inf` and `q = 1` has to hold; in the last two cases there may be at
            most 24 columns, or rows (of either for `p = inf, q = 1`).

    Returns:
        The norm, a number for each matrix; differentiable where the maximiser is unique.

    Raises:
        ValueError: If there is no exact method for these exponents, or too many signs.

    Example:
        >>> A = torch.tensor([[3.0, -4.0], [1.0, 1.0]])
        >>> norms = [(1, 2), (2, torch.inf), (torch.inf, torch.inf), (torch.inf, 1)]
        >>> [operator_norm(A, p, q).item() for p, q in norms]
        [4.123105525970459, 5.0, 7.0, 7.0]
    """
    A = floats("matrix", matrix)
    if A.ndim < 2 or A.is_complex():
        given = f"shape {tuple(A.shape)} of {A.dtype}"
        raise ValueError(f"matrix must be a real matrix, or many, got {given}")
    p, q = (number(name, t, low=1, infinite=True) for name, t in (("p", p), ("q", q)))
    m, n = A.shape[-2:]
    if p == 1:
        return torch.linalg.vector_norm(A, q, dim=-2).amax(-1)
    if q == torch.inf:
        return torch.linalg.vector_norm(A, _dual(p), dim=-1).amax(-1)
    if p == q == 2:
        return torch.linalg.matrix_norm(A, 2)
    if p == torch.inf and not (q == 1 and m < n):
        return _over_signs(A, q, "columns")
    if q == 1:
        return _over_signs(A.mT, _dual(p), "rows")
    raise ValueError(
        f"p and q must fulfil p = 1, q = inf, p = q = 2, p = inf or q = 1, got p = {p} and q = {q}"
    )


def _dual(p: float) -> float:
    return torch.inf if p == 1 else 1.0 if p == torch.inf else p / (p - 1)


def _over_signs(A: Tensor, q: float, what: str) -> Tensor:
    r"""The largest $\|A s\|_q$ over vectors of signs."""
    n = A.shape[-1]
    if n > _SIGNS:
        raise ValueError(
            f"matrix must have at most {_SIGNS} {what} for these exponents, since all signs are"
            f" tried, got {n}"
        )
    flat = A.reshape(-1, *A.shape[-2:])
    found = [torch.linalg.vector_norm(a @ _best_signs(a.detach(), q), q) for a in flat]
    return torch.stack(found).view(A.shape[:-2])


def _best_signs(a: Float[Tensor, " m n"], q: float) -> Float[Tensor, " n"]:
    """The signs that maximise the norm; the first is +1, since the opposite ones do as well."""
    m, n = a.shape
    few = max(0, min(n - 1, (_CELLS // m).bit_length() - 1))
    inner = a[:, n - few :] @ _signs(few, a).T
    outer = _signs(n - few - 1, a)
    best, where = a.new_tensor(-1.0), (0, 0)
    for i, s in enumerate(outer):
        head = a[:, : n - few] @ torch.cat([s.new_ones(1), s])
        value, j = torch.linalg.vector_norm(head[:, None] + inner, q, dim=0).max(0)
        if value > best:
            best, where = value, (i, int(j))
    i, j = where
    return torch.cat([a.new_ones(1), outer[i], _signs(few, a)[j]])


def _signs(count: int, like: Tensor) -> Float[Tensor, " all count"]:
    """All vectors of signs."""
    k = torch.arange(2**count, device=like.device)[:, None]
    bits = (k >> torch.arange(count, device=like.device)) & 1
    return 1 - 2 * bits.to(like.dtype)
