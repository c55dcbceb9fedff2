r"""Gauss's rule for Gaussian integrals of a function with kinks, in one and in two dimensions.

One dimension: $u = \sqrt q\, z$ with $z$ standard normal, and the range $|z| \le 12$ is cut every 2
units and wherever a piece of the function ends; 16 nodes on each part.

Two: $v = \sqrt{q'} (c z + s z')$ with $s = \sqrt{1 - c^2}$. The inner integral over $z'$, cut where
$v$ comes to the end of a piece, is a smooth function $T(z)$; for a break $k$ of $\phi$ it is one of
$(c z - k / \sqrt{q'}) / s$, as steep as $1 / s$. So the outer range is also cut at $c z =
k / \sqrt{q'}$ and 2, 5 and 9 times $s$ to both sides of it, also around ends of pieces that are not
much longer than $s$, and correlations near $\pm 1$ cost no digit.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.expectations._pieces import Pieces, gauss_nodes

__all__ = ["REACH", "gaussian_nodes", "line", "plane"]

REACH = 12.0
"""How many standard deviations are integrated over: the density there is 2e-32."""
_EVERY = 2.0
_AROUND = (-9.0, -5.0, -2.0, 0.0, 2.0, 5.0, 9.0)
_AT_ONCE = 2**19  # nodes: temporaries of 4 MiB stay in the cache; 2**17 to 2**21 differ by a tenth
_TINY = 1e-300

Function = Callable[[Tensor], Tensor]


def line(f: Function, q: Tensor, cut: Pieces) -> Tensor:
    """The mean of f(u) for u of each variance in a vector."""
    root = q.sqrt()[:, None]
    nodes, weights = gaussian_nodes(cut.edges.to(q) / root.clamp(min=_TINY))
    return (weights * f(root * nodes)).sum(-1)


def plane(f: Function, g: Function, q: Tensor, p: Tensor, c: Tensor, cut: Pieces) -> Tensor:
    """The mean of f(u) g(v) for each triple of variances and a correlation in three vectors."""
    return torch.stack([_one_pair(f, g, *triple, cut) for triple in zip(q, p, c, strict=True)])


def _one_pair(f: Function, g: Function, q: Tensor, p: Tensor, c: Tensor, cut: Pieces) -> Tensor:
    edges = cut.edges.to(q)
    mine, its = q.sqrt(), p.sqrt()
    s = ((1 - c) * (1 + c)).clamp(min=0).sqrt()
    size = c.abs().clamp(min=_TINY) * torch.where(c < 0, -1.0, 1.0)
    outer = torch.cat([edges / mine.clamp(min=_TINY), _inner_features(its, s, cut) / size])
    z, weights = gaussian_nodes(outer[None])
    z, weights = z[0][weights[0] > 0], weights[0][weights[0] > 0]
    left = weights * f(mine * z)
    parts = max(1, math.ceil(z.numel() * 16 * (len(edges) + 12) / _AT_ONCE))
    total = torch.zeros_like(q)
    for some, factor in zip(z.chunk(parts), left.chunk(parts), strict=True):
        ends = (edges / its.clamp(min=_TINY) - c * some[:, None]) / s.clamp(min=_TINY)
        inner, share = gaussian_nodes(ends)
        total = total + (factor * (share * g(its * (c * some[:, None] + s * inner))).sum(-1)).sum()
    return total


def _inner_features(root: Tensor, s: Tensor, cut: Pieces) -> Tensor:
    """Where the inner integral changes, in units of the standard deviation."""
    ends, breaks = (e.to(root) / root.clamp(min=_TINY) for e in (cut.edges, cut.breaks))
    if s > _EVERY / 4:  # a Gaussian is a polynomial on four standard deviations, up to 1e-16
        return ends[:0]
    length = ends.diff()
    blurred = torch.minimum(length[1:], length[:-1]) < 8 * s
    around = torch.tensor(_AROUND).to(root) * s
    step = 2 * s.clamp(min=1e-9)
    near = (ends[1:-1][blurred, None] + around).clamp(-REACH, REACH)
    near = (near / step).round().unique() * step
    return torch.cat([ends[1:-1][~blurred], (breaks[:, None] + around).flatten(), near])


def gaussian_nodes(ends: Tensor, every: float = _EVERY) -> tuple[Tensor, Tensor]:
    """Nodes and weights for the standard normal law, cut at ends and every few units."""
    grid = torch.arange(-REACH, REACH + every / 2, every, dtype=ends.dtype, device=ends.device)
    ends = torch.cat([ends.clamp(-REACH, REACH), grid.expand(*ends.shape[:-1], -1)], -1)
    nodes, weights = gauss_nodes(ends.sort(-1).values)
    return nodes, weights * torch.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi)
