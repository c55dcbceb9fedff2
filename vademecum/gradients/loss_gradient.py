r"""The gradient of a loss in all parameters of a network, as one vector.

$$g = \nabla_\theta\, \ell(f(\theta, x), y) \in \mathbb{R}^P,$$

with $\theta$ the parameters in the order of `functional(model).theta`. Exact up to rounding, by one
backward pass; that it is the sum of the examples' own gradients, for a loss that is a sum, checks
`per_example_gradients`.
"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.gradients.network_function import Functional, functional
from vademecum.models import (
    Loss,
    Output,
    described,
    differentiable_output,
    loss_for,
    mean_over_batches,
    refuse_nan,
)

__all__ = ["gradient", "loss_at", "loss_of", "outputs_at", "slope_at"]


def gradient(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> Float[Tensor, " P"]:
    r"""The gradient $\nabla_\theta \ell(f(\theta, x), y)$ of the loss as one flat vector.

    The model is taken in evaluation mode and never changed: nothing is written to `.grad`.

    Args:
        model: Any module.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels", whose losses count by
            their numbers of terms, or of examples where the loss is none of torch's.
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        progress: Whether to show a progress bar on standard error. It counts batches.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The gradient in the order of `functional(model).theta`; its `unravel` splits it by
        parameter.

    Raises:
        ValueError: If there are no parameters, or the loss is not one number, or nothing is
            differentiable.

    Example:
        >>> x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0]])
        >>> gradient(nn.Linear(2, 1), x, y, loss=lambda z, y: 3 * z.sum())
        tensor([3., 6., 3.])
    """
    f = functional(model, frozen=frozen, output=output)
    slope = partial(slope_at, f, f.theta, loss=loss)
    return mean_over_batches(x, y, slope, device=f.device, progress=progress)


def slope_at(
    f: Functional, theta: Tensor, x: Any, y: Any, *, loss: Loss | None, graph: bool = False
) -> Tensor:
    """The gradient of the loss at `theta`, which then requires one; with a `graph` if asked for."""
    with torch.enable_grad():
        value = loss_at(f, theta.requires_grad_(), x, y, loss)
        return torch.autograd.grad(value, theta, create_graph=graph)[0]


def loss_at(f: Functional, theta: Tensor, x: Any, y: Any, loss: Loss | None) -> Tensor:
    """The loss with the parameters `theta`, as one number, if it is one that has a gradient."""
    z = outputs_at(f, theta, x)
    if loss is None or isinstance(z, Tensor):  # else whatever it is, the loss may know it
        differentiable_output(z)
    return loss_of(z, y, loss)


def outputs_at(f: Functional, theta: Tensor, x: Any) -> Any:
    """What the network gives with the parameters `theta`, of which there must be some."""
    refuse_nan(x)
    if not f.size:
        raise ValueError("model must have parameters to differentiate, got none")
    return f(theta, x)


def loss_of(z: Any, y: Any, loss: Loss | None) -> Tensor:
    """The loss of outputs as one number, if it is one that has a gradient."""
    value = loss_for(y, loss)(z, y)
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        raise ValueError(f"loss must give one differentiable number, got {described(value)}")
    return value.sum()
