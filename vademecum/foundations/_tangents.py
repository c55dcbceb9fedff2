r"""How steep a map is at each of many points, and where it gets steeper.

With the Jacobian $J = Dg(x)$ of $g : \mathbb R^d \to \mathbb R^m$, the value is $u^\top J v$ for
unit vectors: the leading singular vectors, or $u = -v$ with the eigenvector of the least eigenvalue
of $J = J^\top$. With $u$ and $v$ held, its gradient in $x$ is that of the leading value, wherever
that has one.

A Jacobian of few rows is formed, by one backward pass a row. Of a larger one only products are
taken: $u^\top J$ is a backward pass, and $J v$ is one through that, which is linear in $u$. Then
$v$ is the leading Ritz vector of $J^\top J$, or of $-J$, in a small Krylov space, which starts near
the $v$ of the call before. Such a value is attained at $u = J v / \|J v\|$ or $u = -v$, so that it
is at most the leading one; more rounds, each from the last Ritz vector, lead there. At the best
point of a climb a Jacobian of up to 1024 rows is formed after all, so that its value is exact up to
rounding; a larger one is left to the rounds, which find the ends of a spectrum up to about
$10^{-8}$ of its width, and usually up to rounding.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.foundations._ascent import Heights
from vademecum.foundations._lanczos import side_by_side

__all__ = ["Map", "Tangents", "derivative"]

Map = Callable[[Tensor], Tensor]

_FEW = 32  # rows, which cost about as much as a Krylov space
_MANY = 1024  # rows, which cost a few seconds, once


class Tangents:
    """The leading value at each point, as a score to climb; `extra` is the direction v.

    Where there is no derivative, as at the tip of a cone, the value is minus infinity.

    Args:
        g: The map, row by row.
        guides: A direction for each point, to begin with.
        bend: Whether the value is minus the least eigenvalue, of a map with symmetric Jacobians.

    Example:
        >>> steepness = Tangents(lambda x: x**2, torch.ones(1, 2), bend=False)
        >>> steepness(torch.tensor([[1.0, 3.0]])).value
        tensor([6.])
    """

    def __init__(self, g: Map, guides: Tensor, *, bend: bool):
        self.g, self.bend = g, bend
        guides = torch.where(guides.any(1, keepdim=True), guides, 1)
        self.v = self.guides = torch.nn.functional.normalize(guides, dim=1)

    @torch.enable_grad()
    def __call__(self, x: Tensor, *, few: int = _FEW, size: int = 12, rounds: int = 1) -> Heights:
        """The values, from a Jacobian of up to `few` rows, or `rounds` of Krylov spaces."""
        x = x.detach().requires_grad_()
        y = self.g(x)
        self.rough = y.shape[1] > few
        value, v = self._sought(x, y, size, rounds) if self.rough else self._formed(x, y)
        known, self.v = value.isfinite(), v
        gradient = derivative(value.sum(), x).detach()
        return Heights(torch.where(known, value.detach(), -torch.inf), gradient, v)

    def best(self, x: Tensor, found: Heights) -> tuple[int, Heights]:
        """Which of the points has the largest value, and what it is, to rounding if possible."""
        if not self.rough:
            i = int(found.value.argmax())
            return i, Heights(*(part[i : i + 1] for part in found))
        i = int(self(x, size=24, rounds=8).value.argmax())
        self.v, self.guides = self.v[i : i + 1], self.guides[i : i + 1]
        return i, self(x[i : i + 1], few=_MANY, size=64, rounds=40)

    def _formed(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        jacobian = torch.stack([derivative(column.sum(), x) for column in y.unbind(1)], 1)
        known = jacobian.detach().isfinite().flatten(1).all(1)[:, None, None]
        matrix = torch.where(known, jacobian.detach(), 0)
        if self.bend:
            v = torch.linalg.eigh((matrix + matrix.mT) / 2).eigenvectors[..., 0]
            u = -v
        else:
            left, _, right = torch.linalg.svd(matrix, full_matrices=False)
            u, v = left[..., 0], right[..., 0, :]
        return torch.einsum("ni,nij,nj->n", u, torch.where(known, jacobian, torch.nan), v), v

    def _sought(self, x: Tensor, y: Tensor, size: int, rounds: int) -> tuple[Tensor, Tensor]:
        def pull(u: Tensor, *, again: bool = False) -> Tensor:
            return derivative((y * u).sum(), x, again=again)

        zero = torch.zeros_like(y).requires_grad_()
        pulled = pull(zero, again=True)

        def push(v: Tensor) -> Tensor:
            return derivative((pulled * v).sum(), zero, again=False)

        def apply(v: Tensor) -> Tensor:
            z = (-pull(v) if self.bend else pull(push(v))).detach()
            return torch.where(z.isfinite(), z, 0)

        # Not from v itself: a closed space would keep out what has become steeper elsewhere.
        v = torch.nn.functional.normalize(self.v + self.guides / 8, dim=1)
        before, eps = -torch.inf, torch.finfo(x.dtype).eps
        for _ in range(rounds):
            V, T = side_by_side(apply, v, min(size, x.shape[1]))
            theta, Y = torch.linalg.eigh(T)
            ritz = torch.nn.functional.normalize((Y[..., -1:].mT @ V)[:, 0], dim=1)
            v = torch.where(ritz.any(1, keepdim=True), ritz, v)
            if bool((theta[:, -1] <= before + eps * theta.abs().amax(1)).all()):
                break
            before = theta[:, -1]
        u = -v if self.bend else torch.nn.functional.normalize(push(v), dim=1)
        return (pull(u, again=True) * v).sum(1), v


def derivative(total: Tensor, x: Tensor, *, again: bool = True) -> Tensor:
    """The gradient, zero if the total does not depend on x, ready to be differentiated `again`.

    Example:
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> derivative((x**2).sum(), x, again=False)
        tensor([6.])
    """
    if not total.requires_grad:
        return torch.zeros_like(x)
    return torch.autograd.grad(
        total, x, retain_graph=True, create_graph=again, allow_unused=True, materialize_grads=True
    )[0]
