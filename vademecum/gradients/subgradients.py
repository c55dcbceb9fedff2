r"""Subdifferentials of the piecewise-linear units: all slopes of lines below the graph.

For convex $f$ the subdifferential is $\partial f(z) = \{g : f(u) \ge f(z) + g^T (u - z)$ for all
$u\}$. With slope $a \le 1$ of the leaky unit left of zero,

| unit | $z < 0$ | $z = 0$ | $z > 0$ |
|---|---|---|---|
| `abs`, $\lvert z \rvert$ | $-1$ | $[-1, 1]$ | $1$ |
| `relu`, $\max(0, z)$ | $0$ | $[0, 1]$ | $1$ |
| `leaky_relu`, $\max(a z, z)$ | $a$ | $[a, 1]$ | $1$ |

and $\partial \max_i z_i$ is the set of probability vectors on the coordinates that attain the
maximum: the $i$-th runs through $[0, 1]$ if it attains the maximum with others, is 1 if alone, and
else 0. Exact; a kink is where two numbers are equal, to the last bit.

References:
    Rockafellar, Convex Analysis, Princeton University Press, 1970.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vademecum.arguments import choice, floats, number
from vademecum.results import one_line

__all__ = ["Subdifferential", "subdifferential"]


class Subdifferential(NamedTuple):
    """The lowest and the highest slope at each entry; probability vectors in rows if `simplex`.

    Example:
        >>> at_kink = subdifferential("abs", torch.tensor([0.0]))
        >>> at_kink.contains(torch.tensor([0.5])), at_kink.contains(torch.tensor([1.5]))
        (tensor([True]), tensor([False]))
    """

    low: Tensor
    """The lowest slope at each entry."""
    high: Tensor
    """The highest."""
    simplex: bool = False
    """Whether rows must be probability vectors within these bounds."""

    __repr__ = one_line

    def contains(self, g: Float[Tensor, " *shape"], *, tol: float = 0.0) -> Bool[Tensor, " *batch"]:
        """Whether slopes are subgradients, entry by entry; for `max`, row by row.

        Args:
            g: Slopes, of a shape that broadcasts with the intervals.
            tol: By how much an entry, and the sum of a row, may be off.

        Example:
            >>> at_tie = subdifferential("max", torch.tensor([1.0, 1.0, 0.0]))
            >>> at_tie.contains(torch.tensor([0.25, 0.75, 0.0]))
            tensor(True)
            >>> at_tie.contains(torch.tensor([0.25, 0.25, 0.0]))
            tensor(False)
        """
        number("tol", tol, low=0)
        inside = (floats("g", g) >= self.low - tol) & (g <= self.high + tol)
        if not self.simplex:
            return inside
        return inside.all(-1) & ((g.sum(-1) - 1).abs() <= tol)


def subdifferential(
    unit: str, z: Float[Tensor, " *shape"], *, negative_slope: float = 0.01
) -> Subdifferential:
    r"""The subdifferential of a unit at each entry of `z`, or of the maximum of each row.

    Args:
        unit: "abs", "relu", "leaky_relu" or "max", the maximum along the last axis.
        z: Where.
        negative_slope: The slope $a$ of the leaky unit left of zero, at most 1.

    Returns:
        Intervals from `low` to `high`, of the shape of `z`. Those of "max" bound the coordinates of
        its set, the probability vectors within them.

    Raises:
        ValueError: If the unit is unknown, or the leaky unit is not convex.

    Example:
        >>> subdifferential("relu", torch.tensor([-2.0, 0.0, 3.0]))[:2]
        (tensor([0., 0., 1.]), tensor([0., 1., 1.]))
    """
    choice("unit", unit, ("abs", "relu", "leaky_relu", "max"))
    if floats("z", z).is_complex():
        raise ValueError(f"z must be real, got {z.dtype}")
    if unit == "max":
        if z.ndim == 0:
            raise ValueError("z must have an axis for the maximum, got a single number")
        top = z == z.amax(-1, keepdim=True)
        alone = top & (top.sum(-1, keepdim=True) == 1)
        return Subdifferential(alone.to(z.dtype), top.to(z.dtype), simplex=True)
    leak = number("negative_slope", negative_slope, low=-torch.finfo(z.dtype).max, high=1.0)
    left = {"abs": -1.0, "relu": 0.0, "leaky_relu": leak}[unit]
    one = torch.ones_like(z)
    return Subdifferential(torch.where(z > 0, one, left), torch.where(z < 0, left, one))
