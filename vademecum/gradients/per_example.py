r"""Per-example gradients: the gradient of every example's loss, not only of their sum.

For examples $(x_i, y_i)$ and a loss $\ell$ the rows

$$g_i = \nabla_\theta\, \ell(f(\theta, x_i), y_i) \in \mathbb{R}^P, \qquad i = 1, \dots, n,$$

come from one forward and one backward pass over all examples, which bring to each layer what the
rules of `vademecum.gradients.layer_rules` need, if these cover the model; else from `torch.func`,
as the gradient for one example, mapped over all. The two agree up to rounding.
"""

from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.utils.data import default_collate

from vademecum.arrays import empty
from vademecum.gradients.functional import Functional, functional
from vademecum.gradients.inputs import count_examples, named_tensors, rows
from vademecum.gradients.layer_rules import RULES
from vademecum.gradients.recorded_pass import Call, Pass, record, study

__all__ = ["fill", "mapped", "passes", "per_example_gradients", "places", "summed"]

_PORTION = 2**27  # bytes at a time for `torch.func`, and for gradients that are added to others
Loss = Callable[[Any, Any], Tensor]


def per_example_gradients(
    model: nn.Module,
    loss: Loss,
    x: Any,
    y: Shaped[Tensor, " n ..."],
    *,
    frozen: bool = True,
) -> Float[Tensor, " n P"]:
    r"""The gradient $\nabla_\theta \ell(f(\theta, x_i), y_i)$ of each example's loss.

    The model is taken in evaluation mode and never changed.

    Args:
        model: Any module whose examples do not influence each other in evaluation mode.
        loss: A function of outputs and targets with one number for a batch of one example, such as
            `torch.nn.functional.cross_entropy`; the reduction does not matter.
        x: The inputs, a tensor, tuple or dict, with the examples along the first axis.
        y: The targets, likewise.
        frozen: Whether parameters that require no gradient count, too.

    Returns:
        The gradients in the order of `functional(model).theta`; its `unravel` splits them by
        parameter.

    Raises:
        ValueError: If there are no examples or no parameters, or nothing differentiable, or the
            examples influence each other.

    References:
        Goodfellow, Efficient per-example gradient computations, arXiv:1510.01799, 2015.
        Dangel, Kunstner and Hennig, BackPACK: packing more into backprop, ICLR, 2020.

    Example:
        >>> model = nn.Linear(2, 1, bias=False)
        >>> x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.zeros(2, 1)
        >>> per_example_gradients(model, lambda z, y: z - y, x, y)
        tensor([[1., 2.], [3., 4.]])
    """
    f = functional(model, frozen=frozen)
    n = count_examples(x, y)
    gradients = empty(n, f.size, dtype=f.dtype, device=f.device)
    for here, done, b in passes(f, loss, x, y):
        if done is not None:
            fill(done, b, places(f, gradients[here, None]))
            continue
        found = mapped(f, summed(loss), rows(x, itemgetter(here)), y[here])
        for name, view in places(f, gradients[here]).items():
            view.copy_(found[name])
    return gradients


def passes(
    f: Functional, loss: Loss, x: Any, y: Tensor
) -> Iterator[tuple[slice, Pass | None, list[Tensor | None]]]:
    """Portions of the examples, each with its pass and what came back to the layers.

    Instead of a pass there is None where the layers' rules do not cover the model.
    """
    everything, plan = slice(0, count_examples(x, y)), study(f, x)
    few = max(1, _PORTION // (f.size * f.dtype.itemsize + plan.saved))
    for here in _portions(everything, plan.step(f.device) if plan.covered else few):
        done = record(f, rows(x, itemgetter(here))) if plan.covered else None
        if done is None:
            yield from ((part, None, []) for part in _portions(here, few))
            continue
        with torch.enable_grad():
            output = done.output.detach().requires_grad_()
            (u,) = torch.autograd.grad(_losses(loss, output, y[here]).sum(), output)
        yield here, done, done.backward(u[None])


def _portions(here: slice, step: int) -> Iterator[slice]:
    starts = range(here.start, here.stop, step)
    return (slice(start, min(start + step, here.stop)) for start in starts)


def _losses(loss: Loss, output: Tensor, y: Tensor) -> Float[Tensor, " n"]:
    """The loss of each example by itself, whatever reduction the loss function has."""
    try:
        losses = torch.func.vmap(loss)(output[:, None], y[:, None])
    except (RuntimeError, ValueError):  # it cannot be mapped, or is at fault itself
        pairs = zip(output.split(1), y.split(1), strict=True)
        losses = torch.stack([_one_number(loss(*pair)) for pair in pairs])
    _one_number(losses[0])
    if not losses.requires_grad:
        raise ValueError("loss must be differentiable, and this one is constant")
    return losses.flatten()


def summed(loss: Loss) -> Loss:
    """The loss as one number without axes."""
    return lambda output, y: _one_number(loss(output, y)).sum()


def _one_number(loss: Tensor) -> Tensor:
    if not isinstance(loss, Tensor):
        raise ValueError(f"loss must give one number as a tensor, got {type(loss).__name__}")
    if not loss.is_floating_point() or loss.numel() != 1:
        raise ValueError(
            f"loss must give one number for one example, got {loss.dtype} of shape"
            f" {tuple(loss.shape)}"
        )
    return loss


def fill(done: Pass, found: list[Tensor | None], into: dict[str, Tensor]) -> None:
    """Write the gradients of `g` backward passes, as `(n, g, *shape)`, by the layers' rules.

    The largest first: its rule runs in parallel, and is the first to touch most of the memory.
    """
    written: set[str] = set()
    layers = sorted(zip(done.calls, found, strict=True), key=_size, reverse=True)
    for call, b in layers:
        names = {own: name for own, name in call.names.items() if name in into}
        if not names or b is None:
            continue
        again = {own: name for own, name in names.items() if name in written}
        row = sum(into[name][0].nbytes for name in again.values())
        step = max(1, _PORTION // row) if again else len(call.a)
        for here in _portions(slice(0, len(call.a)), step):
            there = {own: into[name][here] for own, name in names.items()}
            out = there | {own: torch.empty_like(there[own]) for own in again}
            RULES[type(call.module)](call.module, call.a[here].detach(), b[:, here], out)
            for own in again:  # a weight that is tied or called twice
                there[own].add_(out[own])
        written |= set(names.values())
    for name in into.keys() - written:
        into[name].zero_()


def _size(layer: tuple[Call, Any]) -> int:
    return max(p.numel() for p in layer[0].module.parameters(recurse=False))


def places(f: Functional, flat: Float[Tensor, " *batch P"]) -> dict[str, Tensor]:
    """The parameters' places in rows of gradients, as views in their shapes."""
    parts = flat.split([shape.numel() for shape in f.shapes.values()], -1)
    return {
        name: part.view((*flat.shape[:-1], *shape))
        for (name, shape), part in zip(f.shapes.items(), parts, strict=True)
    }


def mapped(
    f: Functional,
    loss: Loss,
    x: Any,
    y: Tensor,
    *,
    derivative: Callable[..., Any] = torch.func.grad,
    after: Callable[[Any], Any] = lambda g: g,
) -> Any:
    """`after` of each example's derivatives by name, from `torch.func`, or else from a loop.

    The loop is one of plain backward passes, which all operations know.
    """
    parameters = {name: p.detach() for name, p in f.parameters.items()}

    def of_one(y: Tensor, *tensors: Tensor) -> Any:
        each = iter(tensors)
        one = rows(x, lambda _: next(each)[None])
        return after(derivative(lambda p: loss(f.call(p, one), y[None]))(parameters))

    tensors = [t for _, t in named_tensors(x)]
    try:
        return torch.func.vmap(of_one)(y, *tensors)
    except RuntimeError:  # an operation that cannot be mapped, or a fault of the model itself
        each = (slice(i, i + 1) for i in range(len(y)))
        found = [after(_derivative(f, loss, rows(x, itemgetter(i)), y[i])) for i in each]
        return default_collate(found)


def _derivative(f: Functional, loss: Loss, x: Any, y: Tensor) -> dict[str, Tensor]:
    """The derivatives of the loss, entry by entry, in the parameters."""
    parameters = {name: p.detach().requires_grad_() for name, p in f.parameters.items()}
    with torch.enable_grad():
        value = loss(f.call(parameters, x), y)
    pull = partial(torch.autograd.grad, inputs=list(parameters.values()), retain_graph=True,
                   materialize_grads=True)  # fmt: skip
    found = zip(*(pull(entry) for entry in value.flatten()), strict=True)
    return {
        name: torch.stack(each).view(value.shape + each[0].shape)
        for name, each in zip(parameters, found, strict=True)
    }
