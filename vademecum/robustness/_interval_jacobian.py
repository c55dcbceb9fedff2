r"""Boxes that hold the Jacobian of a network at every input of a region, and their norms.

Where the values of all layers are known to within boxes, the slope of every unit lies in an
interval $[\underline d, \overline d]$. The Jacobian $J = W_L D_L \cdots D_1 W_1$ is carried back
from the output as a matrix of intervals with centre $C$ and half-widths $R$: an affine layer makes
of it $C W$ and $R |W|$, units with slopes $m \pm \rho$

$$C' = C m, \qquad R' = |C| \rho + R (|m| + \rho).$$

Then $\|J\| \le \|C\| + \|R\|$ for the Euclidean norm, and sums of $|C| + R$ along rows or columns
for the other two. On a convex region this bounds the Lipschitz constant. Rounding, of $b$ terms a
sum, adds $\gamma_b$ times the same sums of moduli to $R$.
"""

import torch
from torch import Tensor

from vademecum.robustness.bounds._affine_steps import AffineStep, Ends
from vademecum.robustness.bounds._network import Network
from vademecum.robustness.bounds._pooling_steps import PoolStep
from vademecum.robustness.bounds._unit_steps import UnitStep

__all__ = ["jacobian_norms"]

_EPS = 2.0**-52
Block = tuple[Tensor, Tensor]


def jacobian_norms(network: Network, boxes: dict[int, Ends], norm: str) -> Tensor:
    """Upper bounds `(n,)` on the norms of the Jacobians in a region, by the boxes of all layers."""
    low = boxes[network.result][0]
    k = low[0].numel()
    eye = torch.eye(k, dtype=low.dtype, device=low.device).view(k, *low.shape[1:])
    start = eye.expand(len(low), *eye.shape)
    pending = {network.result: (start, torch.zeros_like(start))}
    for step in reversed(network.steps):
        found = pending.pop(step.output, None)
        if found is None:
            continue
        for name, part in zip(step.inputs, _back(step, found, boxes), strict=True):
            before = pending.get(name)
            pending[name] = part if before is None else _sum(before, part)
    centre, half = (each.flatten(2) for each in pending.pop(network.source))
    return _norms(centre, half, norm)


def _norms(centre: Tensor, half: Tensor, norm: str) -> Tensor:
    largest = centre.abs() + half
    more = 1 + 64 * max(centre.shape[1:]) * _EPS
    if norm != "l2":
        return largest.sum(2 if norm == "linf" else 1).amax(1) * more
    whole = torch.linalg.matrix_norm(centre, 2) + torch.linalg.matrix_norm(half, 2)
    return torch.minimum(whole, torch.linalg.matrix_norm(largest, 2)) * more


def _sum(one: Block, other: Block) -> Block:
    centre = one[0] + other[0]
    return centre, (one[1] + other[1]) * (1 + 4 * _EPS) + centre.abs() * (4 * _EPS)


def _back(
    step: AffineStep | UnitStep | PoolStep, found: Block, boxes: dict[int, Ends]
) -> list[Block]:
    centre, half = found
    if isinstance(step, AffineStep):
        slack = (step.form.back + 8) * 2 * _EPS
        wide = step.pull(half + (centre.abs() + half) * slack, moduli=True)
        return list(zip(step.pull(centre), wide, strict=True))
    ends = boxes[step.inputs[0]]
    if isinstance(step, PoolStep):
        return [step.pull_interval(centre, half, ends)]
    low, high = step.slopes(ends)
    middle = (low + high)[:, None] / 2
    spread = torch.maximum(high[:, None] - middle, middle - low[:, None]) + 4 * _EPS * middle.abs()
    wide = centre.abs() * spread + half * (middle.abs() + spread)
    centre = centre * middle
    return [(centre, wide * (1 + 16 * _EPS) + centre.abs() * (4 * _EPS))]
