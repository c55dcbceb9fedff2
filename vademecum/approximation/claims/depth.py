"""What the course claims of depth against width for radial functions."""

import math
from collections.abc import Callable

import torch
from scipy.special import bdtr, bdtrc, betainc
from torch import nn

from vademecum.approximation.radial import radial_network
from vademecum.approximation.random_features import fit_readout
from vademecum.claims import at_most, claim, consistent, equals
from vademecum.foundations.regions import Ball


@claim(by="sampling", sources=("B-137",), budget=0.5, full={"points": 10**4})
def radial_depth_separation(hidden: int = 2, points: int = 1000):
    r"""Depth separates for radial functions.

    Two hidden layers represent radial functions cheaply: the first computes $s = \sum_i x_i^2$ by
    $n$ interpolants of one variable with $k$ pieces (error at most $n / k^2$ on $[-1, 1]^n$), the
    second a function of $s$, with polynomially many units in $n$. Eldan and Shamir (2016) exhibit
    radial functions that one hidden layer cannot approximate unless its width is exponential in
    $n$; that part is quoted, not checked.

    For $\sin(6 \|x\|^2)$ on the unit ball with $k = \lceil \sqrt{60 n} \rceil$ and $p = 60$ pieces
    outside the error is at most $6 n / k^2 + 36 / (8 p^2)$, about 0.1, with $n k + p$ units.
    """
    p = 60
    for n in (2, 4, 8, 16):
        k = math.ceil(math.sqrt(60 * n))
        network = radial_network(lambda s: (6 * s).sin(), n, inner=k, outer=p)
        x = Ball(torch.zeros(n), 1.0).sample(points)
        x *= torch.rand(points, 1) ** (1 / 2 - 1 / n)  # the norm as in the plane: r^n ~ u before
        y = (6 * x.square().sum(1)).sin()
        units = sum(len(p) for p in network.parameters() if p.ndim == 1) - 1
        if hidden == 1:
            layer = nn.Sequential(network[0], network[1])
            network = layer.append(fit_readout(layer, x, y))
        bound = 6 * n / k**2 + 36 / (8 * p**2)
        yield at_most((network(x)[:, 0] - y).abs(), bound, n=n)
        yield at_most(units, n * k + p, n=n)


radial_depth_separation.foil("the best additive function, $\\sum_i g_i(x_i)$", hidden=1)


def tube(n: int, alpha: float) -> float:
    """The share of the sphere within an angle of a line."""
    return float(betainc((n - 1) / 2, 0.5, math.sin(alpha) ** 2))


@claim(by="sampling", sources=("B-138",), budget=0.5, full={"samples": 10**6})
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
    radial targets.

    In the plane the fraction is $2 \alpha / \pi$, and in space $1 - \cos \alpha$ (Archimedes).
    """
    for alpha in (0.1, 0.5, 1.0, 1.5):
        yield equals(fraction(2, alpha), 2 * alpha / math.pi, alpha=alpha)
        yield equals(fraction(3, alpha), 1 - math.cos(alpha), alpha=alpha)
        for n in range(2, 61):
            yield at_most(fraction(n, alpha), math.sin(alpha) ** power(n), n=n, alpha=alpha)
        large = fraction(102, alpha) / fraction(100, alpha)
        yield equals(large / ratio(100, alpha), 1.0, tol=0.01, alpha=alpha)
    alpha = 0.5
    for n in (3, 4, 8):
        x = torch.randn(samples, n)
        hits = int((x[:, 0].abs() >= math.cos(alpha) * x.norm(dim=1)).sum())
        share = fraction(n, alpha)
        p_value = 2 * min(bdtr(hits, samples, share), bdtrc(hits - 1, samples, share))
        yield consistent(p_value, alpha=1e-7, n=n)


frequency_tubes.foil("one side of the line alone", fraction=lambda n, alpha: tube(n, alpha) / 2)
frequency_tubes.foil(r"one power of $\sin \alpha$ more", power=lambda n: n)
frequency_tubes.foil("a share that falls like $1 / n^2$", ratio=lambda n, alpha: (n / (n + 2)) ** 2)
