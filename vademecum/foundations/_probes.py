r"""Random vectors that probe an operator, also for whether it is symmetric; progress by products.

If $A = A^H$, then $\langle u, A v \rangle = \langle A u, v \rangle$ for all $u$ and $v$. For
Gaussian ones the difference of the two sides is about $\|A - A^H\|_F$ in size, and the sides
themselves $\|A\|_F \approx \|u\| \|A v\| / \sqrt n$, with rounding errors that are smaller by some
multiples of the machine precision $\varepsilon$. So a difference above $\sqrt\varepsilon$ of that
size, or above what the caller allows, is taken for an asymmetry, and one of relative size $\delta$
goes unnoticed with a probability of about $\sqrt\varepsilon / \delta$ only.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Inexact
from torch import Tensor

from vademecum.arguments import number
from vademecum.arrays import lengths
from vademecum.foundations.operators import LinearOperator, aslinearoperator
from vademecum.progress import ticking
from vademecum.randomness import source

__all__ = [
    "insist_on_symmetry", "random_block", "square_operator", "symmetric_pair", "watched",
    "watching",
]  # fmt: skip

_COLUMNS = 16  # that are applied between two ticks of a progress bar


def square_operator(name: str, A: Any, *, half: bool = True) -> LinearOperator:
    """A square matrix of any kind as an operator; `half` says whether half precision will do."""
    op = aslinearoperator(A)
    if op.shape[0] != op.shape[1]:
        raise ValueError(f"{name} must be square, got shape {op.shape}")
    if not half and torch.finfo(op.dtype).bits < 32:  # torch decomposes no such matrices
        raise ValueError(f"{name} must be in single or double precision, got {op.dtype}")
    return op


def random_block(
    op: LinearOperator, k: int, generator: torch.Generator | None = None, *, signs: bool = False
) -> Inexact[Tensor, " n k"]:
    """Random vectors to apply an operator to: Gaussian with identity covariance, or signs.

    They are drawn where the generator is, so that a seed means the same on every device.
    """
    drawn = source(generator, op.device)
    if signs:
        x = 2.0 * torch.randint(2, (k, op.shape[1]), **drawn) - 1
    else:
        x = torch.randn(k, op.shape[1], dtype=op.dtype, **drawn)
    return x.to(dtype=op.dtype, device=op.device).T  # by columns, which few of them multiply faster


@contextmanager
def watching(
    total: int | None, *, progress: bool
) -> Iterator[Callable[[LinearOperator], LinearOperator]]:
    """What puts a bar on operators that counts the vectors they are applied to, all together.

    Without one it leaves them as they are.
    """
    if not progress:
        yield lambda op: op
        return
    with ticking("products with the operator", total, progress=True) as tick:

        def counted(op: LinearOperator, x: Tensor) -> Tensor:
            parts = []
            for part in x.split(_COLUMNS, 1):
                parts.append(op @ part)
                tick(part.shape[1])
            return torch.cat(parts, 1)

        yield lambda op: LinearOperator(
            op.shape,
            lambda x: counted(op, x),
            lambda y: counted(op.H, y),
            dtype=op.dtype,
            device=op.device,
        )


@contextmanager
def watched(op: LinearOperator, total: int | None, *, progress: bool) -> Iterator[LinearOperator]:
    """The operator, with a bar that counts the vectors it is applied to; as it is without one.

    Example:
        >>> op = aslinearoperator(torch.eye(2))
        >>> with watched(op, 5, progress=False) as same:
        ...     same is op
        True
    """
    with watching(total, progress=progress) as watch:
        yield watch(op)


def symmetric_pair(
    op: LinearOperator,
    generator: torch.Generator | None = None,
    *,
    tol: float | None = None,
    start: Inexact[Tensor, " n"] | None = None,
) -> tuple[Inexact[Tensor, " n 2"], Inexact[Tensor, " n 2"]]:
    """Two random vectors and their images, which show that the operator is symmetric.

    The first may be given, as `start`. One by one, since products with blocks as thin as this are
    often slower than two with vectors.
    """
    x = random_block(op, 2, generator)
    if start is not None:
        x = torch.stack([start * len(start) ** 0.5 / lengths(start), x[:, 1]], 1)
    ax = torch.stack([(op @ x[:, 0]).detach(), (op @ x[:, 1]).detach()], 1)
    insist_on_symmetry(x, ax, tol=tol)
    return x, ax


def insist_on_symmetry(
    x: Inexact[Tensor, " n k"], ax: Inexact[Tensor, " n k"], *, tol: float | None = None
) -> None:
    r"""Refuse an operator unless $x_i^H A x_j = (A x_i)^H x_j$ for random vectors, nearly.

    Args:
        x: The vectors.
        ax: Their images.
        tol: The difference allowed, relative to the size of the products; by default the square
            root of the machine precision.

    Raises:
        ValueError: If the operator is not symmetric (complex: Hermitian), or returned NaN.
    """
    eps = torch.finfo(x.dtype).eps
    tol = number("symmetry_tol", eps**0.5 if tol is None else tol, low=0, infinite=True)
    products = x.mH @ ax
    gap = float((products - products.mH).abs().max())
    size = float(x.norm(dim=0).max()) * float(lengths(ax).max()) / x.shape[0] ** 0.5
    if not (gap + size < math.inf and (gap == 0 or gap <= tol * size)):
        raise ValueError(
            "op must be symmetric (complex: Hermitian) and finite, got <u, A v> - <A u, v> ="
            f" {gap:.3g} where products are about {size:.3g}: a relative asymmetry of"
            f" {gap / size if size else math.inf:.3g}, for symmetry_tol={tol:.3g}"
        )
