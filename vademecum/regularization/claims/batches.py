"""Batch normalisation: its formula, and the gradient that passes through its statistics."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_most, claim, complex_step, equals

TINY = 1e-30
"""A delta that adds nothing to a variance: torch takes no 0."""
Roles = Literal["scale and shift", "swapped"]


def standardised(z: np.ndarray, delta: float, ddof: int) -> np.ndarray:
    """Every unit less its mean over all but the second axis, over its standard deviation."""
    axes = (0, *range(2, z.ndim))
    mean, var = z.mean(axes, keepdims=True), z.var(axes, ddof=ddof, keepdims=True)
    return (z - mean) / np.sqrt(var + delta)


def across(v: Tensor, z: Tensor) -> Tensor:
    """A number for each unit, as an array beside z."""
    return v.view(-1, *[1] * (z.ndim - 2))


@claim(
    by="identity", budget=0.4,
    sources=("A-164", "A-165", "A-166", "B-307", "B-308", "B-310", "B-311", "C-221", "C-222",
             "C-223"),
    short=r"\tilde z_i = (z_i - \mu_i) / \sqrt{\sigma_i^2 + \delta},"
    r"\quad \mathrm{BN}(z) = \gamma \tilde z + \beta",
)  # fmt: skip
def batch_norm(ddof: int = 0, roles: Roles = "scale and shift") -> Iterator[Evidence]:
    r"""Batch normalisation standardises each unit over the mini-batch, then scales and shifts it.

    $\tilde z_i = (z_i - \mu_i) / \sqrt{\sigma_i^2 + \delta}$ with the mean $\mu_i$ and the *biased*
    variance $\sigma_i^2$ of the batch, then $\gamma_i \tilde z_i + \beta_i$, which begins with
    $\gamma = 1, \beta = 0$. So $\tilde z$ has mean 0 and variance
    $\sigma^2 / (\sigma^2 + \delta) \approx 1$, and $\gamma = \sqrt{\sigma^2 + \delta},
    \beta = \mu$ undo it. Of images, a unit is a channel and the batch all its positions. (Adding
    $\delta$ to $\sigma$ instead guards against division by zero as well: quoted.)

    What torch's layers compute in training, against NumPy, for inputs of very different scales.

    Knobs:
        ddof: What is taken off the number of examples in the variance.
        roles: Which parameter scales and which shifts.
    """
    kinds = {(4, 3): nn.BatchNorm1d, (9, 5): nn.BatchNorm1d, (3, 2, 4): nn.BatchNorm1d,
             (3, 2, 4, 5): nn.BatchNorm2d}  # fmt: skip
    for (shape, kind), scale in ((pair, s) for pair in kinds.items() for s in (1e-2, 1.0, 1e2)):
        m, at = shape[1], {"shape": str(shape), "scale": scale}
        z = scale * (torch.randn(shape) + across(3 * torch.randn(m), torch.zeros(shape)))
        axes = (0, *range(2, z.ndim))
        layer = kind(m)
        wanted = torch.from_numpy(standardised(z.numpy(), layer.eps, ddof))
        start = (torch.ones(m), torch.zeros(m))
        gamma, beta = start if roles == "scale and shift" else start[::-1]
        stated = across(gamma, z) * wanted + across(beta, z)
        yield equals("output of a new layer", layer(z), stated, tol=1e-11, **at)
        var = z.var(axes, correction=0)
        yield equals("mean of the outputs", layer(z).mean(axes), 0.0, tol=1e-12, **at)
        left, found = var / (var + layer.eps), layer(z).var(axes, correction=0)
        yield equals("variance of the outputs", found, left, tol=1e-11, **at)
        a, b = torch.randn(m), torch.randn(m)
        layer.load_state_dict(layer.state_dict() | {"weight": a, "bias": b})
        gamma, beta = (a, b) if roles == "scale and shift" else (b, a)
        stated = across(gamma, z) * wanted + across(beta, z)
        yield equals("output of a layer", layer(z), stated, tol=1e-11, **at)
        undo = {"weight": (var + layer.eps).sqrt(), "bias": z.mean(axes)}
        layer.load_state_dict(layer.state_dict() | undo)
        yield equals("what undoes it", layer(z) / scale, z / scale, tol=1e-11, **at)


batch_norm.foil("the unbiased variance", ddof=1)
batch_norm.erratum(
    "C-223",
    printed=r"$\bar{f}[\gamma, \beta] = \gamma + \beta \bar{f}$",
    right=r"$\gamma \bar{f} + \beta$",
    why=r"The roles are swapped against the usual naming, $\gamma$ for the scale and $\beta$ for"
    r" the shift (A-165 prints the same): with the usual start $\gamma = 1, \beta = 0$ a layer"
    " would give 1 whatever it is given, and pass no gradient on.",
    weight="soft",
    refuted_by="output of a new layer",
    roles="swapped",
)

Treated = Literal["functions", "constants", "mean only"]


def input_gradient(g: Tensor, z: Tensor, gamma: Tensor, treated: Treated, share: float) -> Tensor:
    r"""As stated, of shape (m, units); `share` is what stands for $1 / m$ before the last term."""
    m = len(z)
    sigma = (z - z.mean(0)).square().sum(0).div(m).sqrt()
    if treated == "constants":
        return gamma / sigma * g
    unit = (z - z.mean(0)) / sigma
    along = share * (g * unit).sum(0) * unit if treated == "functions" else 0.0
    return gamma / sigma * (g - g.sum(0) / m - along)


class Waves:
    """A random smooth function of a batch, analytic, with its gradient by hand."""

    def __init__(self, *shape: int):
        self.a, self.b, self.c = torch.randn(3, *shape)

    def value(self, u: Tensor) -> Tensor:
        """It mixes all entries, so that no example is alone."""
        return (self.a * torch.sin(u)).sum() + (self.b * u).sum() ** 2 + (self.c * u * u).sum()

    def gradient(self, u: Tensor) -> Tensor:
        """Its derivative in u."""
        return self.a * torch.cos(u) + 2 * (self.b * u).sum() * self.b + 2 * self.c * u


def through(z: Tensor, gamma: Tensor, value: Waves) -> tuple[Tensor, Tensor]:
    """What torch gives back to a batch through its layer, and what came to the layer's output."""
    layer = nn.BatchNorm1d(z.shape[1], eps=TINY)
    layer.load_state_dict(layer.state_dict() | {"weight": gamma})
    z = z.clone().requires_grad_()
    u = layer(z)
    (found,) = torch.autograd.grad(value.value(u), z)
    return found, value.gradient(u.detach())


def apart(units: int) -> Tensor:
    """Two examples that are never close, so that no unit is nearly constant."""
    return (1 + torch.rand(2, units)) * torch.tensor([[-1.0], [1.0]])


def plain(z: Tensor, gamma: Tensor) -> Tensor:
    """Batch normalisation in analytic operations."""
    gaps = z - z.sum(0) / len(z)
    return gamma * gaps / (gaps * gaps).sum(0).div(len(z)).sqrt()


@claim(
    by="identity", sources=("B-309",), budget=0.6,
    short=r"\nabla_z L = \frac{\gamma}{\sigma}"
    r" (g - \bar g \mathbf 1 - \frac1m (g \cdot \tilde z) \tilde z)",
)  # fmt: skip
def batch_norm_gradient(treated: Treated = "functions", less: int = 0) -> Iterator[Evidence]:
    r"""The gradient passes through the batch's mean and deviation, which depend on the inputs.

    For a loss with the gradient $g$ with respect to $\gamma \tilde z$ over a batch of $m$, and
    $\delta = 0$, the gradient in the inputs of a unit is $\frac\gamma\sigma \big(g - \bar g \mathbf
    1 - \frac1m (g \cdot \tilde z)\, \tilde z\big)$, which is orthogonal to $\mathbf 1$ and to
    $\tilde z$. So a $g$ that is a combination of these two comes back as 0.

    Differentiate $\sum_i \tilde z_i = 0$ and $\|\tilde z\|^2 = m$: neither can change. Checked
    against torch's backward pass and the complex step, for losses that mix examples and units.

    Knobs:
        treated: Whether the statistics count as functions of the inputs, as constants, or the mean
            alone as a function.
        less: What is taken off $m$ in the last term.
    """
    for m, units in ((3, 2), (8, 3), (20, 1)):
        at = {"m": m, "units": units}
        z = torch.randn(m, units) + 2 * torch.randn(units)
        z[:2] = apart(units)
        gamma = (0.5 + torch.rand(units)) * torch.randn(units).sign()
        share, L = 1 / (m - less), Waves(m, units)
        found, g = through(z, gamma, L)
        stated = input_gradient(g, z, gamma, treated, share)
        scale = float(g.norm())
        yield equals("gradient, by torch", found / scale, stated / scale, tol=1e-11, **at)
        step = complex_step(lambda v, c=gamma, f=L: f.value(plain(v, c)), z)
        yield equals("gradient, by complex steps", step / scale, stated / scale, tol=1e-11, **at)
        unit = plain(z, torch.ones(units))
        yield equals("its product with ones", stated.sum(0) / scale, 0.0, tol=1e-11, **at)
        along = (stated * unit).sum(0) / scale
        yield equals("its product with the output", along, 0.0, tol=1e-11, **at)
        a, b = torch.randn(2, units)
        lost = input_gradient(a + b * unit, z, gamma, treated, share)
        yield equals("what comes back of ones and outputs", lost, 0.0, tol=1e-11, **at)


batch_norm_gradient.foil("statistics taken for constants", treated="constants")
batch_norm_gradient.foil("the deviation taken for a constant", treated="mean only")
batch_norm_gradient.foil("division by m - 1", less=1)


@claim(
    by="identity", sources=("B-303", "E-187", "E-190", "E-191"), budget=0.6,
    short=r"\|g_{in}\|^2 = \frac{\gamma^2}{\sigma^2}"
    r" (\|g\|^2 - \frac1m (\mathbf 1 \cdot g)^2 - \frac1m (g \cdot \tilde z)^2)",
)  # fmt: skip
def batch_norm_smoothing(
    mean: float = 1.0, along: float = 1.0, batches: int = 30
) -> Iterator[Evidence]:
    r"""Batch normalisation shortens gradients by what would only move or stretch the batch.

    For one unit and $\delta = 0$ the gradient $g_{in}$ in the inputs has exactly
    $\|g_{in}\|^2 = \frac{\gamma^2}{\sigma^2} \big(\|g\|^2 - \frac1m (\mathbf 1 \cdot g)^2 - \frac1m
    (g \cdot \tilde z)^2\big) \le \frac{\gamma^2}{\sigma^2} \|g\|^2$, with equality where $g$ is
    orthogonal to $\mathbf 1$ and $\tilde z$; of two examples nothing comes back at all.

    That normalisation helps training is undisputed, why is not. Santurkar et al. (How does batch
    normalization help optimization?, NeurIPS 2018) put this forward, a smoother loss, in place of a
    reduced covariate shift. A sheet says (E-190) that they left the older explanation standing: in
    their abstract they say that stability of the inputs' laws has little to do with the success,
    and noise added behind the layers spoils the former and not the latter (quoted, not checked).

    Knobs:
        mean: The factor before the term with ones.
        along: The factor before the term with the output.
        batches: How many batches are drawn for each size.
    """
    for m in (2, 3, 12):
        for _ in range(batches):
            z = torch.randn(m, 1)
            z[:2] = apart(1)
            gamma = (0.5 + torch.rand(1)) * torch.randn(1).sign()
            found, g = through(z, gamma, Waves(m, 1))
            yield from lengths(z, gamma, found, g, mean, along)
    for m in (5, 9):
        z = torch.randn(m, 1)
        basis = torch.linalg.qr(torch.cat([torch.ones(m, 1), z, torch.randn(m, 1)], 1)).Q
        g = basis[:, 2:]
        sigma = float(z.std(correction=0))
        z = z.requires_grad_()
        (found,) = torch.autograd.grad((nn.BatchNorm1d(1, eps=TINY)(z) * g).sum(), z)
        yield equals("length that is kept, over its bound", found.norm() * sigma, 1.0, tol=1e-11)


def lengths(
    z: Tensor, gamma: Tensor, found: Tensor, g: Tensor, mean: float, along: float
) -> Iterator[Evidence]:
    """The square of a gradient's length as stated, and its bound, both over that bound."""
    m, unit = len(z), plain(z, torch.ones(1))
    bound = float(gamma**2 / z.var(correction=0) * g.square().sum())
    lost = mean * g.sum() ** 2 + along * (g * unit).sum() ** 2
    stated = 1 - lost / m / g.square().sum()
    measured = found.square().sum() / bound
    yield equals("square of the gradient's length", measured, stated, tol=1e-11, m=m)
    yield at_most("the same, against its bound", measured, 1.0, tol=1e-11, m=m)
    if m == 2:
        yield equals("what comes back of two examples", measured, 0.0, tol=1e-11)


batch_norm_smoothing.foil("without the term of the output", along=0.0)
batch_norm_smoothing.foil("without the term of the mean", mean=0.0)
