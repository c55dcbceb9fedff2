r"""What every flow can do: a density from an invertible map $f$ of data to noise.

$$\log p(x \mid c) = \log \mathcal N(f(x; c); 0, I) + \log |\det \partial_x f(x; c)| , \qquad
x = f^{-1}(z; c),\ z \sim \mathcal N(0, I) .$$

`forward` is $f$ and `inverse` is $f^{-1}$, each with the logarithm of its own determinant. Exact up
to rounding; checked by the claims `generative.change_of_variables` and
`generative.flow_log_likelihood`.
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["Flow", "FlowSample", "Transformed", "log_normal"]


class Transformed(NamedTuple):
    """Where an invertible map takes points, and how much it stretches volume there.

    Example:
        >>> Transformed(torch.zeros(1, 2), torch.zeros(1))
        Transformed(value=tensor([[0., 0.]]), log_det=tensor([0.]))
    """

    value: Tensor
    """The images, (n, d)."""
    log_det: Tensor
    """The logarithm of the absolute determinant of the map's Jacobian at each point, (n,)."""
    __repr__ = one_line


class FlowSample(NamedTuple):
    """Draws from a density, with the logarithm of the density at each.

    Example:
        >>> FlowSample(torch.zeros(1, 2), torch.zeros(1))
        FlowSample(value=tensor([[0., 0.]]), log_prob=tensor([0.]))
    """

    value: Tensor
    """The draws, (n, d)."""
    log_prob: Tensor
    """The log-density at each draw, (n,)."""
    __repr__ = one_line


def log_normal(z: Tensor) -> Tensor:
    """The standard normal log-density of each row.

    Example:
        >>> log_normal(torch.zeros(1, 2))
        tensor([-1.8379])
    """
    return -0.5 * (z.square().sum(-1) + z.shape[-1] * math.log(2 * math.pi))


class Flow(nn.Module, ABC):
    """An invertible map of data to standard normal noise, and the density that it stands for.

    Args:
        d: How many coordinates there are.
        context: How wide the context is, 0 for none.
    """

    def __init__(self, d: int, context: int = 0):
        super().__init__()
        self.d = whole("d", d, low=1)
        self.context = whole("context", context, low=0)

    @abstractmethod
    def forward(self, x: Tensor, context: Tensor | None = None) -> Transformed:
        """Take data to noise.

        Args:
            x: Data, (n, d).
            context: What to condition on, (n, context), or (context,) for all rows.
        """

    @abstractmethod
    def inverse(self, z: Tensor, context: Tensor | None = None) -> Transformed:
        """Take noise to data.

        Args:
            z: Noise, (n, d).
            context: What to condition on, (n, context), or (context,) for all rows.
        """

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """The log-density at each row of x.

        Args:
            x: Data, (n, d).
            context: What to condition on, (n, context), or (context,) for all rows.
        """
        z, log_det = self(x, context)
        return log_normal(z) + log_det

    @torch.no_grad()
    def sample(
        self, n: int, context: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw n rows; no gradient reaches the parameters.

        Args:
            n: How many.
            context: What to condition on, (n, context), or (context,) for all rows.
            generator: Where random numbers come from; torch's global generator by default.
        """
        return self.inverse(self._noise(n, generator), context).value

    def rsample_with_log_prob(
        self, n: int, context: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> FlowSample:
        """Draw n rows with their log-densities, both differentiable in the parameters.

        Args:
            n: How many.
            context: What to condition on, (n, context), or (context,) for all rows.
            generator: Where random numbers come from; torch's global generator by default.
        """
        z = self._noise(n, generator)
        x, log_det = self.inverse(z, context)
        return FlowSample(x, log_normal(z) - log_det)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"d={self.d}" + (f", context={self.context}" if self.context else "")

    def _noise(self, n: int, generator: torch.Generator | None) -> Tensor:
        n = whole("n", n, low=1)
        here = next(self.parameters(), torch.empty(0))
        drawn = torch.randn(n, self.d, dtype=here.dtype, **source(generator, here.device))
        return drawn.to(here.device)

    def _given(self, x: Tensor, context: Tensor | None, name: str = "x") -> Tensor | None:
        """Refuse what does not fit; the context with a row for each of x."""
        here = next(self.parameters(), None)
        if x.ndim != 2 or x.shape[1] != self.d:
            raise ValueError(f"{name} must have shape (n, {self.d}), got {tuple(x.shape)}")
        if here is None and not x.is_floating_point():
            raise ValueError(f"{name} must be floating point, got {x.dtype}")
        if here is not None and (x.dtype != here.dtype or x.device != here.device):
            raise ValueError(
                f"{name} must be {here.dtype} on {here.device} like the parameters, got"
                f" {x.dtype} on {x.device}"
            )
        return matching_context(context, self.context, x)


def matching_context(context: Tensor | None, width: int, x: Tensor) -> Tensor | None:
    """The context with a row for each of x; None where the width is 0.

    Example:
        >>> matching_context(torch.ones(2), 2, torch.zeros(3, 5)).shape
        torch.Size([3, 2])
    """
    if not width:
        if context is not None:
            raise ValueError(
                "context must be None, since this density was made without, got shape"
                f" {tuple(context.shape)}"
            )
        return None
    if context is None:
        raise ValueError(f"context must have shape ({len(x)}, {width}) or ({width},), got None")
    if context.shape not in ((width,), (len(x), width)):
        raise ValueError(
            f"context must have shape ({len(x)}, {width}) or ({width},), got {tuple(context.shape)}"
        )
    if context.dtype != x.dtype or context.device != x.device:
        raise ValueError(
            f"context must be {x.dtype} on {x.device} like the data, got {context.dtype} on"
            f" {context.device}"
        )
    return context.expand(len(x), width)
