r"""Products of a network's derivatives with vectors, for the cost of a few passes.

With $J = \partial f / \partial \theta$ (or $\partial f / \partial x$) the Jacobian and $H =
\nabla_\theta^2\, \ell(f(\theta, x), y)$ the Hessian of the loss,

$$\mathrm{jvp}: v \mapsto J v, \qquad \mathrm{vjp}: u \mapsto J^T u, \qquad
\mathrm{hvp}: v \mapsto H v = \nabla_\theta \langle \nabla_\theta \ell, v \rangle.$$

The last is a backward pass through the gradient's graph. As an operator, `hessian` keeps that
graph, so that a product costs the second backward pass alone. Exact up to rounding, with autograd's
convention at kinks: the second derivative of a ReLU is zero.
"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import floats
from vademecum.foundations.operators import LinearOperator
from vademecum.gradients._one_jacobian import Jacobian, pull
from vademecum.gradients._streamed_jacobian import each_batch, insist_on_theta
from vademecum.gradients._symmetry import insist_on_symmetry
from vademecum.gradients.loss_gradient import loss_at, slope_at
from vademecum.gradients.network_function import functional
from vademecum.models import Block, Loss, MeanProducts, Output, twice_differentiable

__all__ = ["hessian", "hvp", "jvp", "vjp"]

_PASSING = 2.5  # times what the graph keeps: the peak for a residual net, a transformer and an MLP


def jvp(
    model: nn.Module,
    x: Any,
    v: Float[Tensor, " ..."],
    *,
    wrt: str = "theta",
    frozen: bool = True,
    output: Output = None,
) -> Float[Tensor, " ..."]:
    r"""The product $J v$: how the outputs move when the parameters, or inputs, move along $v$.

    For several vectors make the operator `jacobian` once.

    Args:
        model: Any module; it is never changed.
        x: Its inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches, whose examples follow each other in the outputs.
        v: The direction, shaped like `functional(model).theta`, or like the input.
        wrt: What moves: "theta", "x", or the name of one input where `x` is a mapping; "theta" for
            a loader.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The derivative, shaped like the output.

    Example:
        >>> jvp(nn.Linear(2, 1), torch.tensor([[10.0, 100.0]]), torch.tensor([1.0, 2.0, 3.0]))
        tensor([[213.]])
    """
    if isinstance(x, DataLoader):
        insist_on_theta(wrt)
        device = functional(model).device
        knobs: Any = {"frozen": frozen, "output": output}
        return torch.cat([jvp(model, part, v, **knobs) for part in each_batch(x, device)])
    J = Jacobian(model, x, wrt=wrt, frozen=frozen, output=output, graph=True)
    return (J @ _shaped("v", v, J.variable.shape).flatten()).view_as(J.output)


def vjp(
    model: nn.Module,
    x: Any,
    u: Float[Tensor, " ..."],
    *,
    wrt: str = "theta",
    frozen: bool = True,
    output: Output = None,
) -> Float[Tensor, " ..."]:
    r"""The product $J^T u$: the gradient of $\langle u, f \rangle$ in the parameters, or inputs.

    For several vectors make the operator `jacobian` once.

    Args:
        model: Any module; it is never changed.
        x: Its inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches, whose examples follow each other in the outputs.
        u: The weights of the outputs, shaped like these.
        wrt: In what to differentiate: "theta", "x", or the name of one input where `x` is a
            mapping; "theta" for a loader.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The gradient, shaped like `functional(model).theta`, or like the input.

    Example:
        >>> vjp(nn.Linear(2, 1), torch.tensor([[10.0, 100.0]]), torch.tensor([[2.0]]))
        tensor([ 20., 200.,   2.])
    """
    if isinstance(x, DataLoader):
        insist_on_theta(wrt)
        return _over_batches(model, x, floats("u", u), frozen, output)
    J = Jacobian(model, x, wrt=wrt, frozen=frozen, output=output, graph=True)
    u = _shaped("u", u, J.output.shape).to(J.dtype)
    return (J.T @ u.flatten()).view_as(J.variable)


def _over_batches(
    model: nn.Module, x: Any, u: Tensor, frozen: bool, output: Output
) -> Float[Tensor, " P"]:
    """The sum of the products of batches with their rows of u."""
    total, start = None, 0
    for part in each_batch(x, functional(model).device):
        J = Jacobian(model, part, frozen=frozen, output=output, graph=True)
        rows, start = u[start : start + len(J.output)], start + len(J.output)
        found = J.T @ _shaped("u", rows, J.output.shape).to(J.dtype).flatten()
        total = found if total is None else total + found
    assert total is not None
    if start != len(u):
        raise ValueError(f"u must have {start} rows like the outputs, got {len(u)}")
    return total


def hessian(
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
    r"""The Hessian of the loss in the parameters, as an operator that keeps its graph.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed.

    Args:
        model: Any module.
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
        The symmetric operator $H \in \mathbb{R}^{P \times P}$. The memory of the graph, of which a
        loader has none, is free again when the operator is gone.

    Raises:
        ValueError: If there are no parameters, or the loss is not one number, or nothing is
            differentiable; at the first product with a model, if that is not symmetric, since an
            operation has a wrong second derivative; at any, if a loader brings other examples than
            before.
        RuntimeError: If the model recomputes activations (`torch.utils.checkpoint`).

    Example:
        >>> x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0]])
        >>> half_square = lambda z, y: ((z - y) ** 2).sum() / 2
        >>> H = hessian(nn.Linear(2, 1, bias=False), x, y, loss=half_square)
        >>> H.dense()
        tensor([[1., 2.], [2., 4.]])
    """
    f = functional(model, frozen=frozen, output=output)
    theta, slope = f.theta.detach().requires_grad_(), partial(slope_at, f, loss=loss)

    def block(x: Any, y: Any) -> Block:
        with twice_differentiable(losses=True):
            return partial(pull, theta, slope(theta, x, y, graph=True))

    value = partial(loss_at, f, theta, loss=loss)
    knobs: Any = {"passing": _PASSING, "memory": memory, "progress": progress}
    plain = MeanProducts(theta, x, y, block, value=value, **knobs)

    def gradient(theta: Tensor) -> Tensor:
        return plain.mean(partial(slope, theta), theta)

    def product(v: Tensor) -> Tensor:
        found = plain(v)
        insist_on_symmetry(f, gradient, plain, v, found)
        return found

    return LinearOperator((f.size, f.size), product, product, dtype=f.dtype, device=f.device)


def hvp(
    model: nn.Module,
    x: Any,
    y: Any,
    v: Float[Tensor, " P *columns"],
    *,
    loss: Loss | None = None,
    memory: int | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> Float[Tensor, " P *columns"]:
    r"""The product $H v$ of the loss's Hessian with a vector, or with the columns of a block.

    For products one after the other make the operator `hessian` once.

    Args:
        model: Any module; it is never changed.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels", whose losses count by
            their numbers of terms, or of examples where the loss is none of torch's. A loader is
            run through at each product; processes of `torchrun` share it.
        y: The targets.
        v: A vector shaped like `functional(model).theta`, or a block of such columns.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. Where
            there is no room for the graph of all examples they go through in portions at each
            product, if they do not influence each other.
        progress: Whether to show a progress bar on standard error. It counts batches.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    References:
        Pearlmutter, Fast exact multiplication by the Hessian, Neural Computation, 1994.

    Example:
        >>> x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0]])
        >>> half_square = lambda z, y: ((z - y) ** 2).sum() / 2
        >>> hvp(nn.Linear(2, 1, bias=False), x, y, torch.tensor([1.0, 1.0]), loss=half_square)
        tensor([3., 6.])
    """
    knobs: Any = {"memory": memory, "progress": progress, "frozen": frozen, "output": output}
    return hessian(model, x, y, loss=loss, **knobs) @ floats("v", v)


def _shaped(name: str, v: Tensor, shape: torch.Size) -> Tensor:
    if floats(name, v).shape != shape:
        raise ValueError(f"{name} must have the shape {tuple(shape)}, got {tuple(v.shape)}")
    return v
