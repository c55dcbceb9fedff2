r"""Minus log-likelihoods of outputs, with their derivatives in the outputs, chains side by side.

| likelihood | minus log, for an example | its derivative in $z$ |
|---|---|---|
| gaussian, noise $\delta$ | $\|y - z\|^2 / 2 \delta^2$ | $(z - y) / \delta^2$ |
| categorical | $\log \sum_j e^{z_j} - z_y$ | $\operatorname{softmax}(z) - e_y$ |
| bernoulli | $\log(1 + e^z) - y z$ | $\sigma(z) - y$ |

Constants are left out.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.arguments import choice, floats, number

__all__ = ["Likelihood", "likelihood_of"]

NAMES = ("gaussian", "categorical", "bernoulli")


class Likelihood:
    """Minus the log-likelihood: `total(z, y)` over the examples, and its derivative `slope(z, y)`.

    Outputs are (chains, n, ...); targets as well, or (1, n, ...) where all chains share them.
    """

    def __init__(
        self,
        losses: Callable[[Tensor, Tensor], Tensor],
        slope: Callable[[Tensor, Tensor], Tensor] | None = None,
    ):
        self._losses, self._slope = losses, slope

    def total(self, z: Tensor, y: Tensor) -> Tensor:
        """The sum over all examples, (chains,)."""
        found = self._losses(z, y)
        return found.flatten(1).sum(1)

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        """The derivative of the sum in the outputs."""
        if self._slope is not None:
            return self._slope(z, y)
        with torch.enable_grad():
            at = z.detach().requires_grad_()
            (found,) = torch.autograd.grad(self.total(at, y).sum(), at, materialize_grads=True)
        return found


def likelihood_of(
    likelihood: str | Callable[[Tensor, Tensor], Tensor], noise: float | Tensor, y: Tensor
) -> Likelihood:
    """A likelihood by its name, or by a function of outputs and targets of one chain."""
    if callable(likelihood):
        return Likelihood(_mapped(likelihood))
    choice("likelihood", likelihood, NAMES)
    if likelihood == "categorical":
        return _categorical(y)
    if not y.is_floating_point():
        raise ValueError(f"y must be floating point for likelihood {likelihood!r}, got {y.dtype}")
    floats("y", y)
    if likelihood == "bernoulli":
        if not bool(((y >= 0) & (y <= 1)).all()):
            raise ValueError("entries of y must be between 0 and 1 for likelihood 'bernoulli'")
        return Likelihood(
            lambda z, y: F.softplus(z) - _shaped(y, z) * z, lambda z, y: z.sigmoid() - _shaped(y, z)
        )
    return _gaussian(noise)


def _gaussian(noise: float | Tensor) -> Likelihood:
    if isinstance(noise, Tensor):
        if not bool((floats("noise", noise) > 0).all()):
            raise ValueError(f"entries of noise must be > 0, got {noise.min().item()}")
    else:
        noise = number("noise", noise, above=0)
    scale = noise**-2
    return Likelihood(
        lambda z, y: (z - _shaped(y, z)).square() * (scale / 2),
        lambda z, y: (z - _shaped(y, z)) * scale,
    )


def _categorical(y: Tensor) -> Likelihood:
    if y.is_floating_point() or y.is_complex() or y.ndim != 1:
        raise ValueError(
            f"y must be classes, integers of shape (n,), for likelihood 'categorical', got"
            f" {y.dtype} of shape {tuple(y.shape)}"
        )
    if int(y.min()) < 0:
        raise ValueError(f"y must be classes >= 0, got {int(y.min())}")

    def losses(z: Tensor, y: Tensor) -> Tensor:
        return z.logsumexp(-1) - z.gather(-1, _classes(y, z))[..., 0]

    def slope(z: Tensor, y: Tensor) -> Tensor:
        index = _classes(y, z)
        return z.softmax(-1).scatter_add(-1, index, z.new_full((), -1.0).expand(index.shape))

    return Likelihood(losses, slope)


def _classes(y: Tensor, z: Tensor) -> Tensor:
    return y.long().expand(z.shape[:-1])[..., None]


def _shaped(y: Tensor, z: Tensor) -> Tensor:
    """Targets beside outputs: a missing last axis of length one is added."""
    if y.shape[1:] == z.shape[1:]:
        return y
    if (*y.shape[1:], 1) == tuple(z.shape[1:]):
        return y[..., None]
    raise ValueError(
        f"y must have the shape of the model's outputs, {tuple(z.shape[1:])}, got"
        f" {tuple(y.shape[1:])}"
    )


def _mapped(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of the outputs and targets of one chain, for all chains."""

    def losses(z: Tensor, y: Tensor) -> Tensor:
        shared = len(y) == 1
        found = torch.func.vmap(function, (0, None if shared else 0))(z, y[0] if shared else y)
        if found.shape != z.shape[:2]:
            raise ValueError(
                f"likelihood must give one number for each of {z.shape[1]} examples, got shape"
                f" {tuple(found.shape[1:])}"
            )
        return found

    return losses
