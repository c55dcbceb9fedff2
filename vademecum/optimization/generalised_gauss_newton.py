r"""The Gauss-Newton matrix: the part of the Hessian that comes from the curvature of the loss.

With outputs $z = f(\theta, x)$ of all examples as one vector, their Jacobian $J = \partial z /
\partial \theta$ and the loss $\ell(z)$, the chain rule gives

$$\nabla_\theta^2\, \ell = G + \sum_i \frac{\partial \ell}{\partial z_i}\, \nabla_\theta^2 z_i,
\qquad G = J^T\, \nabla_z^2 \ell\; J.$$

$G$ is positive semidefinite where the loss is convex in the outputs, and is all there is where the
network is linear in $\theta$ or fits its data exactly. For the squared error of a linear model,
$\frac1{2n} \|X \theta - y\|^2$, it is $X^T X / n$.

A product is $J v$, the loss's curvature in the outputs (for the cross-entropy by its closed form,
for other losses by autograd), and $J^T$: exact up to rounding, for the cost of about four thirds of
a gradient once the graph is there.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.foundations import LinearOperator
from vademecum.gradients import functional
from vademecum.gradients.loss_gradient import loss_at, loss_of, outputs_at
from vademecum.models import (
    Block,
    Loss,
    MeanProducts,
    Output,
    differentiable_output,
    twice_differentiable,
)
from vademecum.optimization._linearised import PASSING, sandwich, symmetric

__all__ = ["gauss_newton"]


def gauss_newton(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    memory: int | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> LinearOperator:
    r"""The generalised Gauss-Newton matrix $J^T\, \nabla_z^2 \ell\, J$ of the loss, as an operator.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed.

    Args:
        model: Any module that gives one tensor of floating-point numbers.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels", whose losses count by
            their numbers of terms, or of examples where the loss is none of torch's. A loader is
            run through at each product; processes of `torchrun` share it.
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. Where
            there is no room for the graph of all examples they go through in portions at each
            product, if they do not influence each other.
        progress: Whether to show a progress bar on standard error. It counts batches.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The symmetric operator $G \in \mathbb{R}^{P \times P}$, for `eigsh`, `trace` and
        `spectral_density`. The memory of the graph, of which a loader has none, is free again when
        the operator is gone.

    Raises:
        ValueError: If there are no parameters, or the loss is not one number, or nothing is
            differentiable; at a product, if a loader brings other examples than before.
        RuntimeError: If the model recomputes activations (`torch.utils.checkpoint`).

    References:
        Schraudolph, Fast curvature matrix-vector products for second-order gradient descent, Neural
        Computation, 2002.
        Martens, New insights and perspectives on the natural gradient method, Journal of Machine
        Learning Research, 2020.

    Example:
        >>> x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0]])
        >>> G = gauss_newton(nn.Linear(2, 1, bias=False), x, y)
        >>> G.dense()
        tensor([[2., 4.], [4., 8.]])
    """
    f = functional(model, frozen=frozen, output=output)
    theta = f.theta.detach().requires_grad_()

    def block(x: Any, y: Any) -> Block:
        with twice_differentiable():
            z = differentiable_output(outputs_at(f, theta, x))
        with twice_differentiable(losses=True):
            at = z.detach().requires_grad_()
            (slope,) = torch.autograd.grad(loss_of(at, y, loss), at, create_graph=True)

        def curvature(u: Tensor) -> Tensor:
            if not slope.requires_grad:  # the loss is linear
                return torch.zeros_like(u)
            return torch.autograd.grad(slope, at, u, retain_graph=True, materialize_grads=True)[0]

        return sandwich(theta, z, curvature)

    value = partial(loss_at, f, theta, loss=loss)
    knobs: Any = {"value": value, "passing": PASSING, "memory": memory, "progress": progress}
    return symmetric(f, MeanProducts(theta, x, y, block, **knobs))
