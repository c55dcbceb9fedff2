r"""Where a function is smooth: pieces on which a polynomial of degree 15 is as good as it.

On a piece the Legendre coefficients of the polynomial through 16 Gauss nodes tell: if the last
three are below $10^{-13}$ of the function's size, and the polynomial meets the function at the ends
to $10^{-9}$, the piece is resolved, else it is halved. Around
a kink or a jump pieces get as small as numbers go; there is a *break*, found to the spacing of
floating-point numbers, and everything begins anew with the breaks as ends of pieces. At last
neighbours without a break between them are joined, if the polynomial on both together meets the
function at the nodes of each. What is narrower than the distance of the first nodes, some tenth of
a unit near zero, can be missed.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Pieces", "gauss_nodes", "pieces"]

_NODES = 16
_TOL = 1e-13
_END = 1 - 1e-9  # of a half piece: within it, as an end may be a jump
_MOST = 4096  # pieces; sine with a thousand periods in range takes half of them
_DEEP = 2.0**-14  # of a first piece: what is smaller lies at a break
_JUMP = 1e-6  # of the function's size; softplus of torch has one of 1e-10 at 20, which is nothing


_POLE = 1e4  # times the function's size


class Pieces(NamedTuple):
    """A range cut into pieces."""

    edges: Tensor
    """Where pieces end, in ascending order."""
    breaks: Tensor
    """Those ends at which the function is not smooth."""
    jumps: Tensor
    """Those breaks at which it is not continuous."""


@cache
def _legendre() -> tuple[Tensor, Tensor, Tensor]:
    """Gauss nodes, their weights, and the matrix that turns values there into what is amiss.

    That is, the last coefficients, and the polynomial's error just within the ends, times 1e-4:
    a kink closer than 1e-8 to an end does no harm.
    """
    x, w = np.polynomial.legendre.leggauss(_NODES)
    basis = np.polynomial.legendre.legvander(x, _NODES - 1) * (np.arange(_NODES) + 0.5)
    ends = np.array([-_END, _END])
    coefficients = basis * w[:, None]
    at_ends = coefficients @ np.polynomial.legendre.legvander(ends, _NODES - 1).T
    amiss = np.zeros((_NODES + 2, 5))
    amiss[:-2] = np.hstack([coefficients[:, -3:], at_ends * 1e-4])
    amiss[-2:, -2:] = -np.eye(2) * 1e-4
    return torch.from_numpy(x), torch.from_numpy(w), torch.from_numpy(amiss)


def gauss_nodes(edges: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss's rule on each piece between ascending edges, piece by piece."""
    x, w, _ = _legendre()
    half = edges.diff(dim=-1)[..., None] / 2
    middle = (edges[..., 1:, None] + edges[..., :-1, None]) / 2
    return (middle + half * x.to(edges)).flatten(-2), (half * w.to(edges)).flatten(-2)


def pieces(f: Callable[[Tensor], Tensor], reach: float) -> Pieces:
    """Cut the range from -reach to reach into pieces on which a function is smooth."""
    first = _first_edges(reach)
    size = _Size(f, first)
    left, right = _halved(f, first, size)
    breaks = _breaks(left, right, float(first.diff().max()))
    if len(breaks):
        first = torch.cat([first, breaks]).unique()
        left, right = _halved(f, first, size)
    edges = _joined(f, torch.cat([left, right[-1:]]), breaks, size)
    return Pieces(edges, breaks, _jumps(f, breaks, size, reach))


class _Size:
    """How large a function is within a distance of zero, to compare errors with."""

    def __init__(self, f: Callable[[Tensor], Tensor], edges: Tensor):
        u, _ = gauss_nodes(edges)
        values = f(u)
        if not torch.isfinite(values).all():
            bad = int((~torch.isfinite(values)).nonzero()[0])
            raise ValueError(
                f"activation must be finite, got {values[bad].item()} at {u[bad].item():.6g}"
            )
        self.distance, order = u.abs().sort()
        self.largest = values.abs()[order].cummax(0).values
        near_one = f(_legendre()[0]).abs()
        self.within_one = near_one.nan_to_num(0.0, 0.0).max()

    def __call__(self, distance: Tensor) -> Tensor:
        near = torch.searchsorted(self.distance, distance.clamp(max=self.distance[-1]))
        return self.largest[near] + self.within_one * distance.clamp(max=1.0)


def _first_edges(reach: float) -> Tensor:
    """Some pieces of about equal length, and smaller ones near zero; no round number is an end."""
    even = (torch.arange(24, dtype=torch.float64) + 0.1372) / 12 - 1
    powers = 2.0 ** torch.arange(-3, max(-2, math.ceil(math.log2(reach)))).double()
    near = torch.cat([1.1371 * powers, -1.2713 * powers])
    inner = torch.cat([reach * even, near[near.abs() < reach]])
    ends = torch.tensor([-reach, reach], dtype=torch.float64)
    return torch.cat([inner, ends]).unique()


def _halved(f: Callable[[Tensor], Tensor], edges: Tensor, size: _Size) -> tuple[Tensor, Tensor]:
    """Halve pieces until each is resolved or too small to be halved."""
    reach, todo = edges[-1], (edges[:-1], edges[1:])
    done: list[tuple[Tensor, Tensor]] = []
    eps = torch.finfo(torch.float64).eps
    while len(todo[0]):
        left, right = todo
        if len(left) + sum(len(a) for a, _ in done) > _MOST:
            raise ValueError(
                f"activation must be smooth but for a few kinks, got more than {_MOST} pieces"
                f" within {float(reach):.3g} of zero"
            )
        far = torch.maximum(left.abs(), right.abs())
        least = 8 * eps * torch.maximum(far, 2.0**-10 * reach)
        fine = (_error(f, left, right) <= _TOL * size(far)) | (right - left <= least)
        done.append((left[fine], right[fine]))
        left, right = left[~fine], right[~fine]
        middle = (left + right) / 2
        todo = torch.cat([left, middle]), torch.cat([middle, right])
    left, order = torch.cat([a for a, _ in done]).sort()
    return left, torch.cat([b for _, b in done])[order]


def _joined(f: Callable[[Tensor], Tensor], edges: Tensor, breaks: Tensor, size: _Size) -> Tensor:
    """Drop ends of pieces where two are one, until none can be dropped."""
    start, idle = 1, 0
    while idle < 2 and len(edges) > 2:
        inner = torch.arange(start, len(edges) - 1, 2)
        left, middle, right = edges[inner - 1], edges[inner], edges[inner + 1]
        far = torch.maximum(left.abs(), right.abs())
        fits = (_error(f, left, right) <= _TOL * size(far)) & ~torch.isin(middle, breaks)
        fits &= _misfit(f, left, middle, right) <= 10 * _TOL * size(far)
        keep = torch.ones(len(edges), dtype=torch.bool)
        keep[inner[fits]] = False
        edges, start, idle = edges[keep], 3 - start, 0 if bool(fits.any()) else idle + 1
    return edges


def _misfit(f: Callable[[Tensor], Tensor], left: Tensor, middle: Tensor, right: Tensor) -> Tensor:
    """How far the polynomial on two pieces is from the function at the nodes of each."""
    x, w, _ = _legendre()
    half, centre = (right - left)[:, None] / 2, (right + left)[:, None] / 2
    both = torch.cat(
        [gauss_nodes(torch.stack(e, -1))[0] for e in ((left, middle), (middle, right))], -1
    )
    orders = torch.arange(_NODES)
    coefficients = (f(centre + half * x) * w) @ _basis(x) * (orders + 0.5)
    fitted = (_basis((both - centre) / half) * coefficients[:, None]).sum(-1)
    return (fitted - f(both)).abs().amax(-1)


def _basis(t: Tensor) -> Tensor:
    """Legendre polynomials at points, along a new last axis."""
    return torch.from_numpy(np.polynomial.legendre.legvander(t.numpy(), _NODES - 1))


def _error(f: Callable[[Tensor], Tensor], left: Tensor, right: Tensor) -> Tensor:
    x, _, amiss = _legendre()
    x = torch.cat([x, x.new_tensor([-_END, _END])])
    u = (left + right)[:, None] / 2 + (right - left)[:, None] / 2 * x
    values = (f(u) @ amiss).abs().amax(-1)
    return values.nan_to_num(nan=math.inf)


def _breaks(left: Tensor, right: Tensor, largest: float) -> Tensor:
    """The smallest piece of each run of tiny ones; zero itself where it is in there."""
    width = right - left
    deep = width < _DEEP * min(1.0, largest)
    run = (deep[1:] != deep[:-1]).cumsum(0)
    run = torch.cat([torch.zeros(1, dtype=run.dtype), run])
    found = []
    for r in run[deep].unique().tolist():
        a, b, w = (t[run == r] for t in (left, right, width))
        i = int(w.argmin())
        holds_zero = bool(a[i] <= 0 <= b[i]) or min(abs(a[i]), abs(b[i])) <= 4 * w[i]
        found.append(0.0 if holds_zero else float((a[i] + b[i]) / 2))
    return torch.tensor(found, dtype=torch.float64)


def _jumps(f: Callable[[Tensor], Tensor], breaks: Tensor, size: _Size, reach: float) -> Tensor:
    gap = 1e-12 * breaks.abs().clamp(min=1e-3 * reach)
    right, left, allowed = f(breaks + gap), f(breaks - gap), size(breaks.abs().clamp(min=reach / 2))
    pole = ~(torch.maximum(left.abs(), right.abs()) <= _POLE * allowed)
    if pole.any():
        raise ValueError(f"activation must be finite, got a pole at {breaks[pole][0].item():.6g}")
    return breaks[(right - left).abs() > _JUMP * allowed]
