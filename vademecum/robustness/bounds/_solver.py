"""Bounds of all layers of a network in turn: intervals first, then linear functions of the input.

The intervals of the entries that a unit could still do either of two things with are narrowed by
linear bounds, in portions that keep to a memory limit; examples with as many such entries go
together.
"""

import torch
from torch import Tensor

from vademecum.arrays import portions
from vademecum.robustness.bounds._affine_steps import AffineStep, Ends
from vademecum.robustness.bounds._descent import Descent
from vademecum.robustness.bounds._enclosures import (
    Question,
    balls_at_first,
    balls_of,
    box_after,
    functions_of,
)
from vademecum.robustness.bounds._network import Network
from vademecum.robustness.bounds._region import Region
from vademecum.robustness.bounds._rounding import Arithmetic, down, up
from vademecum.robustness.bounds._slopes import ascended

__all__ = ["Solver"]

_COPIES = 5  # of a function's widest coefficients that are held at a time, for both of its ends
_WITH_SLOPES = 16  # the same with gradients, and Adam's two moments
_AT_ONCE = {"cpu": 2**27}  # bytes, where there is no limit; other values were not tried
_ELSEWHERE = 2**31


class Solver:
    """Bounds all layers in turn.

    Args:
        network: The network.
        region: Where inputs are.
        arithmetic: How it runs.
        max_iter: How many steps to make on slopes.
        memory: Bytes to use at most for functions that are carried back.

    Raises:
        ValueError: If there is no room for one function.
    """

    def __init__(
        self,
        network: Network,
        region: Region,
        arithmetic: Arithmetic,
        max_iter: int = 0,
        memory: int | None = None,
    ):
        self.network, self.arithmetic, self.max_iter = network, arithmetic, max_iter
        each = 2 * (_WITH_SLOPES if max_iter else _COPIES) * network.width * arithmetic.own.itemsize
        limit = max(_AT_ONCE.get(region.x.device.type, _ELSEWHERE), each)
        limit = limit if memory is None else memory
        if limit < each:
            raise ValueError(f"memory must be >= {each} bytes for one function, got {memory}")
        self.most = limit // each
        self.descent = Descent(network, region, arithmetic)

    def sweep(self) -> dict[int, Ends]:
        """The boxes of all values, each narrowed before the next is made of it."""
        boxes, balls = self.descent.boxes, balls_at_first(self.network, self.descent.region)
        known = _as_tight_as_can_be(self.network)
        for at, step in enumerate(self.network.steps):
            boxes[step.output] = box_after(step, boxes, balls, self.arithmetic)
            balls_of(step, balls)
            self.descent.learn(at)
            if step.output not in known:
                self._tighten(at)
        return boxes

    def _tighten(self, at: int) -> None:
        """Narrow the intervals that units read, where that would help them."""
        value = self.network.steps[at].output
        ends = self.descent.boxes[value]
        readers = [s for s in self.network.steps if value in s.inputs]
        masks = [s.undecided(ends) for s in readers if not isinstance(s, AffineStep)]
        if not masks:
            return
        open_ = torch.stack(masks).any(0).flatten(1)
        counts = open_.sum(1)
        order = counts.argsort(descending=True)
        sizes = counts[order].tolist()
        low, high = (end.flatten(1).clone() for end in ends)
        begin = 0
        while begin < len(sizes) and sizes[begin]:
            r = sizes[begin]
            some = order[begin : begin + max(1, self.most // r)]
            begin += len(some)
            index = open_[some].byte().argsort(dim=1, descending=True, stable=True)[:, :r]
            l, u = self._entries(at, some, index)
            l, u = down(l.to(low)), up(u.to(low))
            low[some[:, None], index] = torch.maximum(low[some[:, None], index], l)
            high[some[:, None], index] = torch.minimum(high[some[:, None], index], u)
        self.descent.boxes[value] = (low.view_as(ends[0]), high.view_as(ends[1]))

    def _entries(self, at: int, some: Tensor, index: Tensor) -> Ends:
        """Bounds of entries `(n, r)` of what a step makes, in double precision."""
        descent, found = self.descent.rows(some), []
        for part in portions(index.shape[1], each=1, memory=self.most):
            functions = descent.entries(at, index[:, part])
            least, _ = ascended(descent, functions, self.max_iter)
            found.append(least.view(len(some), 2, -1))
        least = torch.cat(found, 2)
        return least[:, 0], -least[:, 1]

    def functions(self, question: Question) -> Ends:
        """Bounds of the output, the last pass in double precision if it can be: a small one."""
        network, spec = self.network, question.spec
        ends = self.descent.boxes[network.result]
        if spec is not None:
            ends = functions_of(question, self.descent.boxes)
        low, high = (end.flatten(1).double() for end in ends)
        fine, count = self._fine(question), low.shape[1]
        wide = fine.arithmetic.own
        for some in portions(len(low), each=count, memory=self.most):
            examples = torch.arange(len(low), device=low.device)[some]
            coarse, last = self.descent.rows(examples), fine.rows(examples)
            for part in portions(count, each=len(examples), memory=self.most):
                rows = _rows(spec, some, part, network.shapes[network.result], low)
                functions = coarse.of(network.result, rows.to(self.arithmetic.own))
                _, slopes = ascended(coarse, functions, self.max_iter)
                slopes = {at: each.to(wide) for at, each in slopes.items()}
                least = last.least(last.of(network.result, rows.to(wide)), slopes)
                l, u = least.view(len(examples), 2, -1).unbind(1)
                low[some, part] = torch.maximum(low[some, part], l)
                high[some, part] = torch.minimum(high[some, part], -u)
        own = self.arithmetic.own
        if own != torch.float64:
            low, high = _below(low, own), -_below(-high, own)
        return low.view_as(ends[0]), high.view_as(ends[1])

    def _fine(self, question: Question) -> Descent:
        """The way back in double precision, through the boxes that were found.

        Or the one that there is, for code that insists on its dtype.
        """
        how, descent = self.arithmetic, self.descent
        if how.own == torch.float64:
            return descent
        try:
            network = question.wider()
        except ValueError:
            return descent
        how, region = how._replace(own=torch.float64), descent.region
        low, high = (end.double() for end in region.ends)
        region = Region(region.x.double(), region.radius.double(), region.norm, (low, high))
        fine = Descent(network, region, how)
        fine.boxes = {k: (l.double(), u.double()) for k, (l, u) in descent.boxes.items()}
        for at in range(len(self.network.steps)):
            fine.learn(at)
        return fine


def _below(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest numbers of a dtype that are not above."""
    found = x.to(dtype)
    return torch.where(found.to(x) > x, down(found), found)


def _rows(
    spec: Tensor | None, some: slice, part: slice, shape: tuple[int, ...], like: Tensor
) -> Tensor:
    """Some of the functions of the output, and their negatives after them."""
    if spec is not None:
        rows = spec[some, part].to(like)
    else:
        rows = torch.eye(like.shape[1], dtype=like.dtype, device=like.device)[part]
        rows = rows.expand(some.stop - some.start, *rows.shape)
    return torch.cat([rows, -rows], 1).unflatten(2, shape)


def _as_tight_as_can_be(network: Network) -> set[int]:
    """Values that one affine layer makes of the input: their intervals are exact."""
    layers: dict[int, int] = {network.source: 0}
    for step in network.steps:
        plain = isinstance(step, AffineStep) and len(step.inputs) == 1
        before = layers.get(step.inputs[0]) if plain else None
        if before is not None and isinstance(step, AffineStep):
            layers[step.output] = before + (not step.moves)
    return {value for value, count in layers.items() if count <= 1}
