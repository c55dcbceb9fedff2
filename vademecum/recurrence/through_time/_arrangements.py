r"""What else was computed from the parts of a tensor that was put together of them.

A step may return its state as $z = f(u_1, \dots, u_L)$, where $f$ only arranges numbers (states of
layers that are stacked, an axis that is added), and compute its output from $u$ and not from $z$.
The derivative in $z$, with all that came of its numbers, is $f(\bar u)$ for the gradients $\bar u$
in the parts: $f$ is linear and moves numbers without changing them. It is applied as the transpose
of its own transpose, which the nodes of autograd's graph are, so nothing need be known of it but
that it arranges.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

__all__ = ["arranged", "parts_of"]

_ARRANGING = {  # without the numbers of their overloads
    *("Stack", "Cat", "Clone", "Unsqueeze", "Squeeze", "View", "UnsafeView", "ReshapeAlias"),
    *("Transpose", "T", "Permute", "Movedim", "Alias", "ViewAsReal", "ViewAsComplex"),
}


def parts_of(z: Tensor) -> list[GradientEdge]:
    """Where the numbers of a tensor were computed; empty if that is the tensor itself."""
    node = z.grad_fn
    if node is None or not _arranges(node):
        return []
    return [edge for edge, _ in _pulled(node, torch.zeros_like(z))]


def arranged(z: Tensor, own: list[Tensor | None], u: Tensor) -> Tensor:
    """The gradients of the parts in their places in z, and those of `u` elsewhere."""
    node = z.grad_fn
    assert node is not None
    u = u.detach().clone().requires_grad_()
    pieces = [piece for _, piece in _pulled(node, u)]
    rest = [-p if g is None else g - p for p, g in zip(pieces, own, strict=True)]
    (moved,) = torch.autograd.grad(pieces, u, [r.detach() for r in rest])
    return u.detach() + moved


def _arranges(node: Node) -> bool:
    return node.name().rstrip("0123456789").removesuffix("Backward") in _ARRANGING


def _pulled(node: Node, u: Tensor) -> Iterator[tuple[GradientEdge, Tensor]]:
    """The transpose of an arrangement: its parts, and what of u belongs to each."""
    pieces = node(u)  # pyright: ignore[reportCallIssue]
    pieces = pieces if isinstance(pieces, tuple) else (pieces,)
    for (one, place), piece in zip(node.next_functions, pieces, strict=True):
        if one is None or one.name().endswith("AccumulateGrad"):  # a constant, or a leaf
            continue
        if _arranges(one):
            yield from _pulled(one, piece)
        else:
            yield GradientEdge(one, place), piece
