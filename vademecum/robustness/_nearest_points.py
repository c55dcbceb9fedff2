r"""The nearest point of a ball within a box, and the one where a linear function is largest.

A vector $v$ leads from an input to a point; $c_i \ge 0$ is the room that the box leaves in the
direction of $v_i$ (None: no end of it), $\epsilon$ the radius. By the conditions of Karush, Kuhn
and Tucker the Euclidean projections of $v$ are, entry by entry in modulus and with the signs of
$v$,

- $p = 2$: $\min(s |v_i|, c_i)$ with the largest $s \le 1$ whose length is at most $\epsilon$. The
  squared length is concave in $s^2$, so Newton's iteration climbs to the root from
  $s = \epsilon / \|v\|$ and is there once the set of entries at their ends stays the same;
- $p = 1$: $\min(\max(|v_i| - \tau, 0), c_i)$ with the least $\tau \ge 0$ whose sum is at most
  $\epsilon$; the sum is piecewise linear in $\tau$, with corners at $|v_i|$ and $|v_i| - c_i$;
- at most $k$ entries: $\min(|v_i|, c_i)$ where that brings most, $v_i^2 - \max(|v_i| - c_i, 0)^2$.

A linear function $\langle g, v \rangle$ is largest, again with the signs of $g$, for

- $p = 2$: at $\min(s |g_i|, c_i)$ with $s$ such that the length is $\epsilon$, or all ends are
reached;
- $p = 1$: the entries of largest $|g_i|$ go to their ends, one after the other, until $\epsilon$ is
  spent;
- at most $k$ entries: those with the largest $|g_i| c_i$ go to their ends.

All up to rounding.
"""

import torch
from torch import Tensor

from vademecum.foundations import project

__all__ = ["filled", "freest", "shortened", "sparse", "stretched", "thresholded"]

_PASSES = 30  # of Newton's iteration; observed: at most 7 on images. A shortfall stays inside.
_FAR = 2.0**40  # so long a vector, in units of the radius, that no s <= 1 is too short for the ball


def shortened(v: Tensor, room: Tensor | None, r: Tensor) -> Tensor:
    """The nearest vector of length r at most, entries within their room.

    Example:
        >>> v, room = torch.tensor([[3.0, 4.0]]), torch.tensor([[9.0, 1.0]])
        >>> shortened(v, room, torch.tensor([[2.0]]))
        tensor([[1.7321, 1.0000]])
    """
    tiny = torch.finfo(v.dtype).tiny
    top = v.abs().amax(1, keepdim=True).clamp(min=tiny)
    u = v / top  # no square overflows
    end = r / torch.linalg.vector_norm(u, dim=1, keepdim=True).clamp(min=tiny)
    s = torch.minimum(end, top)
    if room is None:
        return u * s
    size = u.abs()
    moved = torch.minimum(size * s, room)
    for _ in range(_PASSES):
        free = moved < room
        fixed = moved.masked_fill(free, 0).square().sum(1, keepdim=True)
        loose = u.masked_fill(~free, 0).square().sum(1, keepdim=True)
        new = ((r * r - fixed).clamp(min=0) / loose.clamp(min=tiny)).sqrt()
        new = torch.minimum(new, top)
        if not bool((new > s * (1 + 4 * torch.finfo(v.dtype).eps)).any()):
            break
        s = torch.maximum(s, new)
        moved = torch.minimum(size * s, room)
    return moved * u.sign()


def stretched(g: Tensor, room: Tensor | None, r: Tensor) -> Tensor:
    """The vector of length r at most along which a linear function with slope g rises most.

    Example:
        >>> g, room = torch.tensor([[3.0, 4.0]]), torch.tensor([[9.0, 1.0]])
        >>> stretched(g, room, torch.tensor([[2.0]]))
        tensor([[1.7321, 1.0000]])
    """
    top = g.abs().amax(1, keepdim=True)
    u = g / torch.where(top > 0, top, 1)
    return shortened(u * (_FAR * r), room, r)


def thresholded(v: Tensor, room: Tensor | None, r: Tensor) -> Tensor:
    """The nearest vector whose moduli sum to r at most, entries within their room.

    Example:
        >>> v, room = torch.tensor([[3.0, -4.0, 1.0]]), torch.tensor([[9.0, 1.0, 9.0]])
        >>> thresholded(v, room, torch.tensor([[2.0]]))
        tensor([[ 1., -1.,  0.]])
    """
    if room is None:
        unit = torch.where(r > 0, r, 1)
        return torch.where(r > 0, project(v / unit, "l1") * unit, 0)
    size = v.abs()
    corners = torch.cat([size, (size - room).clamp(min=0)], 1)
    corner, order = corners.sort(dim=1, descending=True)
    count = torch.where(order < v.shape[1], 1, -1).cumsum(1)  # entries that move with tau
    rise = count[:, :-1] * (corner[:, :-1] - corner[:, 1:])
    total = torch.cat([torch.zeros_like(r), rise.cumsum(1)], 1)
    at = ((total < r).sum(1, keepdim=True) - 1).clamp(min=0)
    tau = corner.gather(1, at) - (r - total.gather(1, at)) / count.gather(1, at).clamp(min=1)
    return torch.minimum((size - tau.clamp(min=0)).clamp(min=0), room) * v.sign()


def filled(g: Tensor, room: Tensor | None, r: Tensor) -> Tensor:
    """Where a linear function is largest if the moduli sum to r at most.

    Example:
        >>> g, room = torch.tensor([[3.0, -4.0, 1.0]]), torch.tensor([[9.0, 1.0, 9.0]])
        >>> filled(g, room, torch.tensor([[2.0]]))
        tensor([[ 1., -1.,  0.]])
    """
    order = g.abs().argsort(dim=1, descending=True, stable=True)
    room = (torch.full_like(g, torch.inf) if room is None else room).minimum(r)
    ends = room.masked_fill(g == 0, 0).gather(1, order)
    before = ends.cumsum(1) - ends
    spent = torch.minimum(ends, (r - before).clamp(min=0))
    return torch.zeros_like(g).scatter(1, order, spent) * g.sign()


def sparse(v: Tensor, room: Tensor | None, k: Tensor) -> Tensor:
    """The nearest vector with at most k entries that are not 0, within their room.

    Example:
        >>> v, room = torch.tensor([[3.0, -4.0, 1.0]]), torch.tensor([[9.0, 0.5, 9.0]])
        >>> sparse(v, room, torch.tensor([[1.0]]))
        tensor([[3., 0., 0.]])
    """
    size = v.abs()
    ends = size if room is None else torch.minimum(size, room)
    gain = size.square() - (size - ends).square()
    return (ends * v.sign()).masked_fill(_rank(gain) >= k, 0)


def freest(g: Tensor, room: Tensor | None, k: Tensor) -> Tensor:
    """Where a linear function is largest if at most k entries move, each to the end of its room.

    Example:
        >>> g, room = torch.tensor([[3.0, -4.0, 1.0]]), torch.tensor([[9.0, 0.5, 9.0]])
        >>> freest(g, room, torch.tensor([[2.0]]))
        tensor([[9., 0., 9.]])
    """
    if room is None:
        raise ValueError("box must be given for l0, where entries move freely within it, got None")
    gain = g.abs() * room
    return torch.where((_rank(gain) < k) & (gain > 0), room * g.sign(), 0)


def _rank(gain: Tensor) -> Tensor:
    """The place of each entry in falling order."""
    return gain.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
