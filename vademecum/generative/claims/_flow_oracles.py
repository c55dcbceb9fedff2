"""What claims on flows share: a map of somebody else's, Jacobians by autograd, counted work."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vademecum.claims import Evidence, at_most
from vademecum.generative import LinearFlow

__all__ = [
    "Sinh",
    "affine_map",
    "follows",
    "jacobians",
    "mixed",
    "multiply_adds",
    "normal_density",
]


class Sinh(nn.Module):
    """The map z = sinh(x) of each coordinate, whose data have light tails."""

    context = 0

    def __init__(self, d: int):
        super().__init__()
        self.d = d

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Take data to noise."""
        return torch.sinh(x), torch.cosh(x).log().sum(1)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Take noise to data."""
        return torch.asinh(z), -0.5 * torch.log1p(z.square()).sum(1)


def mixed(d: int, kind: Any = "qr") -> LinearFlow:
    """A random linear flow whose scales are between 0.6 and 1.7, away from the identity."""
    flow = LinearFlow(d, kind=kind)
    flow.log_scale.data.uniform_(-0.5, 0.5)
    flow.shift.data.uniform_(-1, 1)
    if flow.mixing is not None:
        flow.mixing.data.uniform_(0.3 / d**0.5, 0.8 / d**0.5)
    return flow.requires_grad_(False)


def affine_map(flow: Any) -> tuple[Tensor, Tensor]:
    """The matrix and the shift of x = A z + b, read off where it takes the origin and the axes."""
    b = flow.inverse(torch.zeros(1, flow.d)).value
    return (flow.inverse(torch.eye(flow.d)).value - b).T, b[0]


def normal_density(x: Any, mean: Any, covariance: Any) -> np.ndarray:
    """The normal log-density at rows of x, by SciPy."""
    law: Any = stats.multivariate_normal
    return law.logpdf(np.asarray(x), np.asarray(mean), np.asarray(covariance))


@torch.enable_grad()
def jacobians(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The Jacobian of a map of rows at each row, which depends on that row alone.

    By autograd, which knows values only: exact up to rounding, also beside kinks.
    """
    x = x.detach().requires_grad_()
    rows = [torch.autograd.grad(column.sum(), x, retain_graph=True)[0] for column in f(x).T]
    return torch.stack(rows, 1)


def _substitution(matrix: Any, right: Any, *args: Any, **kwargs: Any) -> int:
    """Operations of a substitution, two for each entry of the triangle and right-hand side."""
    d, own = matrix[-1], -1 if kwargs.get("unitriangular") else 1
    return math.prod(right) // d * d * (d + own)


def multiply_adds(f: Callable[[Tensor], Any], d: int) -> int:
    """How many multiply-adds in products and substitutions one more point costs."""
    solve: Any = torch.ops.aten.linalg_solve_triangular
    counted = []
    for n in (8, 16):
        x = torch.randn(n, d)
        with FlopCounterMode(display=False, custom_mapping={solve: _substitution}) as counter:
            f(x)
        counted.append(counter.get_total_flops())
    return (counted[1] - counted[0]) // 16


def follows(name: str, x: Tensor, cdf: Callable[[np.ndarray], np.ndarray], **at: Any) -> Evidence:
    """A sample is from a law: the greatest distance of distribution functions.

    By the inequality of Dvoretzky, Kiefer and Wolfowitz, with Massart's constant, it exceeds the
    bound with a probability of at most 1e-7.
    """
    data = np.sort(x.detach().numpy().ravel())
    n, F = len(data), cdf(data)
    steps = np.arange(n + 1) / n
    distance = max(np.max(steps[1:] - F), np.max(F - steps[:-1]))
    return at_most(name, float(distance), math.sqrt(math.log(2 / 1e-7) / (2 * n)), **at)
