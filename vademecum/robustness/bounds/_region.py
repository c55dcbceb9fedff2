r"""Where an input may be: in a ball around it and in a box, entry by entry and as a whole.

A point of the ball $\|z - x\|_p \le \epsilon$ within the box $[l, h]$ has entries between
$\max(l, x_i - \epsilon)$ and $\min(h, x_i + \epsilon)$, ends that are rounded outwards. A linear
function $a^T z$ is at least

$$\max\Big( a^T m - |a|^T \rho,\; a^T x - \epsilon \|a\|_q \Big), \qquad \tfrac1p + \tfrac1q = 1,$$

with centre $m$ and half-widths $\rho$ of that box: the one bound is exact for the box and the other
for the ball, of which neither knows of the other. The rounding of these sums of $d$ products is
at most $\gamma_{d+8} |a|^T \max |z|$, and taken off.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.robustness._threat import NORMS, Threat, per_example
from vademecum.robustness.bounds._affine_steps import Ends
from vademecum.robustness.bounds._rounding import Arithmetic, down, gamma, lengths, up
from vademecum.robustness.bounds._windows import Window, features, spread

__all__ = ["Region", "as_region"]


class Region(NamedTuple):
    """The inputs that bounds are for."""

    x: Tensor
    """The centres of the balls."""
    radius: Tensor
    """Their radii, rounded up."""
    norm: str
    """Their norm."""
    ends: Ends
    """The least and largest value of every entry."""

    @property
    def dual(self) -> float:
        """The exponent of the dual norm."""
        return {"linf": 1.0, "l2": 2.0, "l1": torch.inf}[self.norm]

    @property
    def size(self) -> Tensor:
        """The largest modulus of every entry."""
        return torch.maximum(-self.ends[0], self.ends[1])

    def rows(self, index: Tensor | slice) -> "Region":
        """The same for some of the examples."""
        low, high = self.ends
        return Region(self.x[index], self.radius[index], self.norm, (low[index], high[index]))

    def least(self, rows: Tensor, window: Window | None, arithmetic: Arithmetic) -> Tensor:
        """Lower bounds `(n, r)` of linear functions of inputs, in double precision.

        Args:
            rows: Their coefficients `(n, r, *shape)`, or those on windows.
            window: Where the windows lie.
            arithmetic: The dtype of the coefficients, and how far sums of them are off.
        """
        a = features(rows)
        low, high, x = (features(spread(t, window)) for t in (*self.ends, self.x))
        middle, size = (low + high) / 2, torch.maximum(-low, high)
        half = torch.maximum(high - middle, middle - low)
        slack = 2 * gamma(a.shape[2] + 16, arithmetic.own)
        slack, moduli = slack / (1 - slack), a.abs()
        least = _dot(a, middle) - _dot(moduli, half + size * slack)
        if self.norm != "linf":
            real = 1 if window is None else features(spread(torch.ones_like(self.x), window))
            length = lengths(a * real, self.dual, 2)  # not what is padded
            reach = length.double() * self.radius.double()[:, None] * (1 + slack)
            least = torch.maximum(least, _dot(a, x) - reach - _dot(moduli, size) * slack)
        return least - arithmetic.underflow(a.shape[2]) * (1 + size.amax().double())


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return ((a @ b.mT)[..., 0] if b.shape[1] == 1 else (a * b).sum(2)).double()


def as_region(x: Tensor, threat: Threat, arithmetic: Arithmetic) -> Region:
    """The inputs that an adversary may choose, in the dtype of the bounds."""
    assert threat.norm in NORMS
    x = x.detach().to(arithmetic.own)
    radius = threat.radius.to(arithmetic.own)
    r = per_example(radius, x)
    low, high = down(x - r), up(x + r)
    low, high = (torch.where(r > 0, end, x) for end in (low, high))
    if threat.box is not None:
        low, high = low.clamp(min=threat.box[0]), high.clamp(max=threat.box[1])
    return Region(x, radius, threat.norm, (low, high))
