"""Depth against width: radial functions that two layers cannot afford."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from scipy.special import bdtr, bdtrc, betainc
from torch import Tensor, nn

from vademecum.approximation import fit_readout, radial_network
from vademecum.claims import at_least, at_most, claim, consistent, equals
from vademecum.foundations import Ball


def twice_interpolated(x: Tensor, k: int, p: int, radius: float) -> tuple[Tensor, Tensor]:
    r"""The sum of interpolated squares, and the interpolant of $\sin 6 s$ there, by NumPy."""
    t, s = np.linspace(-radius, radius, k + 1), np.linspace(0, radius**2, p + 1)
    total = np.interp(x.numpy(), t, t**2).sum(1)
    return torch.from_numpy(total), torch.from_numpy(np.interp(total, s, np.sin(6 * s)))


@claim(
    by="sampling",
    sources=("B-137",),
    budget=0.5,
    full={"points": 10**4},
    short=r"n k + p \text{ ReLUs}: \sup_{\|x\| \le R} |F - g(\|x\|^2)| \le"
    r" \mathrm{Lip}(g)\, n R^2 / k^2 + R^4 \sup |g''| / (8 p^2)",
)
def radial_depth_separation(hidden: Literal[1, 2] = 2, points: int = 1000):
    r"""Depth separates for radial functions.

    Two hidden layers represent radial functions cheaply: the first computes $s = \sum_i x_i^2$ by
    $n$ interpolants of one variable with $k$ pieces (error at most $n R^2 / k^2$ on $[-R, R]^n$),
    the second a function of $s$, with polynomially many units in $n$. Eldan and Shamir (2016)
    exhibit radial functions that one hidden layer cannot approximate unless its width is
    exponential in $n$; that part is quoted, not checked.

    For $\sin(6 \|x\|^2)$ on the ball of radius $R$ with $k = \lceil R \sqrt{60 n} \rceil$ and $p$
    pieces outside the error is at most $6 n R^2 / k^2 + 36 R^4 / (8 p^2)$, about 0.1, with
    $n k + p$ units; $R$ is 1 and 2, $p$ is 60 and 240.

    Knobs:
        hidden: How many hidden layers there are; with one, the best additive function
            $\sum_i g_i(x_i)$ that it can make of the interpolants' kinks.
        points: How many points of the ball are drawn.
    """
    for n, radius, p in ((2, 1.0, 60), (4, 2.0, 240), (8, 1.0, 60), (16, 1.0, 60)):
        k = math.ceil(radius * math.sqrt(60 * n))
        network = radial_network(lambda s: (6 * s).sin(), n, inner=k, outer=p, radius=radius)
        x = Ball(torch.zeros(n), radius).sample(points)
        x *= torch.rand(points, 1) ** (1 / 2 - 1 / n)  # norms spread out, much as in the plane
        s = x.square().sum(1)
        y = (6 * s).sin()
        units = sum(len(p) for p in network.parameters() if p.ndim == 1) - 1
        if hidden == 1:
            layer = nn.Sequential(network[0], network[1])
            network = layer.append(fit_readout(layer, x, y))
        values = network(x)[:, 0].detach()
        bound = 6 * n * radius**2 / k**2 + 36 * radius**4 / (8 * p**2)
        yield at_most(r"error against $\sin 6 \|x\|^2$", (values - y).abs(), bound, n=n, R=radius)
        total, wanted = twice_interpolated(x, k, p, radius)
        within = total <= radius**2  # NumPy does not go on beyond the last point
        yield equals("value against two interpolations", values[within], wanted[within], n=n)
        limit = n * radius**2 / k**2
        yield at_most("error of the sum of squares", total - s, limit, n=n)
        yield at_least("error of the sum of squares", total - s, 0.0, n=n)
        yield at_most("number of units", units, n * k + p, n=n)


radial_depth_separation.foil(
    r"the best additive function, $\sum_i g_i(x_i)$",
    refuted_by=r"error against $\sin 6 \|x\|^2$",
    hidden=1,
)


def tube(n: int, alpha: float) -> float:
    """The share of the sphere within an angle of a line."""
    return float(betainc((n - 1) / 2, 0.5, math.sin(alpha) ** 2))


@claim(
    by="sampling",
    sources=("B-138",),
    budget=0.5,
    full={"samples": 10**6},
    short=r"\Pr(\angle(x, \pm v) \le \alpha) ="
    r" I_{\sin^2 \alpha}(\tfrac{n - 1}{2}, \tfrac12) \le \sin^{n - 1} \alpha",
)
def frequency_tubes(
    fraction: Callable[[int, float], float] = tube,
    power: Callable[[int], int] = lambda n: n - 1,
    ratio: Callable[[int, float], float] = lambda n, alpha: math.sin(alpha) ** 2,
    samples: int = 20_000,
):
    r"""Lines cover an exponentially small part of the sphere.

    The fraction of the unit sphere of $\mathbb R^n$ within angle $\alpha < \pi / 2$ of a given line
    is the regularised incomplete beta value
    $I_{\sin^2 \alpha}(\frac{n - 1}{2}, \frac12) \le \sin^{n - 1} \alpha$, so $m$ lines cover at
    most $m \sin^{n - 1} \alpha$. The Fourier mass of a shallow network of width $m$ sits in $m$
    thin tubes around lines: this is why such a network needs a width exponential in $n$ for generic
    radial targets (quoted).

    In the plane the fraction is $2 \alpha / \pi$, and in space $1 - \cos \alpha$ (Archimedes). It
    is proportional to $\int_0^\alpha \sin^{n - 2} \theta\, d\theta$, so that two dimensions more
    multiply it by $\sin^2 \alpha$, up to a factor between $\frac{n}{n + 1}$ and
    $\frac{n}{n - 1}$. Directions are also drawn and counted, with a false-alarm rate of $10^{-7}$.

    Knobs:
        fraction: The fraction as a function of $n$ and $\alpha$.
        power: The power of $\sin \alpha$ that bounds it, as a function of $n$.
        ratio: By what two dimensions more multiply the fraction, as a function of $n$ and $\alpha$.
        samples: How many directions are drawn.
    """
    for alpha in (0.1, 0.5, 1.0, 1.5):
        for n, known in ((2, 2 * alpha / math.pi), (3, 1 - math.cos(alpha))):
            yield equals("fraction near a line", fraction(n, alpha), known, n=n, alpha=alpha)
        for n in (2, 3, 5, 8, 13, 21, 34, 60):
            share = fraction(n, alpha) / math.sin(alpha) ** power(n)
            yield at_most(r"fraction over its bound", share, 1.0, n=n, alpha=alpha)
        for n in (10, 100):
            large = fraction(n + 2, alpha) / fraction(n, alpha) / ratio(n, alpha)
            name = "factor of two more dimensions, over the stated one"
            yield at_most(name, large, n / (n - 1), n=n, alpha=alpha)
            yield at_least(name, large, n / (n + 1), n=n, alpha=alpha)
    alpha = 0.5
    for n in (3, 4, 8):
        x = torch.randn(samples, n)
        hits = int((x[:, 0].abs() >= math.cos(alpha) * x.norm(dim=1)).sum())
        share = fraction(n, alpha)
        p_value = 2 * min(bdtr(hits, samples, share), bdtrc(hits - 1, samples, share))
        yield consistent("p-value of the number of directions near a line", p_value, alpha=1e-7,
                         n=n)  # fmt: skip


frequency_tubes.foil("one side of the line alone", fraction=lambda n, alpha: tube(n, alpha) / 2)
frequency_tubes.foil(r"one power of $\sin \alpha$ more", power=lambda n: n)
frequency_tubes.foil("a share that falls like $1 / n^2$", ratio=lambda n, alpha: (n / (n + 2)) ** 2)
