r"""Carry cells of a slice of input space through a network, dividing them as it goes.

On a slice $x(s) = x_0 + \sum_i s_i d_i$, $s \in \mathbb{R}^m$, and within one cell of the steps so
far every activation is an affine function of $s$, held as columns (see
`vademecum.approximation.piecewise`). The next kinks divide the cell along the lines on which an
activation equals a threshold, the next maxima where two candidates are equal and largest; each part
goes on with the piece of its centre. At the end a cell has the same piece of every unit all over,
and comes with the network's affine map on it.

Cells go through in blocks, depth first, so that memory holds a few blocks and not all cells. The
arithmetic is in double precision. An activation is taken to cross a threshold within a cell if it
does so by more than $10^{-12}$ of the largest distance of that layer's activations from that
threshold in the cell; parts thinner than that are not told apart.
"""

import sys
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.approximation.piecewise import Affine, Kinks, Program
from vademecum.approximation.regions._cells import Cells, split_by_lines, split_by_maxima
from vademecum.arguments import whole

__all__ = ["TooManyCells", "walk"]

ROUNDING = 1e-12
_MEMORY = {"cpu": 2**26}  # bytes for a block: caches want few, many small kernels many
_COPIES = 8  # of the widest activation's columns that a block holds at a time


class _Block(NamedTuple):
    at: int
    cells: Cells
    values: dict[int, Tensor]


class TooManyCells(Exception):
    """There are more cells than were asked for; told as soon as it is known."""


def walk(
    program: Program,
    cells: Cells,
    columns: Tensor,
    memory: int | None,
    limit: int | None = None,
) -> Iterator[tuple[Cells, Tensor]]:
    """Divide cells until the network is affine on each.

    Args:
        program: The network.
        cells: The cell to start from.
        columns: The slice: the images of its origin and directions, `(1, 1 + m, *shape)`.
        memory: How many bytes to use for a block of cells; by default as many as pay.
        limit: How many cells there may be at most.

    Yields:
        Blocks of cells, and the columns of the output, `(cells, 1 + m, outputs)`.

    Raises:
        ValueError: If the memory does not suffice for one cell.
        TooManyCells: If there are more than the limit.
    """
    if memory is None:
        memory = _MEMORY.get(columns.device.type, 2**32)
    each = _COPIES * columns.shape[1] * program.width * columns.element_size()
    most = whole("memory", memory, low=1) // each
    if most < 1:
        raise ValueError(f"memory must be >= {each} bytes, one cell of this model, got {memory}")
    done, limit = 0, sys.maxsize if limit is None else limit
    for found in _go_on(program, _Block(0, cells, {program.source: columns}), most, limit):
        done += len(found[0].sizes)
        if done > limit:
            raise TooManyCells
        yield found


def _go_on(
    program: Program, block: _Block, most: int, limit: int
) -> Iterator[tuple[Cells, Tensor]]:
    at, cells, values = block
    while at < len(program.steps) and isinstance(program.steps[at].map, Affine):
        step = program.steps[at]
        columns = program.columns(step, [values[name] for name in step.inputs])
        values, at = _alive(program, at, values | {step.output: columns}), at + 1
    if at == len(program.steps):
        result = values[program.result]
        yield cells, result.reshape(*result.shape[:2], -1)
        return
    for part in _divide(program, _Block(at, cells, values), most, limit):
        yield from _go_on(program, part, most, limit)


def _alive(program: Program, at: int, values: dict[int, Tensor]) -> dict[int, Tensor]:
    return {k: v for k, v in values.items() if k not in program.dead_after[at]}


def _divide(program: Program, block: _Block, most: int, limit: int) -> Iterator[_Block]:
    """The parts of a block's cells, in blocks, after a step with kinks or maxima."""
    step = program.steps[block.at]
    assert not isinstance(step.map, Affine)
    (name,) = step.inputs
    h = block.values[name]
    if isinstance(step.map, Kinks):
        cells, root = split_by_lines(block.cells, _lines(step.map, h), ROUNDING)
    else:
        candidates = h.flatten(2, -2) if h.ndim > 3 else h[:, :, None]
        cells, root = split_by_maxima(block.cells, candidates, ROUNDING)
    if len(root) > limit:  # later steps divide cells and join none
        raise TooManyCells
    for index in torch.arange(len(root), device=root.device).split(most):
        part, source = cells.take(index), root[index]
        values = {k: v[source] for k, v in block.values.items()}
        columns = values[name]
        centre = torch.cat([torch.ones_like(part.centres[:, :1]), part.centres], 1)
        at_centre = torch.einsum("cm,cm...->c...", centre, columns)
        values[step.output] = program.columns(step, [columns], step.map.piece(at_centre))
        yield _Block(block.at + 1, part, _alive(program, block.at, values))


def _lines(unit: Kinks, h: Tensor) -> Tensor:
    """Functions whose zeros divide the cells: activations less thresholds, (cells, 1+m, p, k)."""
    if unit.centred:
        return h.reshape(*h.shape[:2], 1, -1)
    lines = []
    for threshold in unit.thresholds:
        shifted = h.clone()
        shifted[:, 0] -= threshold
        lines.append(shifted.reshape(*h.shape[:2], -1))
    return torch.stack(lines, 2)
