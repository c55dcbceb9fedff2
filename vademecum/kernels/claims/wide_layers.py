"""Random networks of great width: Gaussian processes, whose kernel follows from the layer below."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.special import ndtr

from vademecum.claims import at_most, claim, equals, in_mean
from vademecum.kernels import infinite_width

Function = Callable[[Tensor], Tensor]
ALARM = 1e-7


class Erf(nn.Module):
    """The error function, which is bounded, as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Entry by entry."""
        return torch.erf(x)


def relu(x: Tensor) -> Tensor:
    """The positive part."""
    return x.clamp(min=0)


LAYERS: dict[str, tuple[nn.Module, Function]] = {
    "ReLU": (nn.ReLU(), relu),
    "erf": (Erf(), torch.erf),
}


@cache
def rule(kind: Literal["legendre", "laguerre"], nodes: int) -> tuple[Tensor, Tensor]:
    """Gauss's nodes and weights."""
    found = {
        "legendre": np.polynomial.legendre.leggauss,
        "laguerre": np.polynomial.laguerre.laggauss,
    }
    places, weights = found[kind](nodes)
    return torch.from_numpy(places), torch.from_numpy(weights)


def pair_mean(phi: Function, C: Tensor) -> Tensor:
    r"""$\mathbb E\, \phi(a) \phi(b)$ for $(a, b)$ normal with covariance C, by polar coordinates.

    The radius by Gauss and Laguerre in $s = r^2 / 2$, the angle by Gauss and Legendre between the
    four angles at which $a$ or $b$ vanishes, where $\phi$ may have a kink: exact for a ReLU.
    """
    one = C[0, 0].sqrt()
    rest = (C[1, 1] - C[0, 1] ** 2 / C[0, 0]).clamp(min=0).sqrt()
    L = torch.stack([one, torch.zeros(()), C[0, 1] / one, rest]).view(2, 2)
    zeros = torch.atan2(L[:, 1], L[:, 0])[:, None] + math.pi * torch.tensor([0.5, 1.5])
    ends = (zeros.flatten() % (2 * math.pi)).sort().values
    ends = torch.cat([ends, ends[:1] + 2 * math.pi])
    nodes, weights = rule("legendre", 30)
    half = ends.diff()[:, None] / 2
    t, dt = (ends[:-1, None] + half * (1 + nodes)).flatten(), (half * weights).flatten()
    s, ds = rule("laguerre", 60)
    a, b = L @ torch.stack([t.cos(), t.sin()])
    r = (2 * s).sqrt()[:, None]
    return (phi(r * a) * phi(r * b) * dt * ds[:, None]).sum() / (2 * math.pi)


def pair_means(phi: Function, K: Tensor) -> Tensor:
    """The matrix of `pair_mean` for all pairs of inputs, whose covariances are K."""
    found = torch.empty_like(K)
    for i, j in zip(*torch.triu_indices(len(K), len(K)).tolist(), strict=True):
        found[i, j] = found[j, i] = pair_mean(phi, K[[i, j]][:, [i, j]])
    return found


def at_lengths(n: int, d: int, longest: float) -> Tensor:
    """Inputs of different lengths, none beyond what 60 nodes integrate to double precision."""
    x = torch.randn(n, d)
    return x / x.norm(dim=1, keepdim=True) * torch.linspace(longest / 2, longest, n)[:, None]


def distance_from_normal(z: Tensor, variance: Tensor | float) -> tuple[float, float]:
    """Of a sample's law from the centred normal, and what a sample of that law keeps to.

    The second is the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart at the rate ALARM.
    """
    F = ndtr(z.sort().values / torch.as_tensor(variance).sqrt())
    steps = torch.arange(len(z) + 1) / len(z)
    D = torch.maximum((steps[1:] - F).max(), (F - steps[:-1]).max())
    return float(D), math.sqrt(math.log(2 / ALARM) / (2 * len(z)))


@claim(
    by="sampling",
    sources=("A-305", "C-265"),
    budget=0.8,
    short=r"w_{ij} \sim \mathcal N(0, \sigma^2/n):\quad \mathbb E\, y_{i\mu} y_{j\nu} ="
    r" 1_{i=j} \tfrac{\sigma^2}n x_\mu^\top x_\nu",
)
def random_linear_layer(
    power: float = 1.0, law: Literal["normal", "uniform"] = "normal", layers: int = 10_000
):
    r"""A random linear layer is a Gaussian process.

    For $x \mapsto W x$ with independent $w_{ij} \sim \mathcal N(0, \sigma^2 / n)$, $n$ the
    dimension of the input, the outputs are jointly normal over all inputs, with $\mathbb E\,
    y_{i\mu} y_{j\nu} = 1_{i = j} \frac{\sigma^2}n x_\mu^\top x_\nu$.

    *Proof.* Outputs are linear in independent normal weights. Checked over drawn layers, for two
    sizes: products of outputs at three inputs within six standard errors of the formula, which
    `infinite_width` gives; sums of outputs over units and inputs by the distance of their law from
    the normal one.

    Knobs:
        power: The power of $n$ by which products are divided.
        law: The law of the weights, whose variance is the same.
        layers: How many layers are drawn.
    """
    for n, sigma2, k in ((50, 2.0, 2), (6, 0.5, 3)):
        x, at = torch.randn(3, n), {"n": n, "sigma^2": sigma2}
        x[0], x[1] = 1.0, torch.eye(n)[0] * math.sqrt(n)  # the second sees a single weight
        w = torch.randn(layers, k, n)
        if law == "uniform":
            w = math.sqrt(12) * (ndtr(w) - 0.5)
        y = math.sqrt(sigma2 / n) * w @ x.T
        K = sigma2 / n**power * x @ x.T
        ones = y[:, 0, 0].square()
        yield in_mean("mean square of a unit at x = (1, ..., 1)", ones, float(K[0, 0]), **at)
        limit = infinite_width(nn.Linear(n, k, bias=False), weight_variance=sigma2)
        yield equals("kernel of infinite_width", limit.nngp(x), K, **at)
        for a, b in ((0, 1), (0, 2), (1, 1), (1, 2), (2, 2)):
            pair = y[:, k - 1, a] * y[:, k - 1, b]
            yield in_mean("mean product at two inputs", pair, float(K[a, b]), sigmas=6.0, **at)
            other = y[:, 0, a] * y[:, 1, b]
            yield in_mean("mean product of two units", other, 0.0, sigmas=6.0, **at)
        one = torch.zeros(k, 3)
        one[0, 1] = 1.0
        for c in (torch.randn(k, 3), one):
            variance = sigma2 / n * (c @ x).square().sum()
            D, room = distance_from_normal((c * y).sum((1, 2)), variance)
            yield at_most("distance of the law of a sum from the normal", D, room, tol=0.0, **at)


random_linear_layer.erratum(
    "C-265",
    printed=r"$w \sim \mathcal N(0, \tfrac{\sigma^2}n I)$, $\mathbb E[y_i y_j] ="
    r" \sigma^2 x_i^\top x_j$",
    right=r"$\mathbb E[y_i y_j] = \tfrac{\sigma^2}n x_i^\top x_j$",
    why=r"the factor $1/n$ is lost: for $n = 50$, $\sigma^2 = 2$ and $x = (1, \dots, 1)$ the mean"
    " square is 2, the printed value 100",
    power=0.0,
)
random_linear_layer.foil(r"divided by the root of $n$", power=0.5)
random_linear_layer.foil("weights that are not normal, of the same variance", law="uniform")

Weights = Literal["fixed", "unscaled", "sparse", "cauchy"]


def output_weights(kind: Weights, signs: bool, sigma: float, nets: int, m: int) -> Tensor:
    r"""The weights $v$ of m hidden units: $\sigma u / \sqrt m$ with normal $u$ or signs, or wrong.

    Unscaled ones are standard normal, sparse ones $\pm \sigma$ with probability $1/m$ and else 0,
    which is variance $\sigma^2 / m$ again, and Cauchy's are divided by m.
    """
    u = torch.randn(nets, m)
    if kind == "unscaled":
        return u
    if kind == "sparse":
        return sigma * u.sign() * (torch.rand(nets, m) < 1 / m)
    if kind == "cauchy":
        return sigma * u / torch.randn(nets, m) / m
    return sigma * (u.sign() if signs else u) / math.sqrt(m)


def hidden(phi: Function, x: Tensor, variance: float, nets: int, m: int) -> Tensor:
    """The activations of m units with weights of this variance over the fan-in, at each input."""
    w = math.sqrt(variance / x.shape[1]) * torch.randn(nets, m, x.shape[1])
    return phi(w @ x.T)


def power_mean(g: Function, variance: float) -> float:
    """The mean of a smooth function of a normal vector in the plane, by polar coordinates."""
    t = torch.arange(200) * (2 * math.pi / 200)
    s, ds = rule("laguerre", 60)
    z = (2 * variance * s).sqrt()[:, None, None] * torch.stack([t.cos(), t.sin()], -1)
    return float((g(z).mean(1) * ds).sum())


@claim(
    by="sampling",
    sources=("D-376", "D-377", "D-378"),
    budget=1.0,
    short=r"\tfrac\sigma{\sqrt m} \sum_i u_i \phi(w_i^\top x) \to \mathcal{GP}(0,"
    r" \sigma^2 \mathbb E[\phi(w^\top x)\phi(w^\top x')])",
)
def neal_limit(weights: Weights = "fixed", power: float = 2.0, nets: int = 20_000):
    r"""Infinitely wide networks with one hidden layer are Gaussian processes (Neal).

    $f(x) = \sum_{i=1}^m v_i\, \phi(w_i^\top x)$ with $v_i = \sigma u_i / \sqrt m$, $u_i$ i.i.d.
    from a law of mean 0 and variance 1 that does not change with $m$, independent i.i.d. $w_i$ and
    $\mathbb E \phi^2 < \infty$ converges in law to a Gaussian process of mean 0 with the kernel
    $\sigma^2\, \mathbb E[\phi(w^\top x) \phi(w^\top x')]$, which is the covariance at every width.
    The excess kurtosis of $f(x)$ is $\frac1m (\mathbb E u^4\, R - 3)$ with $R = \mathbb E \phi^4 /
    (\mathbb E \phi^2)^2$: for normal $v$, $\frac3m (R - 1)$. The scale $1 / \sqrt m$, a finite
    variance and the fixed law are essential.

    *Proof.* The central limit theorem. Checked for a ReLU and erf, normal $u$ and signs: moments
    over drawn networks of small width against quadrature and `infinite_width`, and at width 300
    the law of a sum of outputs, within Berry's and Esseen's bound with the constant 0.4748.

    Knobs:
        weights: How output weights are drawn: as above, without scale, or from laws that change
            with the width or have no variance.
        power: The power of $\sigma$ in the kernel.
        nets: How many networks are drawn.
    """
    sigma2, x = 1.7, torch.randn(3, 2)
    x = 1.5 * x / x.norm(dim=1, keepdim=True)
    K1 = sigma2 / 2 * x @ x.T
    for (name, (layer, phi)), signs in ((p, s) for p in LAYERS.items() for s in (False, True)):
        at: dict[str, Any] = {"phi": name, "u": "signs" if signs else "normal"}
        means = pair_means(phi, K1)
        K = sigma2 ** (power / 2) * means
        net = nn.Sequential(nn.Linear(2, 5, bias=False), layer, nn.Linear(5, 1, bias=False))
        limit = infinite_width(net, weight_variance=sigma2)
        yield equals("kernel of infinite_width", limit.nngp(x), K, **at)
        R = float(pair_mean(lambda z, f=phi: f(z) ** 2, K1[:1, :1].expand(2, 2)) / means[0, 0] ** 2)
        for m in (12, 2):
            h = hidden(phi, x, sigma2, nets, m)
            f = (output_weights(weights, signs, math.sqrt(sigma2), nets, m)[..., None] * h).sum(1)
            square = f[:, 0].square()
            yield in_mean("variance of f(x)", square, float(K[0, 0]), sigmas=6.0, m=m, **at)
            yield in_mean("mean of f(x)", f[:, 0], 0.0, sigmas=6.0, m=m, **at)
            both = f[:, 1] * f[:, 2]
            yield in_mean("covariance at two inputs", both, float(K[1, 2]), sigmas=6.0, m=m, **at)
            if name == "erf" or m == 12:  # whose eighth moment so many networks see
                excess = ((1 if signs else 3) * R - 3) / m
                fourth = square.square() / K[0, 0] ** 2 - 3
                yield in_mean("excess kurtosis of f(x)", fourth, excess, sigmas=6.0, m=m, **at)
    m, nets, c = 300, nets // 4, torch.tensor([1.0, -0.5, 2.0])
    f = output_weights(weights, True, math.sqrt(sigma2), nets, m)
    f = (f * (hidden(torch.erf, x, sigma2, nets, m) @ c)).sum(1)
    square, cube = (power_mean(lambda z, p=p: (torch.erf(z @ x.T) @ c).abs() ** p, sigma2 / 2)
                    for p in (2, 3))  # fmt: skip
    D, room = distance_from_normal(f, sigma2 * square)
    room += 0.4748 * cube / square**1.5 / math.sqrt(m)  # Shevtsova, 2011
    yield at_most("distance of the law of a sum from the normal", D, room, tol=0.0, m=m)


neal_limit.erratum(
    "D-376",
    printed="a single-hidden-layer network with infinite width and i.i.d. priors on weights"
    " converges to a Gaussian process",
    right=r"with output weights $\sigma u_i / \sqrt m$, where the $u_i$ are i.i.d. of variance 1",
    why=r"scaling and finite variance are missing: i.i.d. $\mathcal N(0, 1)$ output weights have"
    r" $\mathrm{Var} f = m\, \mathbb E \phi^2 \to \infty$",
    weight="soft",
    refuted_by="variance of f(x)",
    weights="unscaled",
)
neal_limit.foil(
    "a law of the same variance that changes with the width",
    refuted_by="distance of the law of a sum from the normal",
    weights="sparse",
)
neal_limit.foil("Cauchy weights scaled by the width: their limit is Cauchy's", weights="cauchy")
neal_limit.foil(r"a kernel with $\sigma$ in the place of its square", power=1.0)
