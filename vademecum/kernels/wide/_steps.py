r"""The steps of a wide network, as maps of covariances $k$ and tangent kernels $\theta$.

A layer with weights of variance $\sigma_w^2 / n$ ($n$ inputs) and biases of variance $\sigma_b^2$:

$$k^+ = \sigma_w^2 S(k) + \sigma_b^2, \qquad
\theta^+ = \sigma_w^2 S(\theta) + [\text{weights train}]\, \sigma_w^2 S(k)
+ [\text{biases train}]\, \sigma_b^2,$$

with the mean $S$ over the inputs that share no weight, positions of a flattened signal or taps of a
convolution. An activation: $k^+ = \hat\phi(k)$, $\theta^+ = \theta\, \hat\phi'(k)$. Layer
normalisation divides both by standard deviations. Sums of independent signals add up both.

Numbers that multiply a whole block are kept aside until the next layer needs a pass anyway.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.kernels.wide._duals import Dual, Slopes
from vademecum.kernels.wide._fused import applies, convolved
from vademecum.kernels.wide._moments import Moments, Pairs, Step, spread
from vademecum.kernels.wide._positions import (
    Taps,
    along_diagonals,
    at_equal_positions,
    both_positions,
    joint_diagonal,
    windows_averaged,
)
from vademecum.kernels.wide._refusals import naming
from vademecum.models import Call

__all__ = ["Activation", "Average", "Layer", "Norm", "Scale", "Source", "Sum"]

_PARALLEL = 1 - 1e-3  # a correlation from which on an angle has lost a digit of single precision


class Source(Step):
    """The mean product of inputs over channels."""

    def __init__(self, raw: int, channel: int):
        self.raw, self.channel, self.inputs = raw, channel, ()

    def run(self, pairs: Pairs, *given: Moments) -> Moments:
        x, y = (r[self.raw].movedim(self.channel, -1) for r in pairs.raw)
        channels, positions = x.shape[-1], x.shape[1:-1]
        x, y = (t.reshape(len(t), positions.numel(), channels) for t in (x, y))
        if pairs.known is None:
            k = (x @ x.mT)[None] if self.full else x.square().sum(-1)[None]
        elif self.full:
            k = x[:, None] @ y[None].mT if channels > 1 else x[:, None] * y[None].mT
        else:
            k = _products(x.transpose(0, 1), y.transpose(0, 1)).movedim(0, -1)
        shape = (*k.shape[:2], *(positions * 2 if self.full else positions))
        mean = x.mean(-1).reshape(1, len(x), *positions) if pairs.known is None else None
        return Moments(k.reshape(shape).div_(channels), mean=mean, owned=True)


def _products(x: Tensor, y: Tensor) -> Tensor:
    """Products of rows, x @ y.mT: in double precision for nearly parallel ones.

    Their angle would else be half of the digits of a rounding.
    """
    k = x @ y.mT
    if k.dtype == torch.float64:
        return k
    mine, its = (torch.where(n > 0, 1 / n, 0) for n in (x.norm(dim=-1), y.norm(dim=-1)))
    near = (k * mine[..., None]).mul_(its[..., None, :]).abs_() > _PARALLEL
    count = int(near.sum())
    if count > k.numel() // 64:
        return (x.double() @ y.double().mT).to(k.dtype)
    if count:
        at, i, j = near.nonzero(as_tuple=True)
        k[at, i, j] = (x[at, i].double() * y[at, j].double()).sum(-1).to(k.dtype)
    return k


class Layer(Step):
    """A linear layer or a convolution, with fresh weights."""

    weighs = True

    def __init__(self, chosen: tuple[int, ...], taps: tuple[Taps, ...], order: tuple[int, ...]):
        self.chosen, self.taps, self.order = chosen, taps, order
        self.has_bias = self.weight_trains = self.bias_trains = True

    def wants_full(self, after: bool) -> bool:
        return after and self.axes > len(self.chosen)

    def run(self, pairs: Pairs, *given: Moments) -> Moments:
        (m,) = given
        bias = pairs.bias if self.has_bias else 0.0
        weight = pairs.weight
        for taps in self.taps:
            weight /= taps.size
        theta, shift = None, bias if self.bias_trains else 0.0
        plain = self.order == (0, 1) and self.full and (m.theta is not None or not pairs.tangent)
        if plain and applies(m.k):
            factors = (float(self.weight_trains), m.factor)
            return Moments(*convolved(m.k, m.theta, self.taps, weight, factors, (bias, shift)))
        if pairs.tangent and m.theta is not None:
            mixed, factor = m.theta, m.factor
            if self.weight_trains:
                mixed, factor = pairs.room.empty(m.k.shape, m.k), 1.0
                torch.add(m.k, m.theta, alpha=m.factor, out=mixed)
            theta = self._gathered(pairs, mixed, weight * factor, shift, self.weight_trains)
            if mixed is not m.theta and theta.data_ptr() != mixed.data_ptr():
                pairs.room.give(mixed)
        elif pairs.tangent and self.weight_trains and bias != shift:
            theta = self._gathered(pairs, m.k, weight, shift, False)
        k = self._gathered(pairs, m.k, weight, bias, m.owned)
        if pairs.tangent and theta is None:  # the first layer that trains
            if self.weight_trains:
                theta = pairs.room.empty(k.shape, k).copy_(k)
            elif shift:
                theta = torch.full_like(k, shift)
        return Moments(k, theta)

    def _gathered(self, pairs: Pairs, k: Tensor, weight: float, bias: float, owned: bool) -> Tensor:
        out = joint_diagonal(k, self.axes, self.chosen, self.full)
        if self.taps:
            if self.order != tuple(range(self.axes)):
                twice = (*self.order, *(self.axes + i for i in self.order))
                out = out.permute(0, 1, *(2 + i for i in (twice if self.full else self.order)))
            out = along_diagonals(out, self.taps, self.full, pairs.room)
        mine = owned or out.untyped_storage().data_ptr() != k.untyped_storage().data_ptr()
        out = out.mul_(weight) if mine else out * weight
        return out.add_(bias) if bias else out


class Activation(Step):
    """A function of each entry of a Gaussian signal."""

    curves = True

    def __init__(self, dual: Dual, call: Call | None):
        self.dual, self.call = dual, call

    def run(self, pairs: Pairs, *given: Moments) -> Moments:
        (m,) = given
        q, p, mean = _variances(self, pairs, m)
        dual = self.dual if self.full and pairs.known is not None else None
        if isinstance(dual, Slopes) and dual.b and applies(m.k):
            return Moments(*dual.fused(m.k, m.theta, q, p), m.factor * dual.share)
        wanted = m.theta is not None
        with naming(self.call):
            k, slope, factor = self.dual.maps(m.k, q, p, pairs.room, slopes=wanted, owned=m.owned)
        theta = None if slope is None or m.theta is None else slope.mul_(m.theta)
        if pairs.known is None:
            mean = self.dual.mean(mean)[None]
            return Moments(k, theta, m.factor * factor, mean)
        return Moments(k, theta, m.factor * factor)


def _variances(step: Step, pairs: Pairs, m: Moments) -> tuple[Tensor, Tensor, Tensor]:
    """The variances of both sides as they broadcast, and those of inputs with themselves."""
    if pairs.known is None:
        q = (at_equal_positions(m.k, step.axes) if step.full else m.k)[0]
        q = q.clamp(min=0).clone()
        pairs.found[step.output] = (q,)
        sides = (q, q)
    else:
        sides = tuple(known[step.output][0] for known in pairs.known)
        q = sides[0]
    alone = pairs.known is None
    one, other = (spread(s, i, step.axes, step.full, alone) for i, s in enumerate(sides))
    return one, other, q


class Norm(Step):
    """Layer normalisation: over channels at each position, or over some axes of positions too."""

    def __init__(self, chosen: tuple[int, ...], eps: float, centred: bool):
        self.chosen, self.eps, self.centred = chosen, eps, centred
        self.weight_trains = self.bias_trains = False

    def run(self, pairs: Pairs, *given: Moments) -> Moments:
        (m,) = given
        alone = pairs.known is None
        if alone:
            pairs.found[self.output] = self._statistics(m)
        known = (pairs.found, pairs.found) if pairs.known is None else pairs.known
        (q, mean, mine), (p, other, its) = (
            [spread(t, i, self.axes, self.full, alone) for t in side[self.output]]
            for i, side in enumerate(known)
        )
        product = mean * other
        if self.chosen:  # positions keep means of their own, beside the one that is taken away
            product = mine * other + mean * its - product
        k = (m.k - product) * q * p
        theta = None if m.theta is None else (m.theta * m.factor) * q * p
        if pairs.tangent and self.weight_trains:
            theta = k.clone() if theta is None else theta + k
        if pairs.tangent and self.bias_trains:
            theta = torch.ones_like(k) if theta is None else theta + 1
        left = None
        if m.mean is not None:
            left = (m.mean - pairs.found[self.output][1]) * pairs.found[self.output][0]
        return Moments(k, theta, mean=left)

    def _statistics(self, m: Moments) -> tuple[Tensor, Tensor, Tensor]:
        """One over the standard deviation, the mean, and the mean at each position."""
        square = (at_equal_positions(m.k, self.axes) if self.full else m.k)[0]
        mean = mine = torch.zeros_like(square) if m.mean is None or not self.centred else m.mean[0]
        if self.chosen:
            places = [1 + i for i in self.chosen]
            square, mean = (t.mean(places, keepdim=True) for t in (square, mean))
        total = (square - mean**2).clamp(min=0) + self.eps
        return torch.where(total > 0, total.rsqrt(), 0), mean.clone(), mine.clone()


class Average(Step):
    """A linear map over positions: pooling, padding."""

    def __init__(
        self,
        linear: Callable[[Tensor], Tensor],
        selects: bool,
        windows: tuple[int, ...] | None = None,
    ):
        self.linear, self.selects, self.windows = linear, selects, windows

    def wants_full(self, after: bool) -> bool:
        return after if self.selects else True

    def run(self, pairs: Pairs, *given: Moments) -> Moments:
        (m,) = given

        def change(k: Tensor) -> Tensor:
            if self.windows is not None:
                k = windows_averaged(k, self.windows, self.full, pairs.room)
            else:
                k = both_positions(k, self.axes, self.linear, self.full)
            return at_equal_positions(k, self.after) if self.full and not self.full_after else k

        mean = None
        if m.mean is not None:
            mean = both_positions(m.mean, self.axes, self.linear, False)
        theta = None if m.theta is None else change(m.theta)
        return Moments(change(m.k), theta, m.factor, mean)


class Scale(Step):
    """A multiple."""

    def __init__(self, factor: float):
        self.factor = factor

    def run(self, pairs: Pairs, *given: Moments) -> Moments:
        (m,), c = given, self.factor
        mean = None if m.mean is None else m.mean * c
        return Moments(m.k * c**2, m.theta, m.factor * c**2, mean)


class Sum(Step):
    """A sum of two independent signals, one of them with mean zero."""

    def run(self, pairs: Pairs, *given: Moments) -> Moments:
        a, b = given
        thetas = [m.theta * m.factor for m in given if m.theta is not None]
        means = [m.mean for m in given if m.mean is not None]
        return Moments(
            a.k + b.k,
            sum(thetas[1:], thetas[0]) if thetas else None,
            mean=sum(means[1:], means[0]) if means else None,
        )
