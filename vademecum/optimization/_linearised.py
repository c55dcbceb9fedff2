r"""A network linearised once, for products with matrices that its Jacobian makes of smaller ones.

At $\theta$ the outputs move by $J v$ when the parameters move along $v$. Both $J^T w$, a backward
pass, and $J v$, a backward pass through that backward pass (it is linear in $w$, so that its value
does not matter), come from graphs that are made once and serve any number of columns. So do
products with

$$M = J^T B J \in \mathbb{R}^{P \times P},$$

where $B$ acts on the outputs: the loss's Hessian there, or outer products of its gradients. Exact
up to rounding. Attention is computed by its plain operations meanwhile, since torch's fused ones
have neither a second backward pass nor a forward mode.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.foundations import LinearOperator
from vademecum.gradients.network_function import Functional
from vademecum.models import Block, twice_differentiable

__all__ = ["PASSING", "sandwich", "symmetric"]

PASSING = 2.0
"""Times what a graph keeps, at the peak: 1.9 for a residual net, a transformer and an MLP."""


def sandwich(theta: Tensor, output: Tensor, middle: Callable[[Tensor], Tensor]) -> Block:
    """What multiplies blocks with J^T B J.

    Args:
        theta: The parameters as one vector.
        output: The outputs as a function of them, with their graph.
        middle: What multiplies a tensor that is shaped like the outputs with B.
    """
    with twice_differentiable():
        w = torch.zeros_like(output, requires_grad=True)
        pulled = torch.autograd.grad(output, theta, w, create_graph=True)[0]

    def product(V: Tensor) -> Tensor:
        found = torch.empty_like(V)
        for v, into in zip(V.T, found.T, strict=True):
            (u,) = torch.autograd.grad(pulled, w, v, retain_graph=True, materialize_grads=True)
            (g,) = torch.autograd.grad(output, theta, middle(u), retain_graph=True)
            into.copy_(g)
        return found

    return product


def symmetric(f: Functional, product: Block) -> LinearOperator:
    """The symmetric operator with these products."""
    return LinearOperator((f.size, f.size), product, product, dtype=f.dtype, device=f.device)
