r"""The affine map that a piecewise-linear network is around a point.

With the activation pattern at $x$ held fixed every step of the network is affine, and so is their
composition $x' \mapsto A x' + b$, which equals the network on the whole cell of $x$. A row of $A$
is found by going backwards through the steps from one output, a column by going forwards from one
input; the shorter side is taken. Then $b = f(x) - A x$.

This is exact up to rounding in the dtype of `x`. At a boundary between cells, where the network has
no derivative, the map is that of the cell that the pattern's convention chooses: a unit on its
threshold is on its lower piece, and of equal candidates of a maximum the first counts. Autograd
agrees for ReLU, and not for the absolute value, whose derivative at 0 it sets to 0.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.approximation.patterns import chunks, program_for
from vademecum.approximation.piecewise import Affine, Kinks, PiecewiseMap, Program, on_piece
from vademecum.models import Output
from vademecum.results import one_line

__all__ = ["AffineMap", "local_affine_map"]


class AffineMap(NamedTuple):
    r"""The maps $x' \mapsto A x' + b$, one for each point; inputs and outputs are flattened.

    Example:
        >>> local_affine_map(nn.ReLU(), torch.tensor([[2.0, -3.0]])).A.tolist()
        [[[1.0, 0.0], [0.0, 0.0]]]
    """

    A: Float[Tensor, " batch outputs inputs"]
    """The slopes."""
    b: Float[Tensor, " batch outputs"]
    """The values at 0, to which the maps extend."""

    __repr__ = one_line

    def __call__(self, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, " batch outputs"]:
        """Apply each map to the point in the same row."""
        return torch.einsum("noi,ni->no", self.A, x.flatten(1)) + self.b


def local_affine_map(
    model: nn.Module,
    x: Float[Tensor, " batch *shape"],
    *,
    output: Output = None,
    memory: int | None = None,
) -> AffineMap:
    """The exact affine map of a piecewise-linear network on the cell of each point.

    Args:
        model: Any piecewise-linear module (see `linear_regions`), taken in evaluation.
        x: Points, one a row.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
        >>> with torch.no_grad():  # 2 relu(x + 1) - relu(x) + 5
        ...     for p, v in zip(model.parameters(), ([[1.0], [1]], [1.0, 0], [[2.0, -1]], [5.0])):
        ...         _ = p.copy_(torch.tensor(v))
        >>> A, b = local_affine_map(model, torch.tensor([[-2.0], [-0.5], [3.0]]))
        >>> A.flatten().tolist(), b.flatten().tolist()
        ([0.0, 2.0, 1.0], [5.0, 7.0, 7.0])
    """
    program = program_for(model, x, output)
    inputs, outputs = x[0].numel(), torch.Size(program.shapes[program.result]).numel()
    forwards = inputs < outputs
    extra = 4 * inputs * program.width if forwards else inputs * outputs
    parts = []
    for part in chunks(program, x.detach(), memory, extra):
        parts.append((_forwards if forwards else _backwards)(program, part))
    return AffineMap(*(p[0] if len(p) == 1 else torch.cat(p) for p in zip(*parts, strict=True)))


@torch.no_grad()
def _backwards(program: Program, x: Tensor) -> tuple[Tensor, Tensor]:
    """All outputs at once: a row for each, pulled back through the steps, pieces held fixed."""
    values, pulls = {program.source: x}, []
    for step, dead in zip(program.steps, program.dead_after, strict=True):
        values[step.output], pull = _forth_and_back(step.map, *(values[n] for n in step.inputs))
        pulls.append(pull)
        for name in dead:
            del values[name]
    y = values[program.result].reshape(len(x), -1)
    each = torch.eye(y.shape[1], dtype=y.dtype, device=y.device)
    rows = {program.result: each.view(1, -1, *program.shapes[program.result])}
    for step, pull in zip(reversed(program.steps), reversed(pulls), strict=True):
        if step.output in rows:
            for name, row in zip(step.inputs, pull(rows.pop(step.output)), strict=True):
                if row is not None:
                    rows[name] = rows[name] + row if name in rows else row
    A = rows[program.source].flatten(2).expand(len(x), -1, -1)
    return A, y - (x.flatten(1)[:, None] @ A.mT)[:, 0]


def _forth_and_back(
    unit: PiecewiseMap, *h: Tensor
) -> tuple[Tensor, Callable[[Tensor], Sequence[Tensor | None]]]:
    """What a unit makes of activations, and the transpose of its linear part at their piece.

    That takes rows `(n, k, *shape)`; $n$ is 1 as long as no example differs from another. It gives
    None for an activation of which only the sizes count.
    """
    if isinstance(unit, Kinks):
        piece = unit.piece(h[0])
        slope, intercept = unit.slope(piece), unit.intercept(piece)
        out = h[0] * slope
        return out if intercept is None else out + intercept, lambda rows: [rows * slope[:, None]]
    if isinstance(unit, Affine) and unit.transpose is not None:
        transpose = unit.transpose
        return unit(*h), transpose
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in h]
        if isinstance(unit, Affine):
            out = unit(*leaves)
        else:
            out = on_piece(unit, leaves[0], unit.piece(h[0]))

    def by_autograd(rows: Tensor) -> Sequence[Tensor | None]:
        rows = rows.expand(len(out), *rows.shape[1:]).transpose(0, 1)
        found = torch.autograd.grad(out, leaves, rows, is_grads_batched=True, allow_unused=True)
        return [None if g is None else g.transpose(0, 1) for g in found]

    return out.detach(), by_autograd


@torch.no_grad()
def _forwards(program: Program, x: Tensor) -> tuple[Tensor, Tensor]:
    n, size = len(x), x[0].numel()
    basis = torch.eye(size, dtype=x.dtype, device=x.device)
    basis = torch.cat([torch.zeros_like(basis[:1]), basis]).view(1, size + 1, *x.shape[1:])
    pieces = iter(program.run(x)[1])
    values = {program.source: basis}
    for step, dead in zip(program.steps, program.dead_after, strict=True):
        h = [values[name] for name in step.inputs]
        rows = max(len(c) for c in h)
        if isinstance(step.map, Affine):
            h = [c.expand(rows, *c.shape[1:]) for c in h]
            values[step.output] = program.columns(step, h)
        else:
            h = [c.expand(n, *c.shape[1:]) for c in h]
            values[step.output] = program.columns(step, h, next(pieces))
        for name in dead:
            del values[name]
    result = values[program.result]
    result = result.reshape(*result.shape[:2], -1).expand(n, -1, -1)
    return result[:, 1:].mT.contiguous(), result[:, 0].clone()
