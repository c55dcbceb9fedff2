r"""Norms of per-example gradients, without the gradients where a layer allows it.

The norm of an example's gradient is known from those of its parts, layer by layer:

$$\|g_i\|^2 = \sum_l \|\nabla_{W_l} \ell_i\|^2, \qquad
\Big\|\sum_t b_t a_t^T\Big\|^2 = \sum_{t, u} \langle a_t, a_u \rangle \langle b_t, b_u \rangle.$$

So a linear layer needs the norms of what went in and came back alone, and a convolution or a layer
over time their Gram matrices, which are taken where they are smaller than the gradient; also for
weights that are used more than once, whose gradient is a sum (an embedding and the head that shares
its matrix). Other gradients are formed, and so are all for models that the layers' rules do not
cover; even then only those of a few examples at a time.

Squares are added in single precision at least, and so are the norms of models in half precision,
whose range a norm may well leave.

The norms agree with those of `per_example_gradients` up to rounding. A Gram matrix rounds squares:
where the terms of $\sum_t$ cancel, a norm may be off by the root of the machine precision, times
what it would be if they did not.
"""

from collections.abc import Iterator
from functools import partial, reduce
from math import prod
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arrays import portions
from vademecum.gradients._example_passes import (
    over_batches,
    passes,
)
from vademecum.gradients._layer_calls import LayerCall
from vademecum.gradients._layer_rules import gram_is_smaller, squared_norm
from vademecum.gradients._recorded_pass import Pass
from vademecum.gradients.network_function import Functional
from vademecum.models import (
    Loss,
    Output,
    count_examples,
    example_loss,
    map_tensors,
    mapped_derivatives,
    summed,
    targets_of,
)

__all__ = ["gradient_norms"]

_PORTION = 2**26  # bytes of gradients at a time
_ONE_BY_ONE = {"cpu"}  # devices where layers that are taken together would not pay
_TOGETHER = 2**28  # bytes of what went in and came back, for layers that are taken together


def gradient_norms(
    model: nn.Module,
    x: Any,
    y: Shaped[Tensor, " n ..."] | None = None,
    *,
    loss: Loss | None = None,
    memory: int | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> Float[Tensor, " n"]:
    r"""The norm $\|\nabla_\theta \ell(f(\theta, x_i), y_i)\|_2$ of each example's gradient.

    The model is taken in evaluation mode and never changed.

    Args:
        model: Any module whose examples do not influence each other in evaluation mode.
        x: The inputs, a tensor or any structure of tensors (see `functional`), with the examples
            along the first axis; or a `DataLoader` of batches `(x, y)`, or of mappings with the
            targets in "labels", for norms in its order.
        y: The targets, likewise.
        loss: A function of outputs and targets with one number for a batch of one example, whose
            reduction does not matter; by default the cross-entropy for integer targets and the mean
            squared error for others.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The norms in the dtype of `functional(model).theta`, or in single precision for models in
        half precision.

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
    if isinstance(x, DataLoader):
        each = partial(gradient_norms, model, loss=loss, memory=memory, frozen=frozen,
                       output=output)  # fmt: skip
        return over_batches(each, model, x, y, progress=progress)
    f, y = Functional(model, frozen=frozen, output=output), targets_of(y)
    loss = example_loss(y, loss)
    squares = torch.empty(count_examples(x, y), dtype=_wide(f.dtype), device=f.device)
    for here, done, b in passes(f, loss, x, y, memory, progress=progress):
        if done is None:
            portion = map_tensors(x, itemgetter(here))
            squares[here] = mapped_derivatives(
                f, summed(loss), portion, y[here], after=_sum_of_squares
            )
        else:
            squares[here] = _by_layers(f, done, b)
    return squares.clamp(min=0).sqrt()  # a Gram matrix may round to below zero


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _sum_of_squares(gradients: dict[str, Tensor]) -> Tensor:
    wide = reduce(torch.promote_types, (g.dtype for g in gradients.values()), torch.float32)
    return torch.stack([g.to(wide).square().sum() for g in gradients.values()]).sum()


def _by_layers(f: Functional, done: Pass, found: list[Tensor | None]) -> Tensor:
    wide = _wide(f.dtype)
    uses: dict[str, list[_Use]] = {}
    for call, b in zip(done.calls, found, strict=True):
        for own, name in call.names.items():
            if b is not None:
                a = call.a.detach()
                a = a.to(wide) if a.is_floating_point() else a
                uses.setdefault(name, []).append(_Use(call, own, a, b.to(wide)))
    n = len(done.output)
    total = torch.zeros(n, dtype=wide, device=f.device)
    for shape, each in _taken_together(f, uses):
        times = sum(prod(use.b.shape[use.call.rule.times]) for use in each)
        factors = all(use.own == "weight" and use.call.rule.factors for use in each)
        if factors and gram_is_smaller(times, shape.numel()):
            squares = squared_norm([use.factors() for use in each])
        else:
            squares = _formed(each, shape, total.new_empty(each[0].b.shape[1]))
        total += squares.view(-1, n).sum(0)
    return total


class _Use(NamedTuple):
    """One use of a parameter, with what went in and came back in enough precision for squares."""

    call: LayerCall
    own: str
    a: Tensor
    b: Tensor

    def factors(self) -> Any:
        assert self.call.rule.factors
        return self.call.rule.factors(self.call.layer, self.a, self.b)

    def kind(self) -> Any:
        """What uses agree in that can be taken together, if they can."""
        rule, settings = self.call.rule, self.call.rule.settings
        if settings is None or self.a.device.type in _ONE_BY_ONE:
            return None
        more = (getattr(self.call.layer, name) for name in settings)
        return rule.gradient, self.own, self.a.shape, self.b.shape, *more


def _taken_together(
    f: Functional, uses: dict[str, list[_Use]]
) -> Iterator[tuple[torch.Size, list[_Use]]]:
    """The uses of each parameter; those of several as if they were one with more examples."""
    groups: dict[Any, list[list[_Use]]] = {}
    for name, each in uses.items():
        kind = each[0].kind() if len(each) == 1 else None
        groups.setdefault((f.shapes[name], kind or name), []).append(each)
    for (shape, _), group in groups.items():
        size = sum(t.numel() * t.element_size() for t in group[0][0][2:])
        for here in portions(len(group), each=size, memory=_TOGETHER):
            first, *others = group[here]
            if others:
                alike = [use for (use,) in group[here]]
                a = first[0].a if first[0].own == "bias" else torch.cat([use.a for use in alike])
                first = [first[0]._replace(a=a, b=torch.cat([use.b for use in alike], 1))]
            yield shape, first


def _formed(uses: list[_Use], shape: torch.Size, like: Tensor) -> Tensor:
    """The squared norms for a parameter whose gradient is formed, of a few examples at a time."""
    squares = torch.empty_like(like)
    for here in portions(len(like), each=like.itemsize * shape.numel(), memory=_PORTION):
        out = like.new_empty(here.stop - here.start, 1, *shape)
        for i, (call, own, a, b) in enumerate(uses):
            call.rule.gradient(call.layer, a[here], b[:, here], {own: out}, add=i > 0)
        squares[here] = out.flatten(1).square().sum(1)
    return squares
