"""Weight and layer normalisation: lengths apart from directions, and no batch in between."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm as normalised

from vademecum.claims import Evidence, at_least, at_most, claim, complex_step, equals

Divisor = Literal["norm", "inner product"]


def reparametrised(m: int, d: int, eps: Tensor, v: Tensor) -> Any:
    """A layer of torch with weight normalisation: lengths eps (m, 1), directions v (m, d)."""
    layer = normalised(nn.Linear(d, m, bias=False))
    place = "parametrizations.weight.original"
    layer.load_state_dict({f"{place}0": eps, f"{place}1": v})
    return layer


def by_hand(eps: Tensor, v: Tensor, divisor: Divisor = "norm") -> Tensor:
    """The weights as stated, row by row, in analytic operations."""
    square = (v * v).sum(1, keepdim=True)
    return eps * v / (square.sqrt() if divisor == "norm" else square)


def mean_gradient(layer: nn.Module, readout: Tensor, x: Tensor) -> Tensor:
    """The gradient of a mean over examples in all parameters of a layer."""
    loss = (layer(x) @ readout).sin().mean()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(layer.parameters()))])


@claim(
    by="identity", sources=("B-313", "B-314", "B-315", "C-224"), budget=0.4,
    short=r"w = \epsilon\, v / \|v\|_2,\quad \|w\| = |\epsilon|,\quad w(c v) = w(v)\ (c > 0)",
)  # fmt: skip
def weight_norm(divisor: Divisor = "norm", sign: int = 1) -> Iterator[Evidence]:
    r"""Weight normalisation learns the length and the direction of each weight vector apart.

    $w = \epsilon\, v / \|v\|_2$, so $\|w\| = |\epsilon|$, and $w(c v) = w(v)$ for $c > 0$ (for
    $c < 0$ it turns around). The divisor is the norm $\sqrt{v \cdot v}$ of the weights, not a
    standard deviation of activations: it acts the same in training and in evaluation, bit for bit,
    and ties no examples, so that the gradient over a batch is the mean of those over its halves,
    which fails for batch normalisation; distributed training needs no common statistics.

    What torch's parametrisation computes, for lengths of both signs.

    Knobs:
        divisor: What the weights are divided by.
        sign: The sign of $c$.
    """
    for m, d in ((3, 5), (4, 2)):
        eps, v, at = torch.randn(m, 1), torch.randn(m, d), {"units": m, "d": d}
        eps, v = eps + 0.1 * eps.sign(), v + 0.1 * v.sign()
        layer = reparametrised(m, d, eps, v)
        w = layer.weight
        yield equals("weights", w, by_hand(eps, v, divisor), tol=1e-13, **at)
        yield equals("their lengths", w.norm(dim=1), eps.abs()[:, 0], tol=1e-13, **at)
        for c in (2.0, 1e-3, 1e3):
            other = reparametrised(m, d, eps, sign * c * v).weight
            yield equals("weights for c v", other, w, tol=1e-13, **at, c=sign * c)
            shrunk = by_hand(eps, c * v, divisor).norm(dim=1) / eps.abs()[:, 0]
            alone = by_hand(eps, v, divisor).norm(dim=1) / eps.abs()[:, 0]
            yield equals("length for c v, over that for v", shrunk / alone, 1.0, tol=1e-12, c=c)
        x, readout = torch.randn(8, d), torch.randn(m)
        outputs = [layer.train(mode)(x) for mode in (True, False)]
        change = outputs[0] - outputs[1]
        yield equals("change from training to evaluation", change, 0.0, tol=0.0, **at)
        halves = [mean_gradient(layer, readout, part) for part in x.chunk(2)]
        whole = mean_gradient(layer, readout, x)
        yield equals("gradient of a batch", whole, (halves[0] + halves[1]) / 2, tol=1e-12, **at)
        batch = nn.Sequential(nn.Linear(d, m), nn.BatchNorm1d(m))
        halves = [mean_gradient(batch, readout, part) for part in x.chunk(2)]
        gap = mean_gradient(batch, readout, x) - (halves[0] + halves[1]) / 2
        yield at_least("the same gap with batch normalisation", gap.abs().max(), 1e-6, **at)


weight_norm.foil("a negative factor", sign=-1)
weight_norm.erratum(
    "B-313",
    printed="Normalize by the inner product of the weights instead of sd of activations",
    right=r"by the norm $\sqrt{v \cdot v}$ of the weights",
    why=r"A matter of wording, no formula is printed: divided by the inner product $v \cdot v$, the"
    r" weights $v / \|v\|^2$ are half as long when $v$ is doubled, against the scale invariance"
    " that the sheet itself claims.",
    weight="soft",
    refuted_by="length for c v, over that for v",
    divisor="inner product",
)


class Smooth:
    """A random analytic loss of a weight matrix, through some inputs."""

    def __init__(self, m: int, d: int):
        self.x, self.a = torch.randn(6, d), torch.randn(6, m)

    def __call__(self, w: Tensor) -> Tensor:
        """The value."""
        z = self.x.to(w.dtype) @ w.T
        return (self.a * torch.sin(z)).sum() + (z.sum(1) ** 2).sum() / 6


@claim(
    by="identity", sources=("C-225", "C-226"), budget=0.5,
    short=r"\nabla_v E = \frac{\epsilon}{\|v\|} (I - \frac{w w^\top}{\|w\|^2}) \nabla_w E \perp v",
)  # fmt: skip
def weight_norm_gradient(projected: float = 1.0, power: int = 1) -> Iterator[Evidence]:
    r"""Gradients of weight normalisation: along the length, and across the direction.

    $\partial_\epsilon E = \nabla_w E \cdot v / \|v\|$ and
    $\nabla_v E = \frac{\epsilon}{\|v\|} \big(I - w w^\top / \|w\|^2\big) \nabla_w E$. The latter is
    orthogonal to $v$, so a step of gradient descent never shortens $v$:
    $\|v - \eta \nabla_v E\|^2 = \|v\|^2 + \eta^2 \|\nabla_v E\|^2$.

    Against torch's backward pass through its parametrisation, and the complex step, for several
    units at once and $\epsilon$ of both signs.

    Knobs:
        projected: How much of the part along $w$ is taken out.
        power: The power of $\|v\|$ that is divided by.
    """
    for m, d in ((1, 4), (3, 6)):
        eps, v, E = torch.randn(m, 1), torch.randn(m, d), Smooth(m, d)
        eps, v, at = eps + 0.1 * eps.sign(), v + 0.3 * v.sign(), {"units": m, "d": d}
        layer = reparametrised(m, d, eps, v)
        w = layer.weight.detach().requires_grad_()
        (g,) = torch.autograd.grad(E(w), w)
        w, norm, scale = w.detach(), v.norm(dim=1, keepdim=True), float(g.norm())
        along = (w * g).sum(1, keepdim=True) / w.square().sum(1, keepdim=True) * w
        stated = eps / norm**power * (g - projected * along) / scale
        length = (g * v / norm).sum(1, keepdim=True) / scale
        originals = [p for _, p in sorted(layer.named_parameters())]
        found = [p / scale for p in torch.autograd.grad(E(layer.weight), originals)]
        yield equals("gradient in the lengths", found[0], length, tol=1e-12, **at)
        yield equals("gradient in v", found[1], stated, tol=1e-12, **at)
        step = complex_step(lambda u, e=eps, f=E: f(by_hand(e, u)), v) / scale
        yield equals("gradient in v, by complex steps", step, stated, tol=1e-12, **at)
        step = complex_step(lambda e, u=v, f=E: f(by_hand(e, u)), eps) / scale
        yield equals("gradient in the lengths, by complex steps", step, length, tol=1e-12, **at)
        yield equals("product of v and its gradient", (v * stated).sum(1), 0.0, tol=1e-12, **at)
        longer = (v - 0.5 * found[1]).square().sum(1)
        pythagoras = v.square().sum(1) + (0.5 * stated).square().sum(1)
        yield equals("squared length after a step", longer, pythagoras, tol=1e-11, **at)
        yield at_least("the same, against that before", longer, v.square().sum(1), tol=0.0, **at)


weight_norm_gradient.foil("the projection forgotten", projected=0.0)
weight_norm_gradient.foil("a reflection for the projection", projected=2.0)
weight_norm_gradient.foil("division by the squared norm", power=2)


@claim(
    by="identity", sources=("A-167", "A-168", "B-316", "B-317", "C-227", "C-228"), budget=0.4,
    short=r"\tilde z_i[t] = (z_i[t] - \mu[t]) / \sqrt{\sigma^2[t] + \delta},\quad \mu, \sigma^2 "
    r"\text{ over the units of example } t",
)  # fmt: skip
def layer_norm(along: Literal["units", "batch"] = "units", ddof: int = 0) -> Iterator[Evidence]:
    r"""Layer normalisation standardises each example over the units of the layer.

    As batch normalisation, but the mean $\mu[t] = \frac1m \sum_i z_i[t]$ and the biased variance
    $\sigma^2[t] = \frac1m \sum_i (z_i[t] - \mu[t])^2$ are over the $m$ units, for each example $t$
    by itself, and a scale and a shift for each unit follow. No batch is needed: the output for one
    example is the same whatever else is in the batch, bit for bit, and in training as in
    evaluation. Language models have it (quoted).

    What torch's layer computes, for examples that are rows, tokens of sequences, and images.

    Knobs:
        along: Whether statistics are over the units or over the batch.
        ddof: What is taken off the number of units in the variance.
    """
    for shape, last in (((7, 5), 1), ((2, 4, 6), 1), ((3, 2, 3, 4), 3)):
        z = 3 * torch.randn(shape) + torch.randn(shape[:-last] + (1,) * last)
        at: Any = {"shape": str(shape)}
        layer = nn.LayerNorm(list(shape[-last:]))
        a, b = torch.randn(2, *shape[-last:])
        layer.load_state_dict({"weight": a, "bias": b})
        axes = tuple(range(-last, 0)) if along == "units" else tuple(range(len(shape) - last))
        x = z.numpy()
        mean, var = x.mean(axes, keepdims=True), x.var(axes, ddof=ddof, keepdims=True)
        wanted = a * torch.from_numpy((x - mean) / np.sqrt(var + layer.eps)) + b
        found = layer(z)
        yield equals("output", found, wanted, tol=1e-12, **at)
        plain = nn.LayerNorm(list(shape[-last:]), elementwise_affine=False)(z).flatten(-last)
        yield equals("mean over the units", plain.mean(-1), 0.0, tol=1e-13, **at)
        yield at_most("variance over the units", plain.var(-1, correction=0), 1.0, **at)
        other = torch.cat([z[:1], 10 * torch.randn_like(z[1:])])
        gap = layer(other)[0] - found[0]
        yield equals("change of an example among others", gap, 0.0, tol=0.0, **at)
        gap = layer.eval()(z) - found
        yield equals("change from training to evaluation", gap, 0.0, tol=0.0, **at)
        layer.train()


layer_norm.foil("statistics over the batch", along="batch")
layer_norm.foil("the unbiased variance", ddof=1)
