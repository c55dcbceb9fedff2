r"""Group averaging: any network made invariant or equivariant, by all its answers on the orbit.

$$(S f)(x) = \frac1{|G|} \sum_{g \in G} g^{-1} f(g x)$$

is equivariant, and with outputs that do not move, $\frac1{|G|} \sum_g f(g x)$, invariant. $S$ is a
projection: it leaves just the equivariant (invariant) networks as they are. It costs $|G|$ passes,
and is exact up to rounding if the action is. The claim is `group_averaging`.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.arrays import portions
from vademecum.geometry.groups._generated import MOST
from vademecum.geometry.groups.actions import Action, default_action
from vademecum.geometry.groups.finite_groups import Group
from vademecum.models import call_arguments

__all__ = ["symmetrize"]


class Symmetrized(nn.Module):
    """A model averaged over a group; `model` is the one inside."""

    def __init__(
        self,
        model: nn.Module,
        group: Group,
        action: Action | None,
        out_action: Action | None,
        memory: int | None,
    ):
        super().__init__()
        self.model, self.group, self.memory = model, group, memory
        self.action, self.out_action = action, out_action

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The average of what the model gives on the orbit of its input.

        Args:
            args: What the model takes; tensors have examples along the first axis.
            kwargs: What it takes by name.
        """
        x: Any = kwargs if kwargs else args[0] if len(args) == 1 else args
        if args and kwargs:
            raise ValueError("inputs must be all by place or all by name, so that they can move")
        move = self.action or default_action(self.group, x)
        elements = list(self.group)
        if not isinstance(x, Tensor) or not getattr(move, "examples", True):
            return self._mean([self._answers(x, [g], move) for g in elements])
        each = 2 * x.numel() * x.element_size()  # a moved input, alone and within the batch
        room = each * len(elements) if self.memory is None else self.memory
        some = [elements[part] for part in portions(len(elements), each=each, memory=room)]
        return self._mean([self._answers(x, few, move) for few in some])

    def _answers(self, x: Any, elements: list[int], move: Action) -> Tensor:
        """The sum of the answers for some elements, which pass through the model together."""
        moved = [move(g, x) for g in elements]
        alike = len({t.shape for t in moved if isinstance(t, Tensor)}) == 1
        if len(moved) > 1 and alike:
            y = _rows(self.model(torch.cat(moved)), sum(map(len, moved))).chunk(len(elements))
        else:
            calls = [call_arguments(z) for z in moved]
            y = [_rows(self.model(*args, **kwargs)) for args, kwargs in calls]
        if self.out_action is not None:
            back = [self.group.inverse(g) for g in elements]
            y = [self.out_action(g, each) for g, each in zip(back, y, strict=True)]
        return _sum(y)

    def _mean(self, sums: list[Tensor]) -> Tensor:
        return _sum(sums) / self.group.order

    def extra_repr(self) -> str:
        """The group."""
        return f"group={self.group}"


def _rows(y: Any, n: int | None = None) -> Tensor:
    """The output of a model, if it is a tensor, and has n rows where that matters."""
    if not isinstance(y, Tensor):
        raise ValueError(f"model must give a tensor, got {type(y).__name__}")
    if n is not None and y.shape[:1] != (n,):
        raise ValueError(
            f"model must give one output for each of {n} examples, got shape {tuple(y.shape)}"
        )
    return y


def _sum(answers: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape."""
    shapes = {tuple(y.shape): None for y in answers}
    if len(shapes) > 1:
        first, other, *_ = shapes
        raise ValueError(
            f"outputs must have one shape for all elements to be averaged, got {first} and {other}"
        )
    return reduce(torch.add, answers)


def symmetrize(
    model: nn.Module,
    group: Group,
    *,
    action: Action | None = None,
    out_action: Action | None = None,
    memory: int | None = None,
) -> nn.Module:
    """The model averaged over a group, as a module that shares its parameters.

    Args:
        model: Any module that gives a tensor. Moved inputs pass through it as one batch, if they
            are one tensor; so batch normalisation, while training, sees the whole orbit.
        group: The group, of at most 4096 elements.
        action: How an element moves an input, a function of both; by default images are turned by
            a cyclic or dihedral group, graphs get other numbers for their nodes, and of anything
            else the points lie along axis 1.
        out_action: How it moves outputs; by default these stay, so that the result is invariant.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. They
            are for moved inputs, one of which there is in any case; what a pass of the model takes
            is its own business.

    Raises:
        ValueError: If the group is too large.

    Example:
        >>> net = nn.Sequential(nn.Flatten(), nn.Linear(3, 2, bias=False), nn.Tanh())
        >>> invariant = symmetrize(net, Group.symmetric(3))
        >>> x = torch.tensor([[1.0, 2.0, 5.0], [5.0, 1.0, 2.0]])
        >>> y = invariant(x)
        >>> torch.allclose(y[0], y[1])
        True
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be an nn.Module, got {type(model).__name__}")
    if group.order > MOST:
        raise ValueError(f"group must have at most {MOST} elements to average over, got {group}")
    if memory is not None:
        whole("memory", memory, low=1)
    return Symmetrized(model, group, action, out_action, memory)
