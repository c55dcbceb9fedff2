r"""The curvature of minus log-likelihoods in the outputs of an example, $\Lambda = L L^\top$.

With $D(v)$ for the diagonal matrix of v:

| likelihood | $\Lambda$ | $L$ |
|---|---|---|
| gaussian, noise $\delta$ | $I / \delta^2$ | $I / \delta$ |
| categorical | $D(p) - p p^\top$ | $D(\sqrt p) - p \sqrt p^\top$ |
| bernoulli | $D(p (1 - p))$ | $D(\sqrt{p (1 - p)})$ |

It does not depend on the targets. Exact up to rounding.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.arguments import choice, floats, number

__all__ = ["OutputCurvature"]

LIKELIHOODS = ("gaussian", "categorical", "bernoulli")


class OutputCurvature:
    """A likelihood of targets (n, k), or classes (n,), around outputs (n, k).

    Args:
        likelihood: Its name.
        noise: The standard deviation of Gaussian targets.
    """

    def __init__(self, likelihood: str, noise: float):
        self.name = choice("likelihood", likelihood, LIKELIHOODS)
        self.noise = number("noise", noise, above=0)

    def targets(self, y: Tensor, z: Tensor) -> Tensor:
        """Targets that fit outputs (n, k), in their shape if they are no classes."""
        if not isinstance(y, Tensor):
            raise ValueError(f"y must be a tensor, got {type(y).__name__}")
        if self.name == "categorical":
            if y.is_floating_point() or y.shape != z.shape[:1]:
                shape = f"{y.dtype} of shape {tuple(y.shape)}"
                raise ValueError(f"y must be classes, integers of shape ({len(z)},), got {shape}")
            if int(y.min()) < 0 or int(y.max()) >= z.shape[1]:
                ends = f"{int(y.min())} to {int(y.max())}"
                raise ValueError(f"y must be classes from 0 to {z.shape[1] - 1}, got {ends}")
            return y.long().to(z.device)
        floats("y", y)
        if y.shape not in ((len(z), *z.shape[1:]), z.shape[:1]) or y.numel() != z.numel():
            raise ValueError(f"y must have shape {tuple(z.shape)}, got {tuple(y.shape)}")
        if self.name == "bernoulli" and not bool(((y >= 0) & (y <= 1)).all()):
            raise ValueError("entries of y must be between 0 and 1 for likelihood 'bernoulli'")
        return y.to(z).view(z.shape)

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """Minus the log-likelihood of all examples, with constants."""
        if self.name == "categorical":
            return F.cross_entropy(z, y, reduction="sum")
        if self.name == "bernoulli":
            return F.binary_cross_entropy_with_logits(z, y.view(z.shape), reduction="sum")
        constant = math.log(2 * math.pi * self.noise**2) / 2 * z.numel()
        return (z - y.view(z.shape)).square().sum() / (2 * self.noise**2) + constant

    def diagonal(self, z: Tensor) -> Tensor:
        r"""The diagonals of $\Lambda$, (n, k)."""
        if self.name == "gaussian":
            return torch.full_like(z, self.noise**-2)
        p = z.softmax(1) if self.name == "categorical" else z.sigmoid()
        return p * (1 - p)

    def total(self, z: Tensor) -> Tensor:
        r"""The sum of $\Lambda$ over the examples, (k, k)."""
        total = torch.diag(self.diagonal(z).sum(0))
        if self.name != "categorical":
            return total
        p = z.softmax(1)
        return torch.diag(p.sum(0)) - p.T @ p

    def root(self, z: Tensor) -> Tensor:
        r"""The factors $L$, (n, k, k)."""
        if self.name != "categorical":
            return torch.diag_embed(self.diagonal(z).sqrt())
        p = z.softmax(1)
        return torch.diag_embed(p.sqrt()) - p[:, :, None] * p.sqrt()[:, None]
