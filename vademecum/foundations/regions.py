r"""Convex regions to search: a box, a ball, or whatever samples and projects.

A region $S \subset \mathbb R^d$ is searched through two methods alone: `sample` draws points of $S$
and `project` moves points to the nearest ones of $S$. For the box $\{x : l \le x \le h\}$ and the
ball $\{x : \|x - c\| \le r\}$ both are exact up to rounding,

$$P_{\mathrm{box}}(x) = \min(\max(x, l), h), \qquad
P_{\mathrm{ball}}(x) = c + \frac{x - c}{\max(1, \|x - c\| / r)},$$

and the samples are uniform. Any other convex set serves if its class has the two methods. The claim
is `convex_set`.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number
from vademecum.foundations.projections import l2_ball
from vademecum.randomness import source

__all__ = ["Ball", "Box", "Region"]


@runtime_checkable
class Region(Protocol):
    """A convex set that samples its points and projects onto itself.

    Example:
        >>> isinstance(Ball(torch.zeros(2), 1.0), Region)
        True
    """

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw n points, one a row.

        Args:
            n: How many.
            generator: Where random numbers come from; torch's global generator by default.
        """
        ...

    def project(self, x: Tensor) -> Tensor:
        """Move each row of x to the nearest point of the set."""
        ...


@dataclass(frozen=True, eq=False)
class Box:
    r"""The box $\{x : l \le x \le h\}$, coordinate by coordinate.

    Args:
        low: The lower corner $l$.
        high: The upper corner $h$, larger in every coordinate.

    Example:
        >>> Box(torch.zeros(2), torch.ones(2)).project(torch.tensor([[0.5, 7.0]]))
        tensor([[0.5000, 1.0000]])
    """

    low: Float[Tensor, " d"]
    high: Float[Tensor, " d"]

    def __post_init__(self) -> None:
        low, high = floats("low", self.low, ndim=1), floats("high", self.high, ndim=1)
        floats("high", high, width=len(low))
        if (low.dtype, low.device) != (high.dtype, high.device):
            raise ValueError(
                f"high must be {low.dtype} on {low.device} like low, got {high.dtype} on"
                f" {high.device}"
            )
        floats("high - low", high - low)
        if not (low < high).all():
            i = int((low >= high).nonzero()[0])
            raise ValueError(f"high must be > low, got {high[i].item()} and {low[i].item()} at {i}")

    def sample(
        self, n: int, *, generator: torch.Generator | None = None
    ) -> Float[Tensor, " {n} d"]:
        """Draw n points, uniformly.

        Args:
            n: How many.
            generator: Where random numbers come from; torch's global generator by default.
        """
        low, drawn = self.low, source(generator, self.low.device)
        u = torch.rand(n, len(low), dtype=low.dtype, **drawn)
        return torch.lerp(low, self.high, u.to(low.device))

    def project(self, x: Float[Tensor, " n d"]) -> Float[Tensor, " n d"]:
        """Clamp every coordinate."""
        return x.clamp(self.low, self.high)


@dataclass(frozen=True, eq=False)
class Ball:
    r"""The Euclidean ball $\{x : \|x - c\| \le r\}$.

    Args:
        centre: Its centre $c$.
        radius: Its radius $r > 0$.

    Example:
        >>> Ball(torch.zeros(2), 1.0).project(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """

    centre: Float[Tensor, " d"]
    radius: float

    def __post_init__(self) -> None:
        floats("centre", self.centre, ndim=1)
        limit = torch.finfo(self.centre.dtype).max / len(self.centre)  # as for projections
        number("radius", self.radius, above=0, high=limit)

    def sample(
        self, n: int, *, generator: torch.Generator | None = None
    ) -> Float[Tensor, " {n} d"]:
        """Draw n points, uniformly: a random direction times the d-th root of a random number.

        Args:
            n: How many.
            generator: Where random numbers come from; torch's global generator by default.
        """
        d, dtype, drawn = len(self.centre), self.centre.dtype, source(generator, self.centre.device)
        v, u = torch.randn(n, d, dtype=dtype, **drawn), torch.rand(n, 1, dtype=dtype, **drawn)
        v = torch.nn.functional.normalize(v, dim=1) * u ** (1 / d)
        return self.centre + self.radius * v.to(self.centre.device)

    def project(self, x: Float[Tensor, " n d"]) -> Float[Tensor, " n d"]:
        """Shrink what lies outside towards the centre."""
        return self.centre + l2_ball(x - self.centre, self.radius)
