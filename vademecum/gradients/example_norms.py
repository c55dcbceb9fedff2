r"""Norms of per-example gradients, without the gradients where a layer allows it.

The norm of an example's gradient is known from those of its parts, layer by layer:

$$\|g_i\|^2 = \sum_l \|\nabla_{W_l} \ell_i\|^2, \qquad
\Big\|\sum_t b_t a_t^T\Big\|^2 = \sum_{t, u} \langle a_t, a_u \rangle \langle b_t, b_u \rangle.$$

So a linear layer needs the norms of what went in and came back alone, and a convolution or a layer
over time their Gram matrices, which are taken where they are smaller than the gradient. The
gradient of a parameter that is used more than once is a sum and must be formed, and so must all for
models that the layers' rules do not cover; even then only those of a few examples at a time.

The norms agree with those of `per_example_gradients` up to rounding. A Gram matrix rounds squares:
where the terms of $\sum_t$ cancel, a norm may be off by the root of the machine precision, times
what it would be if they did not.
"""

from collections import Counter
from operator import itemgetter
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vademecum.gradients._example_passes import fill, mapped, passes, summed
from vademecum.gradients._layer_rules import squared_norm
from vademecum.gradients._recorded_pass import Pass
from vademecum.gradients.network_function import Functional, functional
from vademecum.models import Loss, count_examples, loss_for, map_tensors

__all__ = ["gradient_norms"]

_PORTION = 2**26  # bytes of gradients at a time


def gradient_norms(
    model: nn.Module,
    x: Any,
    y: Shaped[Tensor, " n ..."],
    *,
    loss: Loss | None = None,
    memory: int | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: str | int | None = None,
) -> Float[Tensor, " n"]:
    r"""The norm $\|\nabla_\theta \ell(f(\theta, x_i), y_i)\|_2$ of each example's gradient.

    The model is taken in evaluation mode and never changed.

    Args:
        model: Any module whose examples do not influence each other in evaluation mode.
        x: The inputs, a tensor, tuple or dict, with the examples along the first axis.
        y: The targets, likewise.
        loss: A function of outputs and targets with one number for a batch of one example, whose
            reduction does not matter; by default the cross-entropy for integer targets and the mean
            squared error for others.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: Which entry of the outputs counts, where the model gives several: its name, or its
            place in a tuple. Of an object with `.logits` these count by default.

    Raises:
        ValueError: If there are no examples or no parameters, or nothing differentiable, or the
            examples influence each other.

    References:
        Goodfellow, Efficient per-example gradient computations, arXiv:1510.01799, 2015.
        Li, Tramèr, Liang and Hashimoto, Large language models can be strong differentially private
        learners, ICLR, 2022.

    Example:
        >>> x, y = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.zeros(2, 1)
        >>> gradient_norms(nn.Linear(2, 1, bias=False), x, y, loss=lambda z, y: z - y)
        tensor([5., 0.])
    """
    f, loss = functional(model, frozen=frozen, output=output), loss_for(y, loss)
    squares = torch.empty(count_examples(x, y), dtype=f.dtype, device=f.device)
    for here, done, b in passes(f, loss, x, y, memory, progress=progress):
        if done is None:
            portion = map_tensors(x, itemgetter(here))
            squares[here] = mapped(f, summed(loss), portion, y[here], after=_sum_of_squares)
        else:
            squares[here] = _by_layers(f, done, b)
    return squares.clamp(min=0).sqrt()  # a Gram matrix may round to below zero


def _sum_of_squares(gradients: dict[str, Tensor]) -> Tensor:
    return torch.stack([g.square().sum() for g in gradients.values()]).sum()


def _by_layers(f: Functional, done: Pass, b: list[Tensor | None]) -> Tensor:
    used = [(call, each) for call, each in zip(done.calls, b, strict=True) if each is not None]
    uses = Counter(name for call, _ in used for name in call.names.values())
    total = torch.zeros(len(done.output), dtype=f.dtype, device=f.device)
    for call, each in used:
        once = {own: f.parameters[name] for own, name in call.names.items() if uses[name] == 1}
        total += squared_norm(call.module, call.a.detach(), each, once)
    shapes = {name: f.shapes[name] for name, count in uses.items() if count > 1}
    return total + _of_sums(done, b, shapes, total) if shapes else total


def _of_sums(
    done: Pass, b: list[Tensor | None], shapes: dict[str, torch.Size], like: Tensor
) -> Tensor:
    """The squared norms for parameters that are used more than once, a few examples at a time."""
    squares = torch.zeros_like(like)
    step = max(1, _PORTION // (like.itemsize * sum(shape.numel() for shape in shapes.values())))
    for start in range(0, len(like), step):
        here = slice(start, start + step)
        few = done._replace(calls=[call._replace(a=call.a[here]) for call in done.calls])
        gradients = {
            name: like.new_empty(len(like[here]), 1, *shape) for name, shape in shapes.items()
        }
        fill(few, [None if each is None else each[:, here] for each in b], gradients)
        squares[here] = sum(g.flatten(1).square().sum(1) for g in gradients.values())
    return squares
