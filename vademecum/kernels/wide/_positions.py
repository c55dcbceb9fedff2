r"""What layers that mix positions do to covariances, position by position.

A block holds $k(p)$, the covariances at equal positions, or $k(p, p')$ between all of them. A
convolution with fresh weights of the same variance moves both positions together,

$$k^+(o, o') = \sum_\delta k(s o - r + d \delta,\ s o' - r + d \delta)$$

(stride $s$, padding $r$, dilation $d$; zero outside): a sum along diagonals that is done axis by
axis, so a kernel of $w \times w$ taps takes $2 w$ additions. Averages and other linear maps $A$
over positions give $A k A^\top$.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.kernels.wide._workspace import Workspace

__all__ = ["Taps", "along_diagonals", "at_equal_positions", "both_positions", "joint_diagonal",
           "windows_averaged"]  # fmt: skip


class Taps(NamedTuple):
    """How a convolution looks at one axis."""

    size: int
    stride: int
    padding: tuple[int, int]
    dilation: int

    def length(self, n: int) -> int:
        """How many positions there are afterwards."""
        return (n + sum(self.padding) - self.dilation * (self.size - 1) - 1) // self.stride + 1

    def windows(self, n: int) -> list[tuple[slice, slice]]:
        """For each tap, positions afterwards and the positions that they look at."""
        found, m = [], self.length(n)
        for tap in range(self.size):
            start = tap * self.dilation - self.padding[0]
            first = max(0, -(start // self.stride))
            last = min(m - 1, (n - 1 - start) // self.stride)
            if first <= last:
                at = start + first * self.stride
                stop = start + last * self.stride + 1
                found.append((slice(first, last + 1), slice(at, stop, self.stride)))
        return found


def along_diagonals(k: Tensor, axes: tuple[Taps, ...], full: bool, room: Workspace) -> Tensor:
    """The sum over all taps of covariances (a, b, *positions), once or twice the positions."""
    d, given = len(axes), k
    for i, taps in enumerate(axes):
        places = (2 + i, 2 + d + i) if full else (2 + i,)
        before, k = k, _one_axis(k, taps, places, room)
        if before is not given and before is not k:
            room.give(before)
    return k


def _one_axis(k: Tensor, taps: Taps, places: tuple[int, ...], room: Workspace) -> Tensor:
    if taps == Taps(1, 1, (0, 0), 1):
        return k
    n = k.shape[places[0]]
    m = taps.length(n)
    out = room.empty([m if i in places else s for i, s in enumerate(k.shape)], k)
    windows = sorted(taps.windows(n), key=lambda w: w[0].start - w[0].stop)  # the widest first
    if not windows or windows[0][0] != slice(0, m):
        out.zero_()
    for i, (to, at) in enumerate(windows):
        there, here = out[_at(k.ndim, places, to)], k[_at(k.ndim, places, at)]
        if i == 0:
            there.copy_(here)
        else:
            there += here
    return out


def _at(ndim: int, places: tuple[int, ...], where: slice) -> tuple[slice, ...]:
    return tuple(where if i in places else slice(None) for i in range(ndim))


def both_positions(k: Tensor, axes: int, linear: Callable[[Tensor], Tensor], full: bool) -> Tensor:
    """A linear map of positions, (n, *positions) to another shape, on covariances.

    Args:
        k: Covariances (a, b, *positions), once or twice the positions.
        axes: How many axes positions have.
        linear: The map.
        full: Whether positions come twice; else the map only selects.
    """
    lead, sizes = k.shape[:2], k.shape[2 : 2 + axes]
    if not full:
        return _unfold(linear(k.reshape(-1, *sizes)), lead)
    right = linear(k.reshape(-1, *sizes))
    others = right.shape[1:]
    left = right.reshape(*lead, sizes.numel(), others.numel()).mT
    done = linear(left.reshape(-1, *sizes))
    done = done.reshape(*lead, others.numel(), others.numel()).mT
    return done.reshape(*lead, *others, *others)


def _unfold(k: Tensor, lead: torch.Size) -> Tensor:
    return k.reshape(*lead, *k.shape[1:])


def windows_averaged(k: Tensor, windows: tuple[int, ...], full: bool, room: Workspace) -> Tensor:
    """Means over windows side by side, along all axes of positions: in place of pooling calls."""
    if k.shape[2:] == (windows * 2 if full else windows):
        return k.flatten(2).mean(-1).reshape(*k.shape[:2], *(1 for _ in k.shape[2:]))
    for i, w in enumerate(windows * 2 if full else windows):
        m = k.shape[2 + i] // w
        parts = [k[_at(k.ndim, (2 + i,), slice(t, t + w * (m - 1) + 1, w))] for t in range(w)]
        out = room.empty(parts[0].shape, k)
        torch.add(parts[0], parts[1], out=out) if w > 1 else out.copy_(parts[0])
        for part in parts[2:]:
            out += part
        if i > 0:
            room.give(k)
        k = out
    return k.div_(torch.Size(windows).numel() ** (2 if full else 1))


def at_equal_positions(k: Tensor, axes: int) -> Tensor:
    """Covariances between all positions, at equal ones."""
    for i in range(axes):  # the diagonal becomes the last axis
        k = k.diagonal(dim1=2, dim2=2 + axes - i)
    return k


def joint_diagonal(k: Tensor, axes: int, chosen: tuple[int, ...], full: bool) -> Tensor:
    """The mean over equal positions along some axes; others stay, once or twice."""
    if not full:
        return k.mean([2 + i for i in chosen]) if chosen else k
    for done, i in enumerate(sorted(chosen, reverse=True)):
        left = axes - done
        k = k.diagonal(dim1=2 + i, dim2=2 + left + i).mean(-1)
    return k
