r"""Units that never move: dead on the data, or certainly dead on a whole box of inputs.

A unit is **dead** on some inputs if its slope is zero at all of them; a ReLU if it is inactive on
all. Then no gradient reaches its incoming weights, and gradient descent on these inputs leaves it
dead as long as the layers below do not move it back (claim `dead_relu`). A ReLU that is dead on the
data contributes zero there, and can be removed without changing what the network does on them.

That data found a unit dead says nothing about other inputs. Bounds do: if the entries of $h$ lie
within $r$ of a centre $c$, those of $L h + c_0$ lie within $|L| r$ of $L c + c_0$; kinks and maxima
are applied to the ends of intervals. A unit all of whose reachable pieces have slope zero is dead
on the whole box. The bounds are safe and not tight: a unit may be dead without being certified.
"""

from contextlib import closing
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.approximation.patterns import chunks, program_for
from vademecum.approximation.piecewise import Affine, Kinks, Program, on_piece, read_program
from vademecum.foundations.regions import Box
from vademecum.models import Output, batches
from vademecum.results import one_line

__all__ = ["DeadUnits", "dead_units"]

_SLACK = 1e-10  # what the bounds are widened by, relative to their size, to cover rounding


class DeadUnits(NamedTuple):
    """The units of one layer, in its shape.

    Example:
        >>> found = dead_units(nn.ReLU(), torch.tensor([[1.0, -1.0], [-1.0, -1.0]]))
        >>> found[0].name, found[0].dead.tolist()
        ('the model itself (ReLU)', [False, True])
    """

    name: str
    """The layer, as in `submodule '1' (ReLU)`."""
    dead: Bool[Tensor, " *units"]
    """Whether a unit has slope zero on all examples."""
    certified: Bool[Tensor, " *units"] | None
    """Whether it provably has on all of the box; None if none was given."""

    __repr__ = one_line


def dead_units(
    model: nn.Module,
    x: Float[Tensor, " batch *shape"] | DataLoader[Any],
    *,
    box: Box | None = None,
    output: Output = None,
    memory: int | None = None,
    progress: bool = False,
) -> list[DeadUnits]:
    """Find the units that no example activates, and those that no input of a box can activate.

    Args:
        model: Any piecewise-linear module (see `linear_regions`), taken in evaluation.
        x: Examples, one a row; or a `DataLoader` of them, whose batches come one by one.
        box: A box of flattened inputs, over which to certify.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.

    Returns:
        One entry for each layer of units with kinks, in the order of their evaluation. Units
        without a flat piece, such as leaky ReLU, are never dead.

    References:
        Lu, Shin, Su and Karniadakis, Dying ReLU and initialization: theory and numerical examples,
        Communications in Computational Physics 28, 2020.

    Example:
        >>> layer = nn.Linear(1, 3)
        >>> with torch.no_grad():  # x, x - 5 and -x - 5
        ...     _ = layer.weight.copy_(torch.tensor([[1.0], [1.0], [-1.0]]))
        ...     _ = layer.bias.copy_(torch.tensor([0.0, -5.0, -5.0]))
        >>> x, box = torch.tensor([[-1.0], [2.0]]), Box(torch.tensor([-2.0]), torch.tensor([9.0]))
        >>> found = dead_units(nn.Sequential(layer, nn.ReLU()), x, box=box)
        >>> found[0].dead.tolist(), found[0].certified.tolist()
        ([False, True, True], [False, False, True])
    """
    dead, names, first = None, [], None
    device = next((p.device for p in model.parameters()), None)
    with closing(batches(x, device=device, progress=progress)) as each:
        for part, _ in each:
            first = part if first is None else first
            if part.shape[1:] != first.shape[1:]:
                shapes = f"{tuple(first.shape[1:])} and {tuple(part.shape[1:])}"
                raise ValueError(f"x must bring examples of one shape, got {shapes}")
            names, flat = _flat_on(model, part, output, memory)
            dead = flat if dead is None else [a & b for a, b in zip(dead, flat, strict=True)]
    if dead is None or first is None:
        raise ValueError("x must hold batches, got an empty DataLoader")
    certified = [None] * len(names) if box is None else _certify(model, first, box, output)
    return [DeadUnits(*entry) for entry in zip(names, dead, certified, strict=True)]


def _flat_on(
    model: nn.Module, x: Tensor, output: Output, memory: int | None
) -> tuple[list[str], list[Tensor]]:
    """The layers with kinks, and whether slopes of their units are zero at all examples."""
    program = program_for(model, x, output)
    layers = [step for step in program.steps if not isinstance(step.map, Affine)]
    dead: list[Tensor] = []
    for part in chunks(program, x.detach(), memory):
        with torch.no_grad():
            pieces = program.run(part)[1]
        flat = [
            (step.map.slope(piece) == 0).all(0)
            for step, piece in zip(layers, pieces, strict=True)
            if isinstance(step.map, Kinks)
        ]
        dead = [a & b for a, b in zip(dead, flat, strict=True)] if dead else flat
    return [step.name for step in layers if isinstance(step.map, Kinks)], dead


@torch.no_grad()
def _certify(model: nn.Module, x: Tensor, box: Box, output: Output) -> list[Tensor]:
    shape = tuple(x.shape[1:])
    if box.low.numel() != x[0].numel():
        raise ValueError(f"box must be {x[0].numel()} wide, got {box.low.numel()}")
    low, high = (p.to(x.device, torch.float64).view(1, *shape) for p in (box.low, box.high))
    program = read_program(model, shape, low, output=output)
    return _dead_on_box(program, low, high)


def _dead_on_box(program: Program, low: Tensor, high: Tensor) -> list[Tensor]:
    found: list[Tensor] = []
    bounds = {program.source: (low, high)}
    for step in program.steps:
        ends = [bounds[name] for name in step.inputs]
        if isinstance(step.map, Affine):
            bounds[step.output] = _affine(step.map, ends)
        elif isinstance(step.map, Kinks):
            found.append(_flat(step.map, *ends[0])[0])
            bounds[step.output] = _kinks(step.map, *ends[0])
        else:
            bounds[step.output] = (ends[0][0].amax(-1), ends[0][1].amax(-1))
    return found


def _affine(unit: Affine, ends: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    centre = unit(*((low + high) / 2 for low, high in ends))
    radius = unit.radius(*((high - low) / 2 for low, high in ends))
    size = unit.radius(*(torch.maximum(low.abs(), high.abs()) for low, high in ends))
    radius = radius + _SLACK * (size + centre.abs())
    return centre - radius, centre + radius


def _flat(unit: Kinks, low: Tensor, high: Tensor) -> Tensor:
    """Whether all pieces between two ends have slope zero."""
    first, last = unit.piece(low), unit.piece(high)
    flat = torch.ones_like(low, dtype=torch.bool)
    for i, slope in enumerate(unit.slopes):
        flat &= (slope == 0) | (first > i) | (last < i)
    return flat


def _kinks(unit: Kinks, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The range over an interval: extremes are at its ends, or at thresholds inside."""
    values = [on_piece(unit, end, unit.piece(end)) for end in (low, high)]
    for threshold in unit.thresholds:
        inside = threshold.expand_as(low).clamp(low, high)
        values.append(on_piece(unit, inside, unit.piece(inside)))
    return torch.stack(values).amin(0), torch.stack(values).amax(0)
