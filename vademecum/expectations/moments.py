r"""Means of an activation of Gaussian numbers, and of the product at two correlated ones.

For $(u, v)$ jointly Gaussian with means 0, variances $q$ and $q'$ and correlation $c$:

$$\mathbb{E} \phi(u), \quad \mathbb{E} \phi(u)^2, \quad \mathbb{E} \phi'(u)^2, \quad
\mathbb{E} \phi(u) \phi(v), \quad \mathbb{E} \phi'(u) \phi'(v).$$

Exact up to rounding for the identity, ReLU, leaky ReLU (also parametric and randomised, in
evaluation mode), absolute value, error function, exact GELU, sine and cosine, from closed forms.
Any other activation is integrated: the range is cut where the activation has kinks or jumps, which
are found by bisection, and each part is analytic for Gauss's rule with 16 nodes. For activations
that are analytic but for finitely many such points the error is below $10^{-13}$ of
$\sqrt{\mathbb{E} \phi(u)^2 \mathbb{E} \phi(v)^2}$, and for slopes below $10^{-11}$ of the same with
$\phi'$ (measured against closed forms and finer rules, at variances from $10^{-6}$ to $10^6$ and
correlations up to $\pm 1$). Where the activation is unbounded near a point half of the digits can
be lost, and what happens on less than a tenth of a unit can be missed.

Derivatives follow from the same integrals, with $\partial_c \mathbb{E} \phi(u) \phi(v) = \sqrt{q
q'}\, \mathbb{E} \phi'(u) \phi'(v)$ (Price) and $\partial_q \mathbb{E} \phi(u) \phi(v) =
\mathbb{E} u \phi'(u) \phi(v) / 2 q$.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from vademecum.arguments import broadcasting, floats
from vademecum.expectations._closed_forms import closed_form
from vademecum.expectations._functions import Pointwise
from vademecum.expectations._pieces import Pieces, pieces
from vademecum.expectations._quadrature import REACH, line, plane

__all__ = ["GaussianExpectations"]

Numbers = float | Float[Tensor, " ..."]


class GaussianExpectations:
    r"""The Gaussian integrals of one activation, for variances and correlations of any shape.

    Results have the dtype and device of the tensors given (double for numbers), and are
    differentiable once in variances and correlations, where variances are positive; integrals of
    slopes that have kinks are not. The activation's own parameters are constants, as they are when
    an integral is first asked for.

    Args:
        activation: A function of tensors, entry by entry, or a module; in evaluation mode. A
            quadrature calls it in double precision.

    Raises:
        ValueError: If the activation mixes entries, is not finite, is smooth nowhere, or has no
            second moment.

    Example:
        >>> relu = GaussianExpectations(torch.relu)
        >>> relu.square(2.0).item(), relu.product(2.0, 0.0).item()  # 2 / 2 and 2 / (2 pi)
        (1.0, 0.318...)
        >>> cosine = GaussianExpectations(torch.cos)
        >>> cosine.mean(torch.tensor([0.0, 1.0]))  # exp(-q / 2)
        tensor([1.0000, 0.6065])
    """

    def __init__(self, activation: Any):
        self.activation = activation
        self._known = closed_form(activation)
        self._call = Pointwise(activation)
        self._cuts: dict[int, Pieces] = {}

    def __repr__(self) -> str:
        how = "quadrature" if self._known is None else "closed form"
        name = getattr(self.activation, "__name__", type(self.activation).__name__)
        return f"GaussianExpectations({name}, {how})"

    @property
    def exact(self) -> bool:
        """Whether a closed form is used."""
        return self._known is not None

    def mean(self, variance: Numbers) -> Float[Tensor, " ..."]:
        """The mean of the activation."""
        (q,), shape, like = _prepared(variance=variance)
        value = self._known.mean(q) if self._known is not None else _Line.apply(q, self, 1, 0)
        return value.reshape(shape).to(like)

    def square(self, variance: Numbers) -> Float[Tensor, " ..."]:
        """The second moment of the activation."""
        (q,), shape, like = _prepared(variance=variance)
        value = self._known.square(q) if self._known is not None else _Line.apply(q, self, 2, 0)
        return value.reshape(shape).to(like)

    def slope(self, variance: Numbers) -> Float[Tensor, " ..."]:
        """The second moment of the activation's derivative."""
        (q,), shape, like = _prepared(variance=variance)
        one = torch.ones_like(q)
        value = (
            self._known.slope_product(q, q, one)
            if self._known is not None
            else _Line.apply(q, self, 2, 1)
        )
        return value.reshape(shape).to(like)

    def product(
        self, variance: Numbers, correlation: Numbers, other: Numbers | None = None
    ) -> Float[Tensor, " ..."]:
        """The mean of the product of the activation at two correlated numbers.

        Args:
            variance: Of the first number.
            correlation: Between -1 and 1.
            other: The second number's variance; by default that of the first.
        """
        (q, c, p), shape, like = _prepared(variance=variance, correlation=correlation, other=other)
        value = (
            self._known.product(q, p, c)
            if self._known is not None
            else _Plane.apply(q, p, c, self, 0)
        )
        return value.reshape(shape).to(like)

    def slope_product(
        self, variance: Numbers, correlation: Numbers, other: Numbers | None = None
    ) -> Float[Tensor, " ..."]:
        """The mean of the product of the derivative at two correlated numbers.

        Args:
            variance: Of the first number.
            correlation: Between -1 and 1.
            other: The second number's variance; by default that of the first.

        Example:
            >>> GaussianExpectations(torch.relu).slope_product(1.0, 0.5).item()  # 1/4 + 1/12
            0.333...
        """
        (q, c, p), shape, like = _prepared(variance=variance, correlation=correlation, other=other)
        known = self._known
        value = (
            known.slope_product(q, p, c) if known is not None else _Plane.apply(q, p, c, self, 1)
        )
        return value.reshape(shape).to(like)

    def _cut(self, *variances: Tensor, order: int) -> Pieces:
        """The pieces for some variances, after a check that integrals exist."""
        most = max(float(q.max()) for q in variances)
        level = max(-40, _level(most))
        if level not in self._cuts:
            self._cuts[level] = pieces(self._call, 1.5 * REACH * 2.0**level)
        cut = self._cuts[level]
        if order and len(cut.jumps):
            raise ValueError(
                "activation must be continuous where its derivative is integrated, got a jump at"
                f" {cut.jumps[0].item():.6g}"
            )
        _insist_on_second_moment(self._call, most, cut)
        return cut


class _Line(torch.autograd.Function):
    """The mean of a power of a derivative of the activation."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, of: GaussianExpectations, power: int, order: int) -> Tensor:
        ctx.save_for_backward(q)
        ctx.rest = of, power, order
        cut = of._cut(q, order=order)
        return line(lambda u: of._call(u, order) ** power, q, cut)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (q,), (of, power, order) = ctx.saved_tensors, ctx.rest
        cut = _smooth(of, q, order=order + 1)

        def rate(u: Tensor) -> Tensor:
            value = of._call(u, order) if power == 2 else 1.0
            return power * value * u * of._call(u, order + 1)

        return grads[0] * line(rate, q, cut) / (2 * q), None, None, None


class _Plane(torch.autograd.Function):
    """The mean of the product of a derivative of the activation at two numbers."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, p: Tensor, c: Tensor, of: GaussianExpectations, order: int
    ) -> Tensor:
        ctx.save_for_backward(q, p, c)
        ctx.rest = of, order

        def f(u: Tensor) -> Tensor:
            return of._call(u, order)

        return plane(f, f, q, p, c, of._cut(q, p, order=order))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (q, p, c), (of, order) = ctx.saved_tensors, ctx.rest
        cut = _smooth(of, q, p, order=order + 1)

        def f(u: Tensor) -> Tensor:
            return of._call(u, order)

        def rate(u: Tensor) -> Tensor:
            return u * of._call(u, order + 1)

        def slope(u: Tensor) -> Tensor:
            return of._call(u, order + 1)

        wanted = ctx.needs_input_grad
        dq = plane(rate, f, q, p, c, cut) / (2 * q) if wanted[0] else None
        dp = plane(f, rate, q, p, c, cut) / (2 * p) if wanted[1] else None
        dc = (q * p).sqrt() * plane(slope, slope, q, p, c, cut) if wanted[2] else None
        return *(None if d is None else grads[0] * d for d in (dq, dp, dc)), None, None


def _smooth(of: GaussianExpectations, *variances: Tensor, order: int) -> Pieces:
    """The pieces for derivatives of an order, where the activation has enough of them."""
    cut = of._cut(*variances, order=order)
    if order > 1 and len(cut.breaks):
        raise ValueError(
            "activation must have a continuous slope where integrals of it are differentiated, got"
            f" a kink at {cut.breaks[0].item():.6g}"
        )
    return cut


def _level(variance: float) -> int:
    """The least power of two that is no less than the standard deviation."""
    return int(torch.tensor(max(variance, 1e-30), dtype=torch.float64).log2().div(2).ceil())


def _insist_on_second_moment(f: Pointwise, variance: float, cut: Pieces) -> None:
    """Refuse where the ends of the range hold a part of the second moment."""
    q = torch.tensor([variance], dtype=torch.float64)
    total = float(line(lambda u: f(u) ** 2, q, cut))
    ends = REACH * q.sqrt() * torch.tensor([-1.0, 1.0], dtype=torch.float64)
    tail = REACH * float((f(ends) ** 2).sum()) * 5e-32
    if not tail <= 1e-8 * total + 1e-300:
        raise ValueError(
            f"activation must have a second moment under a Gaussian of variance {variance:.6g},"
            f" got {total:.3g} within {REACH:g} standard deviations and more beyond"
        )


def _prepared(**given: Any) -> tuple[list[Tensor], tuple[int, ...], Tensor]:
    """Variances and correlations as vectors in double precision, their shape, and what is like."""
    if "other" in given and given["other"] is None:
        given["other"] = given["variance"]
    like = next((x for x in given.values() if isinstance(x, Tensor)), None)
    like = torch.zeros((), dtype=torch.float64) if like is None else like
    tensors = {}
    for name, x in given.items():
        x = x if isinstance(x, Tensor) else torch.tensor(float(x), dtype=torch.float64)
        tensors[name] = _in_range(name, floats(name, x)).to(like.device, torch.float64)
    shape = broadcasting("variances and correlations", {n: x.shape for n, x in tensors.items()})
    vectors = [x.expand(shape).reshape(-1) for x in tensors.values()]
    return vectors, shape, like.detach().new_zeros(())


def _in_range(name: str, x: Tensor) -> Tensor:
    if name == "correlation":
        room = 8 * torch.finfo(x.dtype).eps
        if bool((x.detach().abs() > 1 + room).any()):
            worst = x.detach().flatten()[x.detach().abs().argmax()].item()
            raise ValueError(f"correlation must be between -1 and 1, got {worst}")
        return x.clamp(-1, 1)
    if bool((x.detach() < 0).any()):
        raise ValueError(f"{name} must be >= 0, got {x.detach().min().item()}")
    return x
