r"""Maxima over windows: what they do to boxes, and the linear functions between which they lie.

The box of $y = \max_i z_i$, $z_i \in [l_i, u_i]$, is $[\max_i l_i, \max_i u_i]$, exactly. With $j$
the entry of largest lower end, $y \ge z_j$. If $l_j \ge u_i$ for all others then $y = z_j$; else $y
\le \max_i u_i$, a constant; where windows overlap it is always taken. Comparisons do not round, so
the run computes the same; only the coefficients of an entry that is the chosen one of several
windows are added up.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vademecum.models import Call, Value
from vademecum.robustness.bounds._affine_steps import Ends
from vademecum.robustness.bounds._rounding import Arithmetic, gamma

__all__ = ["POOLS", "Chosen", "PoolStep", "pooling"]

POOLS = frozenset(f"max_pool{i}d{end}" for i in (1, 2, 3) for end in ("", "_with_indices"))
"""The names of calls that are such steps."""
_POOLING: dict[int, Callable[..., Any]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


class Chosen(NamedTuple):
    """Which entry stands for each window."""

    place: Tensor
    """Its place among all entries of its channel."""
    decided: Tensor
    """Whether it is the largest for all inputs."""
    high: Tensor
    """The largest upper end where it is not, else 0."""
    slack: Tensor
    """What rounding may cost for each unit of a coefficient."""


class PoolStep:
    """A step that takes the largest entry of every window.

    Args:
        name: The submodule or function, for messages.
        inputs: The number of the value that it reads.
        output: The number of the value that it makes.
        options: Kernel, stride, padding, dilation and whether sizes are rounded up.
        axes: How many axes windows have.
    """

    def __init__(
        self, name: str, inputs: tuple[int, ...], output: int, options: dict[str, Any], axes: int
    ):
        self.name, self.inputs, self.output = name, inputs, output
        self.options, self.axes = options, axes

    def __call__(self, h: Tensor) -> Tensor:
        """The step on points."""
        return _POOLING[self.axes](h, **self.options)

    def box(self, ends: Ends, arithmetic: Arithmetic) -> Ends:
        """The box of the maxima."""
        return self(ends[0]), self(ends[1])

    def undecided(self, ends: Ends) -> Tensor:
        """All entries: which of them matter depends on the others."""
        return ends[0] < ends[1]

    @property
    def taps(self) -> int:
        """The entries of a window."""
        return torch.Size(_many(self.options["kernel_size"], self.axes)).numel()

    @property
    def overlap(self) -> int:
        """The most windows that an entry is in."""
        kernel = _many(self.options["kernel_size"], self.axes)
        stride = _many(self.options.get("stride") or kernel, self.axes)
        dilation = _many(self.options.get("dilation", 1), self.axes)
        apart = [s // math.gcd(s, d) for s, d in zip(stride, dilation, strict=True)]  # in taps
        return torch.Size(-(-k // a) for k, a in zip(kernel, apart, strict=True)).numel()

    @property
    def apart(self) -> bool:
        """Whether no two windows share an entry."""
        kernel = _many(self.options["kernel_size"], self.axes)
        stride = _many(self.options.get("stride") or kernel, self.axes)
        dilation = _many(self.options.get("dilation", 1), self.axes)
        return all(d * (k - 1) < s for k, s, d in zip(kernel, stride, dilation, strict=True))

    def chosen(self, ends: Ends, arithmetic: Arithmetic) -> Chosen:
        """Which entries stand for windows."""
        l, u = ends
        index = _POOLING[self.axes](l, **self.options, return_indices=True)[1]
        high, decided = self(u), self._decided(ends, index)
        slack = self(torch.maximum(-l, u)) * gamma(
            2 * self.taps + 8 + high[0].numel(), arithmetic.own
        )  # upper ends of all windows are summed up
        return Chosen(index, decided, high.masked_fill(decided, 0), slack)

    def _without(self, u: Tensor, index: Tensor) -> Tensor:
        """The upper ends, those of chosen entries left out."""
        flat = u.flatten(-self.axes).scatter(-1, index.flatten(-self.axes), -torch.inf)
        return flat.view_as(u)

    def pull(self, rows: Tensor, chosen: Chosen, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Coefficients `(n, r, *shape)` of maxima, for a lower bound, as those of the entries."""
        place = chosen.place.flatten(-self.axes)[:, None]
        above, below = rows.clamp(min=0), rows.clamp(max=0)
        spent = below.flatten(2) @ (chosen.high + chosen.slack).flatten(1)[..., None]
        spent = spent - above.flatten(2) @ chosen.slack.flatten(1)[..., None]
        kept = above + below * chosen.decided[:, None]
        flat = kept.new_zeros(*rows.shape[:2], *shape).flatten(-self.axes)
        flat = flat.scatter_add(-1, place.expand(*rows.shape[:2], *place.shape[2:]),
                                kept.flatten(-self.axes))  # fmt: skip
        return flat.view(*rows.shape[:2], *shape), spent[..., 0]

    def pull_interval(self, centre: Tensor, half: Tensor, ends: Ends) -> tuple[Tensor, Tensor]:
        """Intervals of derivatives `(n, k, *shape)` by maxima as those by the entries.

        The derivative of a maximum is 1 for its largest entry, and 0 for the others.
        """
        shape = ends[0].shape[1:]
        index = _POOLING[self.axes](ends[0], **self.options, return_indices=True)[1]
        decided = self._decided(ends, index)[:, None]
        low, high = (centre - half).clamp(max=0), (centre + half).clamp(min=0)
        middle, wide = (low + high) / 2, (high - low) / 2 * (1 + 2.0**-48)
        place = index.flatten(-self.axes)[:, None]
        place = place.expand(*centre.shape[:2], *place.shape[2:])

        def placed(rows: Tensor) -> Tensor:
            flat = rows.new_zeros(*rows.shape[:2], *shape).flatten(-self.axes)
            flat = flat.scatter_add(-1, place, rows.flatten(-self.axes))
            return flat.view(*rows.shape[:2], *shape)

        open_ = ~decided
        found = placed(centre * decided) + self._shown(middle * open_, shape)
        wide = placed((half + centre.abs() * 2.0**-44) * decided) + self._shown(wide * open_, shape)
        return found, wide * (1 + 2.0**-44) + found.abs() * 2.0**-44

    def _decided(self, ends: Ends, index: Tensor) -> Tensor:
        others = self(self._without(ends[1], index)) if self.apart else self(ends[1])
        return self(ends[0]) >= others

    def _shown(self, rows: Tensor, shape: torch.Size) -> Tensor:
        """For each entry the sum over the windows that it is in."""
        flat = rows.flatten(0, 1)
        with torch.enable_grad():
            h = flat.new_zeros(len(flat), *shape).requires_grad_()
            out = _sum_pool(h, self.options, self.axes, flat.shape[2:])
            (back,) = torch.autograd.grad(out, h, flat)
        return back.view(*rows.shape[:2], *shape)


def _sum_pool(h: Tensor, options: dict[str, Any], axes: int, counts: torch.Size) -> Tensor:
    """The sums over windows, which reach beyond the padding where sizes were rounded up."""
    kernel = _many(options["kernel_size"], axes)
    stride = _many(options.get("stride") or kernel, axes)
    padding, dilation = (
        _many(options.get(k, d), axes) for k, d in (("padding", 0), ("dilation", 1))
    )
    each = zip(h.shape[2:], counts, kernel, stride, padding, dilation, strict=True)
    more = [max(0, (m - 1) * s + d * (k - 1) + 1 - n - 2 * p) for n, m, k, s, p, d in each]
    pads = [q for p, e in zip(reversed(padding), reversed(more), strict=True) for q in (p, p + e)]
    h = F.pad(h, pads)
    weight = h.new_ones(h.shape[1], 1, *kernel)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    out = convolve(h, weight, None, stride, 0, dilation, h.shape[1])
    return out[(..., *(slice(m) for m in counts))]


def _many(value: Any, axes: int) -> tuple[int, ...]:
    value = tuple(value) if isinstance(value, tuple | list) else (value,)
    return value * axes if len(value) == 1 else value


def pooling(call: Call, out: Value) -> dict[str, Any] | None:
    """The options of a pooling call; None where its indices count."""
    if out is not call.outputs[0]:
        return None
    names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    return {k: given[k] for k in names[1:-1] if k in given}
