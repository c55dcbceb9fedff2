r"""The field of a unit as gradients see it: what the network does, not what its layers say.

For inputs $x$ that are drawn and weights $v$ over the channels of the unit $u$, drawn too,

$$g = \frac{\partial}{\partial x} \sum_c v_c\, u_c(x), \qquad
\mathrm{effective}_j \propto \sqrt{\textstyle\sum_{c'} \overline{g_{c' j}^2}} .$$

An input was seen if its gradient is not zero in some draw. One draw shows part of the field only:
units are switched off, and max pooling has losers; so it is repeated until nothing new turns up.
Double precision, since at the rim of a deep network's field gradients are tiny.
"""

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vademecum.convolution.receptive._layouts import FeatureMap
from vademecum.models import ModelState, map_tensors, named_tensors, recorded
from vademecum.randomness import source

__all__ = ["Seen", "probe"]

LEAST, MOST = 3, 60
"""How many draws there are, whether anything is left to be seen or not."""
IDLE = 6
"""After how many draws in a row that show nothing new one stops."""


class Seen(NamedTuple):
    """What gradients showed of a field."""

    effective: Tensor
    mask: Tensor
    draws: int


def probe(
    model: nn.Module,
    x: Any,
    unit: tuple[int, ...],
    at: FeatureMap,
    axes: tuple[int, ...],
    *,
    wanted: Tensor | None,
    generator: torch.Generator | None,
) -> Seen:
    """Draw until the field is full, or nothing new turns up.

    Args:
        model: The module.
        x: An input, which is the first draw; the others have its mean and its deviation, or are
            permutations of whole numbers.
        unit: The position of the unit.
        at: The feature map that it is in.
        axes: The axes of the input that are positions.
        wanted: The positions that there are to be seen, if known.
        generator: Where random numbers come from; torch's global generator by default.
    """
    state, total, idle, draw = ModelState(model, dtype=torch.float64), None, 0, 0
    for draw in range(MOST):
        chance = _Chance(generator, again=draw > 0)
        with torch.inference_mode(False), torch.enable_grad():
            squares = state.run(_squares, model, chance.input(x), unit, at, chance)
        found = squares.sum([a for a in range(squares.ndim) if a not in axes])
        total = found if total is None else total + found
        idle = 0 if bool(((found > 0) & (total - found <= 0)).any()) else idle + 1
        full = wanted is not None and bool((total > 0)[wanted.to(total.device)].all())
        if draw + 1 >= LEAST and (full or idle >= IDLE):
            break
    assert total is not None
    size = total.sqrt()
    return Seen((size / size.sum().clamp(min=1e-300)).cpu(), (total > 0).cpu(), draw + 1)


class _Chance:
    """Inputs and weights of one draw."""

    def __init__(self, generator: torch.Generator | None, *, again: bool):
        self.generator, self.again = generator, again

    def normal(self, like: Tensor) -> Tensor:
        where = source(self.generator, like.device)
        return torch.randn(like.shape, dtype=torch.float64, **where).to(like.device)

    def input(self, x: Any) -> Any:
        """The input in double precision, another one at its place if that is wanted."""
        looked_at = next(t for _, t in named_tensors(x))
        return map_tensors(x, lambda t: self._like(t) if t is looked_at else _kept(t))

    def _like(self, t: Tensor) -> Tensor:
        if t.is_floating_point():
            t = t.detach().double()
            if self.again:
                scale = t.std(correction=0)
                t = t.mean() + torch.where(scale > 0, scale, 1.0) * self.normal(t)
            return t.clone().requires_grad_()
        if self.again:
            order = torch.randperm(t.numel(), **source(self.generator, t.device)).to(t.device)
            return t.flatten()[order].view_as(t)
        return t.clone()


def _kept(t: Tensor) -> Tensor:
    return t.detach().to(torch.float64 if t.is_floating_point() else None, copy=True)


def _squares(
    model: nn.Module, x: Any, unit: tuple[int, ...], at: FeatureMap, chance: _Chance
) -> Tensor:
    """Squares of the gradients at the input, or where whole numbers become vectors."""
    given = next(t for _, t in named_tensors(x))
    leaves = _Vectors(given)
    with nullcontext() if given.is_floating_point() else leaves:
        run = recorded(model, x)
    y = next(v.tensor for call in run.calls for v in call.outputs
             if v is not None and v.index == at.value.index)  # fmt: skip
    place: list[Any] = [slice(None)] * y.ndim
    if at.examples is not None:
        place[at.examples] = 0
    for axis, i in zip(at.axes, unit, strict=True):
        place[axis] = i
    u = y[tuple(place)]
    inputs = [given] if given.is_floating_point() else leaves.found
    total = torch.zeros(given.shape, dtype=torch.float64, device=given.device)
    if not u.requires_grad or not inputs:
        return total
    grads = torch.autograd.grad(u, inputs, chance.normal(u).to(u.dtype), allow_unused=True)
    for g in grads:
        if g is not None and g.numel() % total.numel() == 0:
            total += g.detach().square().reshape(*total.shape, -1).sum(-1)
    return total


class _Vectors(TorchFunctionMode):
    """While it is entered, notes the real tensors that are made of whole numbers in the input."""

    def __init__(self, given: Tensor):
        super().__init__()
        self.known, self.found = [given], list[Tensor]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and any(a is known for a in args for known in self.known):
            if not out.is_floating_point():
                self.known += [out] if out.numel() == self.known[0].numel() else []
            elif not out.requires_grad:
                self.found.append(out.requires_grad_())
        return out
