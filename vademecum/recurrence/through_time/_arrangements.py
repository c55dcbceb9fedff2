r"""What else was computed from the parts of a tensor that was put together of them.

A step may return its state as $z = f(u_1, \dots, u_L)$, where $f$ only arranges numbers (states of
layers that are stacked, an axis that is added), and compute its output from $u$ and not from $z$.
The derivative in $z$, with all that came of its numbers, is $f(\bar u)$ for the gradients $\bar u$
in the parts: $f$ is linear and moves numbers without changing them. It is applied as the transpose
of its own transpose, so nothing need be known of it but that it arranges.
"""

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

__all__ = ["arranged", "parts_of"]

_ARRANGING = {
    *("StackBackward0", "CatBackward0", "CloneBackward0", "UnsqueezeBackward0", "ViewBackward0"),
    *("SqueezeBackward0", "SqueezeBackward1", "UnsafeViewBackward0", "ReshapeAliasBackward0"),
    *("TransposeBackward0", "TBackward0", "PermuteBackward0", "MovedimBackward0", "AliasBackward0"),
    *("ViewAsRealBackward0", "ViewAsComplexBackward0", "UnsafeSplitBackward0"),
}


def parts_of(z: Tensor) -> list[GradientEdge]:
    """Where the numbers of a tensor were computed; empty if that is the tensor itself."""
    node = z.grad_fn
    if node is None or node.name() not in _ARRANGING:
        return []
    found: list[GradientEdge] = []
    waiting = list(node.next_functions)
    while waiting:
        one, place = waiting.pop()
        if one is None or one.name().endswith("AccumulateGrad"):  # a constant, or a leaf
            continue
        if one.name() in _ARRANGING:
            waiting += one.next_functions
        elif GradientEdge(one, place) not in found:
            found.append(GradientEdge(one, place))
    return found


def arranged(z: Tensor, parts: list[GradientEdge], own: list[Tensor | None], u: Tensor) -> Tensor:
    """The gradients of the parts in their places in z, and those of `u` elsewhere."""
    u = u.detach().clone().requires_grad_()
    pulled = torch.autograd.grad(z, parts, u, create_graph=True)
    rest = [-p if g is None else g - p for p, g in zip(pulled, own, strict=True)]
    (moved,) = torch.autograd.grad(pulled, u, [r.detach() for r in rest], retain_graph=True)
    return u.detach() + moved
