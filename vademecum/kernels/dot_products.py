r"""Kernels of dot products: the linear kernel, and those of one random layer of rectifiers.

$$k(x, x') = x^\top x' + b, \qquad
k_n(x, x') = \mathbb E_{w \sim N(0, I)}\big[(w^\top x)_+^n\, (w^\top x')_+^n\big]
= \frac{\|x\|^n \|x'\|^n}{2 \pi}\, J_n(\theta).$$

With the angle $\theta$ between $x$ and $x'$, $J_0 = \pi - \theta$, $J_1 = \sin \theta + (\pi -
\theta) \cos \theta$ and $J_2 = 3 \sin \theta \cos \theta + (\pi - \theta) (1 + 2 \cos^2 \theta)$,
so that $d J_n / d \cos \theta = n^2 J_{n-1}$ (Cho and Saul, Kernel methods for deep learning, NIPS
2009, where all is twice as large). Order 1 is the covariance of a layer of ReLUs, order 0 that of
their derivatives. The arc cosine of a number near 1 has lost half of its digits, so angles come
from $\|u - v\|^2 = 4 \sin^2(\theta / 2)$ and $\|u + v\|^2 = 4 \cos^2(\theta / 2)$ of unit vectors.
Checked by the claims `kernels.linear_kernel` and `kernels.arc_cosine_kernel`.
"""

import math
from typing import Any, final

import torch
from torch import Tensor

from vademecum.arguments import whole
from vademecum.arrays import lengths
from vademecum.kernels._kernel import Kernel, positive, shown
from vademecum.kernels._pairs import by_tiles, mend_near

__all__ = ["ArcCosineKernel", "LinearKernel"]


@final
class LinearKernel(Kernel):
    r"""The linear kernel $x^\top x' + b$, the covariance of $w^\top x + \beta$ with random weights.

    Args:
        bias: The variance b of the bias; without it, 0, functions pass through the origin.

    Example:
        >>> LinearKernel(bias=1.0)(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
        tensor([[ 6.,  7.],
                [ 7., 10.]])
    """

    def __init__(self, *, bias: float | Tensor = 0.0):
        self.bias = positive("bias", bias, zero=True)

    def hyperparameters(self) -> dict[str, float | Tensor]:
        """The bias, if there is one."""
        fixed = not isinstance(self.bias, Tensor) and self.bias == 0
        return {} if fixed else {"bias": self.bias}

    def _at(self, values: dict[str, float | Tensor]) -> Kernel:
        return LinearKernel(bias=values["bias"]) if values else self

    def _matrix(self, x1: Tensor, x2: Tensor | None) -> Tensor:
        _plane(x1)
        b = self.bias.to(x1) if isinstance(self.bias, Tensor) else self.bias
        y = x1 if x2 is None else x2
        if torch.is_grad_enabled() and any(_requires_grad(t) for t in (x1, y, b)):
            return x1 @ y.T + b

        def entries(rows: slice, columns: slice, target: Tensor) -> None:
            target.copy_(torch.mm(x1[rows], y[columns].T)).add_(b)

        with torch.no_grad():
            return by_tiles(len(x1), len(y), entries, symmetric=x2 is None, like=x1)

    def _diagonal(self, x: Tensor) -> Tensor:
        return _plane(x).square().sum(1) + self.bias

    def __repr__(self) -> str:
        return f"LinearKernel(bias={shown(self.bias)})"


@final
class ArcCosineKernel(Kernel):
    r"""The arc-cosine kernel $\mathbb E[(w^\top x)_+^n (w^\top x')_+^n]$ with Gaussian weights.

    An input 0 gives 0 with every other, in all orders.

    Args:
        order: The power n: 1 for ReLUs, 0 for steps (and derivatives of ReLUs), 2 for squared
            ReLUs.

    Example:
        >>> ArcCosineKernel(order=0)(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]))
        tensor([[0.5000, 0.2500, 0.0000],
                [0.2500, 0.5000, 0.2500],
                [0.0000, 0.2500, 0.5000]])
    """

    def __init__(self, *, order: int = 1):
        self.order = whole("order", order, low=0, high=2)

    def _matrix(self, x1: Tensor, x2: Tensor | None) -> Tensor:
        y = _plane(x1) if x2 is None else x2
        if torch.is_grad_enabled() and (x1.requires_grad or y.requires_grad):
            return self._smooth(x1, y)
        with torch.no_grad():
            dtype = x1.dtype if x1.dtype.itemsize >= 4 else torch.float32
            p, u = self._polar(x1, dtype)
            q, v = (p, u) if x2 is None else self._polar(y, dtype)
            q = q / (2 * math.pi)

            def entries(rows: slice, columns: slice, target: Tensor) -> None:
                near, far = _half_angles(u[rows], v[columns])
                J = _polynomial(self.order, near.to(target.dtype), far.to(target.dtype))
                torch.mul(J, q[columns], out=target)
                target.mul_(p[rows, None])

            return by_tiles(len(x1), len(y), entries, symmetric=x2 is None, like=x1)

    def _diagonal(self, x: Tensor) -> Tensor:
        moment = {0: 0.5, 1: 0.5, 2: 1.5}[self.order]  # half of E z^2n
        norm = lengths(_plane(x).double(), 1)
        return (moment * torch.where(norm > 0, norm ** (2 * self.order), 0)).to(x)

    def _polar(self, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The powers of norms, and unit vectors in double precision."""
        norm = lengths(x.double(), 1)
        units = x.double() / torch.where(norm > 0, norm, 1)[:, None]
        return torch.where(norm > 0, norm**self.order, 0).to(dtype), units

    def _smooth(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Through which one can differentiate."""
        with torch.no_grad():
            units = (self._polar(x, x.dtype)[1] for x in (x1, x2))
            near, far = (chord.to(x1.dtype) for chord in _half_angles(*units))
        norms = [torch.linalg.vector_norm(x, dim=1) for x in (x1, x2)]
        safe = [torch.where(norm > 0, norm, 1) for norm in norms]
        cosine = (x1 / safe[0][:, None]) @ (x2 / safe[1][:, None]).T
        J = _Angular.apply(cosine, near, far, self.order)
        powers = [torch.where(norm > 0, norm**self.order, 0) for norm in norms]
        return torch.outer(*powers) * J / (2 * math.pi)

    def __repr__(self) -> str:
        return f"ArcCosineKernel(order={self.order})"


class _Angular(torch.autograd.Function):
    """J of a cosine, from its chords; it has a derivative also where the arc cosine has none."""

    @staticmethod
    def forward(ctx: Any, cosine: Tensor, near: Tensor, far: Tensor, order: int) -> Tensor:
        ctx.save_for_backward(cosine, near, far)
        ctx.order = order
        return _polynomial(order, near, far)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (cosine, near, far), (grad,) = ctx.saved_tensors, grad_outputs
        if ctx.order > 0:
            slope = ctx.order**2 * _Angular.apply(cosine, near, far, ctx.order - 1)
        else:
            sine2 = near * far / 4
            slope = torch.where(sine2 > 0, sine2, math.inf).rsqrt()
        return grad * slope, None, None, None


def _polynomial(order: int, near: Tensor, far: Tensor) -> Tensor:
    """J, from the squared chords to a unit vector and to its opposite."""
    rest = 2 * torch.atan2(far.sqrt(), near.sqrt())  # pi - theta
    if order == 0:
        return rest
    sine, cosine = (near * far).sqrt_().div_(2), 1 - near / 2
    if order == 1:
        return sine.addcmul_(rest, cosine).clamp_(min=0)
    return (3 * sine * cosine).addcmul_(rest, 1 + 2 * cosine.square()).clamp_(min=0)


def _half_angles(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Squared chords between unit vectors, and to the opposite ones, both right where small."""
    cosine = u @ v.T
    error = 4 * torch.finfo(u.dtype).eps
    near, far = (2 - 2 * cosine).clamp_(min=0), cosine.mul_(2).add_(2).clamp_(min=0)
    mend_near(near, u, v, error)
    mend_near(far, u, -v, error)
    return near, far


def _plane(x: Tensor) -> Tensor:
    if x.ndim != 2:
        raise ValueError(f"x1 must have 2 axes, inputs and features, got {tuple(x.shape)}")
    return x


def _requires_grad(value: float | Tensor) -> bool:
    return isinstance(value, Tensor) and value.requires_grad
