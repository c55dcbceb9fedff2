r"""What an activation does to covariances, for whole blocks of pairs at once.

For $(u, v)$ Gaussian with variances $q, q'$ and covariance $k$, and $c = k / \sqrt{q q'}$,

$$\hat\phi = \mathbb{E} \phi(u) \phi(v), \qquad \hat\phi' = \mathbb{E} \phi'(u) \phi'(v) .$$

An activation is recognised by what it computes, $\phi(t) = A\, f(\beta t)$ with a known $f$, so
however it is written: the closed forms are those of `vademecum.expectations`, but $a t + b |t|$ is
done in place,

$$\hat\phi' = a^2 + \tfrac{2 b^2}\pi \arcsin c, \qquad
\hat\phi = \sqrt{q q'} \bigl(c\, \hat\phi' + \tfrac{2 b^2}\pi \sqrt{1 - c^2}\bigr) .$$

Correlations within a few roundings of $\pm 1$ are taken for $\pm 1$, where $\arcsin$ would make
half of the digits of a rounding.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from vademecum.expectations import ClosedForm, Cosine, Erf, Gelu, Sine, TwoSlopes
from vademecum.kernels.wide._fused import activated
from vademecum.kernels.wide._workspace import Workspace

__all__ = ["Closed", "Dual", "Slopes", "correlation", "known_dual"]

_SNAP = {torch.float64: 32, torch.float32: 8}  # roundings of a correlation


@runtime_checkable
class Dual(Protocol):
    """The map of covariances that belongs to an activation."""

    def mean(self, q: Tensor) -> Tensor:
        """The mean of the activation."""
        ...

    def maps(
        self, k: Tensor, q: Tensor, p: Tensor, room: Workspace, *, slopes: bool, owned: bool
    ) -> tuple[Tensor, Tensor | None, float]:
        """Covariances after the activation, products of slopes, and a factor of the latter.

        Args:
            k: Covariances, which may be overwritten if they are owned.
            q: Variances of the first numbers, which broadcast to those.
            p: Variances of the second.
            room: Where blocks come from.
            slopes: Whether products of slopes are wanted.
            owned: Whether the covariances may be overwritten.
        """
        ...


def correlation(k: Tensor, q: Tensor, p: Tensor, *, owned: bool) -> Tensor:
    """Covariances as correlations, 0 where a variance is."""
    mine, its = _inverse_root(q) * _snap(k.dtype), _inverse_root(p)
    c = k.mul_(mine) if owned else k * mine
    return c.mul_(its).clamp_(-1, 1)


def _snap(dtype: torch.dtype) -> float:
    return 1 + _SNAP[dtype] * torch.finfo(dtype).eps


def _inverse_root(q: Tensor) -> Tensor:
    return torch.where(q > 0, q.rsqrt(), 0)


class Slopes(NamedTuple):
    """The function a t + b abs(t)."""

    a: float
    b: float

    def mean(self, q: Tensor) -> Tensor:
        return TwoSlopes(self.a, self.b).mean(q)

    @property
    def share(self) -> float:
        """The factor of products of slopes."""
        return 2 * self.b**2 / math.pi

    def fused(
        self, k: Tensor, theta: Tensor | None, q: Tensor, p: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Covariances and tangent kernels over the factor, by one kernel on CUDA."""
        n, m = k.shape[:2]
        return activated(
            k, theta, q.reshape(n, -1), p.reshape(m, -1),
            self.a**2 / self.share, self.share, _snap(k.dtype),
        )  # fmt: skip

    def maps(
        self, k: Tensor, q: Tensor, p: Tensor, room: Workspace, *, slopes: bool, owned: bool
    ) -> tuple[Tensor, Tensor | None, float]:
        a, b = self.a**2, self.share
        if b == 0:
            return (k.mul_(a) if owned else k * a), (torch.full_like(k, a) if slopes else None), 1.0
        c = correlation(k, q, p, owned=owned)
        slope = torch.asin(c, out=room.empty(c.shape, c))
        if a:
            slope.add_(a / b)
        root = torch.addcmul(_one(c), c, c, value=-1, out=room.empty(c.shape, c)).sqrt_()
        root.addcmul_(c, slope).mul_(q.sqrt() * b).mul_(p.sqrt())
        return root, (slope if slopes else None), b


def _one(like: Tensor) -> Tensor:
    return torch.ones((), dtype=like.dtype, device=like.device)


class Closed(NamedTuple):
    """The function A f(beta t) with a known f."""

    form: ClosedForm
    outer: float
    inner: float

    def mean(self, q: Tensor) -> Tensor:
        return self.outer * self.form.mean(self.inner**2 * q)

    def maps(
        self, k: Tensor, q: Tensor, p: Tensor, room: Workspace, *, slopes: bool, owned: bool
    ) -> tuple[Tensor, Tensor | None, float]:
        c = correlation(k, q, p, owned=owned)
        q, p = self.inner**2 * q, self.inner**2 * p
        value = self.form.product(q, p, c).mul_(self.outer**2)
        slope = self.form.slope_product(q, p, c) if slopes else None
        return value, slope, (self.outer * self.inner) ** 2


_SMOOTH: list[tuple[Callable[[Tensor], Tensor], ClosedForm]] = [
    (torch.erf, Erf()), (torch.nn.functional.gelu, Gelu()),
    (torch.sin, Sine()), (torch.cos, Cosine()),
]  # fmt: skip
_FAR = torch.tensor([-1e3, -97.1, -29.3, -7.7, 6.1, 11.9, 53.3, 211.7], dtype=torch.float64)
"""Where functions that look alike near zero may part."""


def known_dual(function: Callable[[Tensor], Tensor], inner: tuple[float, ...]) -> Dual | None:
    """The closed form of a function of each number, recognised by its values.

    Args:
        function: The function, of double precision.
        inner: By what the argument might be multiplied.
    """
    size = torch.logspace(-18, 18, 73, dtype=torch.float64)
    t = torch.cat([size, -size])
    value = function(t)
    up, down = (float(f / s) for f, s in ((value[40], size[40]), (value[113], -size[40])))
    straight = Slopes((up + down) / 2, (up - down) / 2)
    if _same(value, straight.a * t + straight.b * t.abs()):
        return straight
    t = torch.linspace(-4.1, 4.3, 57, dtype=torch.float64)
    for beta in dict.fromkeys((1.0, *inner)):
        for f, form in _SMOOTH if beta else ():
            at = t / beta
            outer = float(function(at[40:41]) / f(t[40:41]))
            if _same(function(at), outer * f(t)) and _far(function(_FAR / beta), outer * f(_FAR)):
                return Closed(form, outer, beta)
    return None


def _far(one: Tensor, other: Tensor) -> bool:
    """Whether values far out agree to the rounding of arguments."""
    return bool(((one - other).abs() <= 1e-12 * (other.abs() + _FAR.abs())).all())


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether values agree to rounding; near zeros of the function, to that of its size."""
    size = other.abs().clamp(min=1e-300)
    gap = (one - other).abs()
    return bool((gap <= 1e-12 * torch.maximum(size, size.median() * 1e-3)).all()) and math.isfinite(
        float(size.sum())
    )
