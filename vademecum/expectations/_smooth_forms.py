r"""Smooth activations whose Gaussian integrals are known: exact GELU, sine and cosine.

With $a = \frac1{1 + q}$, $A = q a$ ($b$, $B$ for $q'$), $t = c \sqrt{A B}$ and $D^2 = a + b - a b +
A B (1 - c^2) = 1 - t^2$, GELU $\phi(u) = u\, \Phi(u)$ has

$$\mathbb{E} \phi(u) \phi(v) = \frac{c \sqrt{q q'}}4 + \frac1{2 \pi} \Bigl(\frac{t^2 \sqrt{a b}}D +
\sqrt{q q' A B}\, D + c \sqrt{q q'} \arcsin t\Bigr), \quad
\mathbb{E} \phi'(u) \phi'(v) = \frac14 + \frac1{2 \pi} \Bigl(\arcsin t + \frac tD \bigl(a + b +
\frac{a b}{D^2}\bigr)\Bigr),$$

and with $k = c \sqrt{q q'}$

$$\mathbb{E} \sin u \sin v = e^{-(q + q') / 2} \sinh k, \qquad
\mathbb{E} \cos u \cos v = e^{-(q + q') / 2} \cosh k,$$

where exponents are taken together, $k - \frac{q + q'}2 = -\frac12 (\sqrt q - \sqrt{q'})^2 -
\sqrt{q q'}\,(1 - c)$. No term overflows for variances up to $10^{30}$, in single precision too.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Cosine", "Gelu", "Sine"]


class Gelu(NamedTuple):
    """The Gaussian error linear unit, exactly."""

    def mean(self, q: Tensor) -> Tensor:
        """E phi(u)."""
        return q.sqrt() * (q / (1 + q)).sqrt() / math.sqrt(2 * math.pi)

    def square(self, q: Tensor) -> Tensor:
        """E phi(u)^2."""
        return self.product(q, q, torch.ones_like(q))

    def product(self, q: Tensor, p: Tensor, c: Tensor) -> Tensor:
        """E phi(u) phi(v)."""
        a, b = 1 / (1 + q), 1 / (1 + p)
        A, B, size = q * a, p * b, q.sqrt() * p.sqrt()
        t = c * (A.sqrt() * B.sqrt())
        D = (a + b - a * b + A * B * ((1 - c) * (1 + c))).sqrt()
        odd = t**2 * (a.sqrt() * b.sqrt()) / D + size * (A.sqrt() * B.sqrt()) * D
        return size * c / 4 + (odd + size * c * _inverse_sine(t, D)) / (2 * math.pi)

    def slope_product(self, q: Tensor, p: Tensor, c: Tensor) -> Tensor:
        """E phi'(u) phi'(v)."""
        a, b = 1 / (1 + q), 1 / (1 + p)
        A, B = q * a, p * b
        t = c * (A.sqrt() * B.sqrt())
        D = (a + b - a * b + A * B * ((1 - c) * (1 + c))).sqrt()
        rest = t / D * (a + b + (a / D) * (b / D))
        return 0.25 + (_inverse_sine(t, D) + rest) / (2 * math.pi)


class Sine(NamedTuple):
    """The sine."""

    def mean(self, q: Tensor) -> Tensor:
        """E phi(u)."""
        return 0 * q

    def square(self, q: Tensor) -> Tensor:
        """E phi(u)^2."""
        return -torch.expm1(-2 * q) / 2

    def product(self, q: Tensor, p: Tensor, c: Tensor) -> Tensor:
        """E phi(u) phi(v)."""
        return _odd(q, p, c)

    def slope_product(self, q: Tensor, p: Tensor, c: Tensor) -> Tensor:
        """E phi'(u) phi'(v)."""
        return _even(q, p, c)


class Cosine(NamedTuple):
    """The cosine."""

    def mean(self, q: Tensor) -> Tensor:
        """E phi(u)."""
        return torch.exp(-q / 2)

    def square(self, q: Tensor) -> Tensor:
        """E phi(u)^2."""
        return (1 + torch.exp(-2 * q)) / 2

    def product(self, q: Tensor, p: Tensor, c: Tensor) -> Tensor:
        """E phi(u) phi(v)."""
        return _even(q, p, c)

    def slope_product(self, q: Tensor, p: Tensor, c: Tensor) -> Tensor:
        """E phi'(u) phi'(v)."""
        return _odd(q, p, c)


def _inverse_sine(t: Tensor, D: Tensor) -> Tensor:
    """The arcsine of t, with the root of 1 - t^2 given: t alone has lost it near 1."""
    return torch.atan2(t, D)


def _ends(q: Tensor, p: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The exponentials of k and -k, less (q + p) / 2."""
    mine, its = q.sqrt(), p.sqrt()
    apart = -((mine - its) ** 2) / 2
    return torch.exp(apart - mine * its * (1 - c)), torch.exp(apart - mine * its * (1 + c))


def _even(q: Tensor, p: Tensor, c: Tensor) -> Tensor:
    up, down = _ends(q, p, c)
    return (up + down) / 2


def _odd(q: Tensor, p: Tensor, c: Tensor) -> Tensor:
    up, down = _ends(q, p, c)
    k = q.sqrt() * p.sqrt() * c
    small = k.abs() < 1  # where the difference would lose digits
    near = torch.exp(-(q + p).clamp(max=1e3) / 2) * torch.sinh(k.clamp(-1, 1))
    return torch.where(small, near, (up - down) / 2)
