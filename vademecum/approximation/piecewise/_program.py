r"""A piecewise-linear network as a program of steps, run on points or on sets of points.

A network whose steps are affine maps, kinks and maxima (`vademecum.approximation.piecewise._maps`)
is affine on every set of inputs that share the pieces of all its units. The pieces at $x$ make up
its **activation pattern** $\kappa(x)$, and with the pattern held fixed all steps are affine:

$$h \mapsto \operatorname{diag}(a_\kappa)\, h + c_\kappa, \qquad h \mapsto L h + c .$$

So a set of inputs $\{x_0 + \sum_i s_i d_i\}$ is carried through the network as **columns**: the
image of $x_0$ in column 0, and those of the directions $d_i$, to which nothing is ever added, in
columns $1, \dots, m$.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.approximation.piecewise._maps import Affine, Kinks, Largest, PiecewiseMap

__all__ = ["Program", "Step", "on_piece"]


class Step(NamedTuple):
    """One step: the submodule or function it comes from, and the values that it reads and makes."""

    name: str
    map: PiecewiseMap
    inputs: tuple[int, ...]
    output: int


class Program:
    """The steps of a network in the order of their evaluation; values go by number.

    Args:
        steps: The steps.
        source: The input.
        result: The output.
        shapes: Those of all values, for one example.
    """

    def __init__(self, steps: list[Step], source: int, result: int, shapes: dict[int, tuple]):
        self.steps, self.source, self.result, self.shapes = steps, source, result, shapes
        last = {name: i for i, step in enumerate(steps) for name in step.inputs}
        last[result] = len(steps)
        self.dead_after = [[n for n, at in last.items() if at == i] for i in range(len(steps))]

    @property
    def width(self) -> int:
        """The most numbers that one step reads or makes for an example."""
        return max(torch.Size(shape).numel() for shape in self.shapes.values())

    @property
    def total(self) -> int:
        """The numbers that all steps make for an example."""
        return sum(torch.Size(shape).numel() for shape in self.shapes.values())

    def run(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The output for a batch, and the pieces of all units, which carry no gradient."""
        values, found = {self.source: x}, []
        for step, dead in zip(self.steps, self.dead_after, strict=True):
            inputs = [values[name] for name in step.inputs]
            if isinstance(step.map, Affine):
                values[step.output] = step.map(*inputs)
            else:
                (h,) = inputs
                found.append(step.map.piece(h.detach()))
                values[step.output] = on_piece(step.map, h, found[-1])
            for name in dead:
                del values[name]
        return values[self.result], found

    def columns(self, step: Step, inputs: list[Tensor], piece: Tensor | None = None) -> Tensor:
        """Carry columns, `(batch, 1 + m, *shape)`, through a step with the given piece."""
        if isinstance(step.map, Affine):
            n, m = inputs[0].shape[:2]
            out = step.map.linear(*(h.flatten(0, 1) for h in inputs)).unflatten(0, (n, m))
            if step.map.offset is not None:
                out[:, :1] += step.map.offset
            return out
        assert piece is not None
        return on_piece(step.map, inputs[0], piece[:, None], columns=True)


def on_piece(unit: Kinks | Largest, h: Tensor, piece: Tensor, *, columns: bool = False) -> Tensor:
    """A unit on its piece; with columns, the intercept is for column 0 alone."""
    if isinstance(unit, Largest):
        return h.gather(-1, piece.expand(h.shape[:-1]).long()[..., None])[..., 0]
    out, intercept = h * unit.slope(piece), unit.intercept(piece)
    if intercept is None:
        return out
    if not columns:
        return out + intercept
    out[:, :1] += intercept
    return out
