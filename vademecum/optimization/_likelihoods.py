r"""Losses of torch that are negative log-likelihoods, and the moments of their gradients.

A loss $\ell = s \sum_i c_i \ell_i$ of what goes into it, $a$, is a mean ($c_i = 1 / m$) or a sum
($c_i = 1$) over terms. With $r_i = s\, \partial \ell_i / \partial a$, whose mean over labels from
the likelihood is zero,

$$B = \sum_i c_i\, \mathbb{E}\, r_i r_i^T$$

is the curvature of the likelihood in $a$, if the expectation is over its own labels:

| loss | a term | labels $y$ | $r_i$ | $\mathbb{E}\, r_i r_i^T$ |
|---|---|---|---|---|
| `cross_entropy` | a target | $p = \operatorname{softmax} a$ | $p - e_y$ | $\operatorname{diag} p - p p^T$ |
| `nll_loss` | a target | $p = e^a$ | $-e_y$ | $\operatorname{diag} p$ |
| `binary_cross_entropy_with_logits` | an entry | $p = \sigma(a)$ | $p - y$ | $p (1 - p)$ |
| `mse_loss`, of $k$ entries | an example | $N(a, \frac{k}{2 s} I)$ | $\frac{2 s}{k} (a - y)$ | $\frac{2 s}{k} I$ |

For a sum of squares $k$ counts as one. All of it is exact up to rounding; labels that are drawn and
those of the data give a $B$ of the same form without the expectation.
"""  # noqa: E501

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.models import LossCall, LossCalls, softmax_product
from vademecum.randomness import source

__all__ = ["KNOWN", "Likelihood", "likelihood_of", "outer"]

Middle = Callable[[Tensor], Tensor]
KNOWN: dict[str, Any] = {
    function.__name__: function
    for function in (
        F.cross_entropy, F.nll_loss, F.mse_loss, F.binary_cross_entropy_with_logits,
    )
}  # fmt: skip
"""The losses by name."""


def outer(r: Tensor, axes: tuple[int, ...], weight: Tensor | float) -> Middle:
    """What multiplies with the outer products of the gradients of terms, which lie along axes."""

    def product(u: Tensor) -> Tensor:
        along = (r * u).sum(axes, keepdim=True) if axes else r * u
        return r * (along * weight)

    return product


class Likelihood:
    """A call of a loss that is a log-likelihood.

    Args:
        call: The call.
        scale: The derivative s of the whole loss by what the call gave.

    Raises:
        ValueError: If its options make it something else.
    """

    def __init__(self, call: LossCall, scale: Tensor):
        self._function, given = call.function, call.given
        self._name = call.function.__name__
        for option in ("weight", "pos_weight", "label_smoothing"):
            if isinstance(given.get(option), Tensor) or given.get(option):
                raise ValueError(f"loss must be a log-likelihood, got {self._name} with {option}")
        self.a, self.y, self._s = given["input"], given["target"], scale.detach()
        self._mean = given["reduction"] == "mean"
        self._ignored: int = given.get("ignore_index", -100)
        gaussian, rows = self._function is F.mse_loss, max(len(self.a) if self.a.ndim else 1, 1)
        self._k = self.a.numel() // rows if gaussian and self._mean else 1
        terms = rows if gaussian else call.terms
        self._c = 1 / torch.as_tensor(terms if self._mean else 1).to(self.a.detach())
        if gaussian and self.a.shape != self.y.shape:
            shapes = f"{tuple(self.a.shape)} and {tuple(self.y.shape)}"
            raise ValueError(f"loss must take outputs and targets of one shape, got {shapes}")

    @property
    def _axis(self) -> int:
        return 0 if self.a.ndim == 1 else 1

    @property
    def _classes(self) -> bool:
        return self._function in (F.cross_entropy, F.nll_loss)

    @property
    def _kept(self) -> Tensor | float:
        """Which targets count, along the axes of the outputs."""
        if not self._classes or self.y.is_floating_point():
            return 1.0
        return (self.y != self._ignored).unsqueeze(self._axis).to(self.a.dtype)

    def exact(self) -> Middle:
        """What multiplies with B, the expectation over labels."""
        a, weight = self.a.detach(), self._c * self._s**2 * self._kept
        if self._function is F.mse_loss:
            return lambda u: (2 * self._s / self._k * self._c) * u
        if self._function is F.binary_cross_entropy_with_logits:
            p = a.sigmoid()
            return lambda u: weight * p * (1 - p) * u
        p, axis = a.softmax(self._axis), self._axis
        if self._function is F.nll_loss:
            return lambda u: weight * p * u
        return lambda u: softmax_product(p, u, axis).mul_(weight)

    def of_labels(self, y: Tensor) -> Middle:
        """What multiplies with B for labels that are given."""
        a = self.a.detach()
        weight, axes = self._c * self._s**2 * self._kept, (self._axis,)
        if self._function is F.mse_loss:
            r, axes = 2 / self._k * (a - y), tuple(range(1, a.ndim))
        elif self._function is F.binary_cross_entropy_with_logits:
            r, axes = a.sigmoid() - y, ()
        else:
            t = y if y.is_floating_point() else self._one_hot(y)
            p = a.softmax(self._axis) if self._function is F.cross_entropy else 0
            r = p * t.sum(self._axis, keepdim=True) - t if y.is_floating_point() else p - t
        return outer(r, axes, weight)

    def _one_hot(self, y: Tensor) -> Tensor:
        y = y.where(y != self._ignored, 0).long().unsqueeze(self._axis)
        return torch.zeros_like(self.a).scatter_(self._axis, y, 1)

    def draw(self, generator: torch.Generator | None) -> Tensor:
        """Labels from the model's own likelihood, ignored ones where they are in the data."""
        a = self.a.detach()
        where = source(generator, a.device)
        if self._function is F.mse_loss:
            noise = torch.randn(a.shape, dtype=a.dtype, **where).to(a.device)
            return a + noise * (self._k / (2 * self._s)).sqrt()
        if self._function is F.binary_cross_entropy_with_logits:
            uniform = torch.rand(a.shape, dtype=a.dtype, **where).to(a.device)
            return (uniform < a.sigmoid()).to(a.dtype)
        p = a.softmax(self._axis).movedim(self._axis, -1)
        flat = p.reshape(-1, p.shape[-1]).to(where["device"])
        y = torch.multinomial(flat, 1, generator=generator).to(a.device).view(p.shape[:-1])
        if self.y.is_floating_point():
            return y
        return y.where(self.y != self._ignored, self._ignored)


def likelihood_of(noted: LossCalls, value: Tensor) -> Likelihood | None:
    """The log-likelihood that a loss is, or None if none is known.

    Args:
        noted: The calls of torch's losses in it.
        value: What it gave.

    Raises:
        ValueError: If there is one with options that make it something else.
    """
    if len(noted.calls) != 1 or noted.calls[0].function not in KNOWN.values():
        return None
    (call,) = noted.calls
    if call.given["reduction"] not in ("mean", "sum"):
        return None
    (scale,) = torch.autograd.grad(value, call.result, retain_graph=True, materialize_grads=True)
    if float(scale) <= 0:
        raise ValueError(f"loss must grow with {call.function.__name__}, got one that does not")
    return Likelihood(call, scale)
