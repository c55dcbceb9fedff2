r"""Pairs of points between which a network is steep, by gradient ascent.

A pair begins at an input $z$ and lies along the direction $v$ in which the Jacobian $J$ at $z$
stretches most: the first right singular vector for $\|\cdot\|_2$, the signs of the row of largest
sum for $\|\cdot\|_\infty$, the column of largest sum for $\|\cdot\|_1$. Then both points climb,

$$\max_{a, b}\; \log \|f(a) - f(b)\| - \log \|a - b\|,$$

by Adam; the best pair on the way is kept. All of it is a search: it proves nothing beyond the pair.
"""

import torch
from torch import Tensor

from vademecum.robustness._threat import NORMS, Threat, per_example
from vademecum.robustness.bounds._network import Network

__all__ = ["steepest_pairs"]

_STEPS = 60
_RATE = 0.3  # of Adam, in units of the distance to begin with: steps add up to 6, across a ball
_DECAY = 0.95  # with 0.03 and 0.96 slopes of small smooth networks were up to 0.3 smaller
_MOST = 64  # inputs from which to look, where there are no balls


def steepest_pairs(
    network: Network, x: Tensor, threat: Threat | None, norm: str, draw: dict
) -> Tensor:
    """Pairs `(n, 2, *shape)` in the dtype of the inputs, within their balls if there are any."""
    if threat is None and len(x) > _MOST:
        x = x[torch.randperm(len(x), **draw)[:_MOST].to(x.device)]
    p = NORMS[norm]
    size, start = _middles(x, threat, p, draw)
    way = _directions(network, start, norm)
    far = per_example(size / way.abs().flatten(1).amax(1), x)
    ends = (start - far * way, start + far * way)
    best, top = _stored(x, ends, threat), torch.full_like(size, -torch.inf)
    with torch.enable_grad():
        a, b = (end.detach().clone().requires_grad_() for end in ends)
        adam = torch.optim.Adam([a, b], lr=1.0, maximize=True)
        for step in range(_STEPS):
            pair = _stored(x, (a.detach(), b.detach()), threat)
            slope = _slope(network, pair[:, 0].double(), pair[:, 1].double(), p).detach()
            better = slope > top
            top = torch.where(better, slope, top)
            best = torch.where(per_example(better, pair), pair, best)
            adam.zero_grad()
            _slope(network, a, b, p).nan_to_num(0.0, 0.0, 0.0).sum().backward()
            _climb(adam, (a, b), per_example(size, x) * (_RATE * _DECAY**step), x, threat)
    return best


def _climb(
    adam: torch.optim.Adam, ends: tuple[Tensor, ...], rate: Tensor, x: Tensor, threat: Threat | None
) -> None:
    """One step of Adam, a unit of which is a rate for each example, back into the balls."""
    before = [end.detach().clone() for end in ends]
    for end in ends:
        assert end.grad is not None
        end.grad.nan_to_num_(0.0, 0.0, 0.0)
    adam.step()
    for end, old in zip(ends, before, strict=True):
        moved = old + (end.data - old) * rate
        end.data.copy_(moved if threat is None else threat.nearest(x, moved.to(x.dtype)))


def _middles(x: Tensor, threat: Threat | None, p: float, draw: dict) -> tuple[Tensor, Tensor]:
    """How far entries of a pair go from its middle to begin with, and the middle.

    Within a ball they are so near that the box, too, has room for both, and not quite at its
    centre, which may be a kink.
    """
    if threat is None:
        size = x.double().flatten(1).square().mean(1).sqrt()
        return torch.where(size > 0, size, 1.0) * 0.02, x.double()
    size = threat.radius.double() / 4 / x[0].numel() ** (1 / p)
    room, low, high = per_example(size, x), *(threat.box or (-torch.inf, torch.inf))
    noise = torch.rand(x.shape, dtype=torch.float64, **draw).to(x.device)
    middle = x.double() + (noise - 0.5) * room
    return size, torch.minimum(torch.maximum(middle, low + room), high - room)


def _stored(x: Tensor, ends: tuple[Tensor, ...], threat: Threat | None) -> Tensor:
    """A pair in the dtype of the inputs, exactly within the balls."""
    pair = [end.to(x.dtype) for end in ends]
    return torch.stack(pair if threat is None else [threat.project(x, end) for end in pair], 1)


def _slope(network: Network, a: Tensor, b: Tensor, p: float) -> Tensor:
    """The logarithm of how much farther apart two points are afterwards."""
    out = (network(a) - network(b)).flatten(1)
    moved = torch.linalg.vector_norm(out, p, dim=1)
    apart = torch.linalg.vector_norm((a - b).flatten(1), p, dim=1)
    return moved.log() - apart.log()


def _directions(network: Network, z: Tensor, norm: str) -> Tensor:
    """The directions of length one in which Jacobians stretch most."""
    J = _jacobians(network, z)
    if norm == "l2":
        way = torch.linalg.svd(J, full_matrices=False).Vh[:, 0]
    elif norm == "linf":
        row = J.abs().sum(2).argmax(1)
        way = J[torch.arange(len(J), device=J.device), row].sign()
        way = torch.where(way == 0, 1.0, way)
    else:
        way = torch.nn.functional.one_hot(J.abs().sum(1).argmax(1), J.shape[2]).to(J)
    return way.view_as(z)


def _jacobians(network: Network, z: Tensor) -> Tensor:
    """The Jacobians `(n, k, d)`, row by row."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        out = network(z).flatten(1)
        rows = [
            torch.autograd.grad(column.sum(), z, retain_graph=True, materialize_grads=True)[0]
            for column in out.unbind(1)
        ]
    return torch.stack([row.flatten(1) for row in rows], 1).detach()
