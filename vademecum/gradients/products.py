r"""Products of a network's derivatives with vectors, for the cost of a few passes.

With $J = \partial f / \partial \theta$ (or $\partial f / \partial x$) the Jacobian and $H =
\nabla_\theta^2\, \ell(f(\theta, x), y)$ the Hessian of the loss,

$$\mathrm{jvp}: v \mapsto J v, \qquad \mathrm{vjp}: u \mapsto J^T u, \qquad
\mathrm{hvp}: v \mapsto H v = \nabla_\theta \langle \nabla_\theta \ell, v \rangle.$$

The last is a backward pass through the gradient's graph. As an operator, `hessian` keeps that
graph, so that a product costs the second backward pass alone. Exact up to rounding, with autograd's
convention at kinks: the second derivative of a ReLU is zero.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks

from vademecum.arguments import floats
from vademecum.foundations.operators import LinearOperator
from vademecum.gradients.constant_inputs import constant_inputs
from vademecum.gradients.functional import functional
from vademecum.gradients.inputs import refuse_nan
from vademecum.gradients.jacobian import Jacobian, pull
from vademecum.gradients.per_example import Loss
from vademecum.gradients.recorded_pass import differentiable

__all__ = ["hessian", "hvp", "jvp", "vjp"]

_CHECKPOINTS = "model must not use checkpoints: what they compute again has no second derivative"


def jvp(
    model: nn.Module,
    x: Any,
    v: Float[Tensor, " ..."],
    *,
    wrt: Literal["theta", "x"] = "theta",
    frozen: bool = True,
) -> Float[Tensor, " ..."]:
    r"""The product $J v$: how the outputs move when the parameters, or inputs, move along $v$.

    For several vectors make the operator `jacobian` once.

    Args:
        model: Any module; it is never changed.
        x: Its inputs; a tensor, tuple or dict.
        v: The direction, shaped like `functional(model).theta`, or like `x`.
        wrt: Whether parameters or inputs move.
        frozen: Whether parameters that require no gradient count, too.

    Returns:
        The derivative, shaped like the output.

    Example:
        >>> jvp(nn.Linear(2, 1), torch.tensor([[10.0, 100.0]]), torch.tensor([1.0, 2.0, 3.0]))
        tensor([[213.]])
    """
    J = Jacobian(model, x, wrt=wrt, frozen=frozen)
    shape = x.shape if wrt == "x" else torch.Size([J.shape[1]])
    return (J @ _shaped("v", v, shape).flatten()).view_as(J.output)


def vjp(
    model: nn.Module,
    x: Any,
    u: Float[Tensor, " ..."],
    *,
    wrt: Literal["theta", "x"] = "theta",
    frozen: bool = True,
) -> Float[Tensor, " ..."]:
    r"""The product $J^T u$: the gradient of $\langle u, f \rangle$ in the parameters, or inputs.

    For several vectors make the operator `jacobian` once.

    Args:
        model: Any module; it is never changed.
        x: Its inputs; a tensor, tuple or dict.
        u: The weights of the outputs, shaped like these.
        wrt: Whether to differentiate in parameters or inputs.
        frozen: Whether parameters that require no gradient count, too.

    Returns:
        The gradient, shaped like `functional(model).theta`, or like `x`.

    Example:
        >>> vjp(nn.Linear(2, 1), torch.tensor([[10.0, 100.0]]), torch.tensor([[2.0]]))
        tensor([ 20., 200.,   2.])
    """
    J = Jacobian(model, x, wrt=wrt, frozen=frozen)
    u = _shaped("u", u, J.output.shape).to(J.dtype)
    gradient = J.T @ u.flatten()
    return gradient.view_as(x) if wrt == "x" else gradient


def hessian(model: nn.Module, loss: Loss, x: Any, y: Any, *, frozen: bool = True) -> LinearOperator:
    r"""The Hessian of the loss in the parameters, as an operator that keeps its graph.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed.

    Args:
        model: Any module.
        loss: A function of outputs and targets with one number for all of them.
        x: The inputs; a tensor, tuple or dict.
        y: The targets.
        frozen: Whether parameters that require no gradient count, too.

    Returns:
        The symmetric operator $H \in \mathbb{R}^{P \times P}$. The memory of the graph is free
        again when the operator is gone.

    Raises:
        ValueError: If there are no parameters, or the loss is not one number, or nothing is
            differentiable.
        RuntimeError: If the model recomputes activations (`torch.utils.checkpoint`).

    Example:
        >>> x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0]])
        >>> H = hessian(nn.Linear(2, 1, bias=False), lambda z, y: ((z - y) ** 2).sum() / 2, x, y)
        >>> H.dense()
        tensor([[1., 2.], [2., 4.]])
    """
    f = functional(model, frozen=frozen)
    refuse_nan(x)
    if not f.size:
        raise ValueError("model must have parameters to differentiate, got none")
    with torch.enable_grad(), constant_inputs(), disable_saved_tensors_hooks(_CHECKPOINTS):
        theta = f.theta.clone().requires_grad_()
        value = loss(differentiable(f(theta, x)), y)
        if value.numel() != 1 or not value.requires_grad:
            raise ValueError(
                "loss must give one differentiable number, got"
                f" {value.dtype} of shape {tuple(value.shape)}"
            )
        (gradient,) = torch.autograd.grad(value.sum(), theta, create_graph=True)

    def product(v: Tensor) -> Tensor:
        return pull(theta, gradient, v)

    return LinearOperator((f.size, f.size), product, product, dtype=f.dtype, device=f.device)


def hvp(
    model: nn.Module,
    loss: Loss,
    x: Any,
    y: Any,
    v: Float[Tensor, " P *columns"],
    *,
    frozen: bool = True,
) -> Float[Tensor, " P *columns"]:
    r"""The product $H v$ of the loss's Hessian with a vector, or with the columns of a block.

    For products one after the other make the operator `hessian` once.

    Args:
        model: Any module; it is never changed.
        loss: A function of outputs and targets with one number for all of them.
        x: The inputs; a tensor, tuple or dict.
        y: The targets.
        v: A vector shaped like `functional(model).theta`, or a block of such columns.
        frozen: Whether parameters that require no gradient count, too.

    References:
        Pearlmutter, Fast exact multiplication by the Hessian, Neural Computation, 1994.

    Example:
        >>> x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0]])
        >>> half_square = lambda z, y: ((z - y) ** 2).sum() / 2
        >>> hvp(nn.Linear(2, 1, bias=False), half_square, x, y, torch.tensor([1.0, 1.0]))
        tensor([3., 6.])
    """
    return hessian(model, loss, x, y, frozen=frozen) @ floats("v", v)


def _shaped(name: str, v: Tensor, shape: torch.Size) -> Tensor:
    if floats(name, v).shape != shape:
        raise ValueError(f"{name} must have the shape {tuple(shape)}, got {tuple(v.shape)}")
    return v
