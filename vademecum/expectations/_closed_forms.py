r"""Activations whose Gaussian integrals are known.

$\phi(u) = a u + b |u|$ (identity, ReLU, leaky ReLU, absolute value) has, with the correlation $c$,

$$\mathbb{E} \phi(u) \phi(v) = \sqrt{q q'} \bigl(a^2 c + b^2 K(c)\bigr), \quad
K(c) = \tfrac2\pi \bigl(\sqrt{1 - c^2} + c \arcsin c\bigr), \quad
\mathbb{E} \phi'(u) \phi'(v) = a^2 + b^2 K'(c) = a^2 + \tfrac{2 b^2}\pi \arcsin c,$$

and the error function $\mathbb{E} \phi(u) \phi(v) = \frac2\pi \arcsin \frac{2 c \sqrt{q q'}}
{\sqrt{(1 + 2 q)(1 + 2 q')}}$. With $a = \frac1{1 + 2 q}$, $b = \frac1{1 + 2 q'}$ the root of one
minus the square of this argument is that of $a + b - a b + (1 - a) (1 - b) (1 - c^2)$, which loses
no digits. Smooth activations are in `_smooth_forms`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.expectations._smooth_forms import Cosine, Gelu, Sine

__all__ = ["ClosedForm", "Erf", "TwoSlopes", "closed_form"]


class TwoSlopes(NamedTuple):
    """The function a u + b abs(u)."""

    a: float
    """The mean of both slopes."""
    b: float
    """Half of their difference."""

    def mean(self, q: Tensor) -> Tensor:
        """E phi(u)."""
        return self.b * (2 * q / math.pi).sqrt()

    def square(self, q: Tensor) -> Tensor:
        """E phi(u)^2."""
        return (self.a**2 + self.b**2) * q

    def product(self, q: Tensor, p: Tensor, c: Tensor) -> Tensor:
        """E phi(u) phi(v)."""
        return q.sqrt() * p.sqrt() * (self.a**2 * c + self.b**2 * _MeanProduct.apply(c))

    def slope_product(self, q: Tensor, p: Tensor, c: Tensor) -> Tensor:
        """E phi'(u) phi'(v)."""
        return self.a**2 + self.b**2 * 2 / math.pi * torch.asin(c) + 0 * (q + p)


class Erf(NamedTuple):
    """The error function."""

    def mean(self, q: Tensor) -> Tensor:
        """E phi(u)."""
        return 0 * q

    def square(self, q: Tensor) -> Tensor:
        """E phi(u)^2."""
        return self.product(q, q, torch.ones_like(q))

    def product(self, q: Tensor, p: Tensor, c: Tensor) -> Tensor:
        """E phi(u) phi(v)."""
        share = (2 * q / (1 + 2 * q)).sqrt() * (2 * p / (1 + 2 * p)).sqrt()
        return 2 / math.pi * torch.atan2(c * share, self._root(q, p, c))

    def slope_product(self, q: Tensor, p: Tensor, c: Tensor) -> Tensor:
        """E phi'(u) phi'(v)."""
        size = (1 + 2 * q).sqrt() * (1 + 2 * p).sqrt()
        return 4 / math.pi / size / self._root(q, p, c)

    def _root(self, q: Tensor, p: Tensor, c: Tensor) -> Tensor:
        a, b = 1 / (1 + 2 * q), 1 / (1 + 2 * p)
        return (a + b - a * b + (2 * q * a) * (2 * p * b) * ((1 - c) * (1 + c))).sqrt()


class _MeanProduct(torch.autograd.Function):
    """K, whose derivative is finite at the ends, where that of its terms is not."""

    @staticmethod
    def forward(ctx: Any, c: Tensor) -> Tensor:
        ctx.save_for_backward(c)
        return 2 / math.pi * (((1 - c) * (1 + c)).sqrt() + c * torch.asin(c))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (c,) = ctx.saved_tensors
        return grads[0] * 2 / math.pi * torch.asin(c)


_RELU, _ABS, _IDENTITY = TwoSlopes(0.5, 0.5), TwoSlopes(0.0, 1.0), TwoSlopes(1.0, 0.0)
ClosedForm = TwoSlopes | Erf | Gelu | Sine | Cosine
"""Any of the activations whose integrals are known."""
_FUNCTIONS: dict[Callable[..., Any], ClosedForm] = {
    torch.relu: _RELU, F.relu: _RELU, torch.Tensor.relu: _RELU,
    torch.abs: _ABS, torch.absolute: _ABS, torch.Tensor.abs: _ABS,
    torch.erf: Erf(), torch.special.erf: Erf(), torch.Tensor.erf: Erf(),
    F.leaky_relu: TwoSlopes(0.505, 0.495), F.gelu: Gelu(),
    torch.sin: Sine(), torch.Tensor.sin: Sine(), torch.cos: Cosine(), torch.Tensor.cos: Cosine(),
}  # fmt: skip


def closed_form(activation: Any) -> ClosedForm | None:
    """The closed form of an activation, if there is one."""
    kind = type(activation)
    if kind is nn.Identity:
        return _IDENTITY
    if kind is nn.ReLU:
        return _RELU
    if kind in (nn.LeakyReLU, nn.PReLU, nn.RReLU):
        return _leaky(activation)
    if kind is nn.GELU and activation.approximate == "none":
        return Gelu()
    hashable = getattr(kind, "__hash__", None) is not None
    return _FUNCTIONS.get(activation) if hashable else None


def _leaky(layer: Any) -> TwoSlopes:
    if isinstance(layer, nn.PReLU):
        if layer.weight.numel() != 1:
            raise ValueError(
                "activation must be one function for all units, got nn.PReLU with"
                f" {layer.weight.numel()} slopes"
            )
        slope = float(layer.weight.detach())
    else:
        leaky = isinstance(layer, nn.LeakyReLU)
        slope = layer.negative_slope if leaky else (layer.lower + layer.upper) / 2
    if not math.isfinite(slope):
        raise ValueError(f"activation must have a finite slope, got {slope}")
    return TwoSlopes((1 + slope) / 2, (1 - slope) / 2)
