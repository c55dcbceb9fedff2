"""Deep random networks: how far from normal they are, and the recursion for their kernel."""

import math
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_most, claim, equals, in_mean
from vademecum.kernels import infinite_width
from vademecum.kernels.claims.wide_layers import (
    LAYERS,
    Function,
    at_lengths,
    distance_from_normal,
    pair_mean,
    pair_means,
    relu,
)


def network(layer: nn.Module, d: int, depth: int, *, bias: bool = False) -> nn.Sequential:
    """An architecture with `depth` hidden layers; its widths do not matter to a limit."""
    layers: list[nn.Module] = [nn.Linear(d, 2, bias=bias)]
    for _ in range(depth):
        layers += [layer, nn.Linear(2, 2, bias=bias)]
    return nn.Sequential(*layers)


def squares(x: Tensor, m: int, depth: int, nets: int, *, weights: bool) -> Tensor:
    r"""Mean squares $S_l$ of activations of a ReLU network with $\sigma_w^2 = 2$, layer by layer.

    From weights that are drawn, or from the exact law of a layer given the one below: its m
    pre-activations are independent with variance $2 S_{l-1}$.
    """
    S = x.square().mean().expand(nets)
    a, found = x.expand(nets, -1), []
    for _ in range(depth):
        if weights:
            W = torch.randn(nets, m, a.shape[1]) * math.sqrt(2 / a.shape[1])
            a = relu((W @ a[..., None])[..., 0])
            S = a.square().mean(1)
        else:
            S = 2 * S * relu(torch.randn(nets, m)).square().mean(1)
        found.append(S)
    return torch.stack(found)


@claim(
    by="sampling",
    sources=("A-306", "C-266", "C-267"),
    budget=0.9,
    short=r"\text{ReLU, } L \text{ hidden layers of width } m: \text{ excess kurtosis } 3\big((1 "
    r"+ \tfrac5m)^L - 1\big)",
)
def wide_layers_gaussian(
    depth: Literal["all", "one", "none"] = "all", unit: int = 5, nets: int = 15_000
):
    r"""Deep pre-activations become Gaussian with width.

    Beyond the first layer the inputs of a random network are themselves random, so that its
    pre-activations are scale mixtures of normals and not normal at finite width. As the widths grow
    they become normal, $f^l \sim \mathcal{GP}(0, K^l)$, with excess kurtosis of order $1/m$ at
    fixed depth. For a ReLU with normal weights, no biases and $L$ hidden layers of width $m$ it is
    $3 \big((1 + \frac5m)^L - 1\big)$, which times $m$ tends to $15 L$.

    *Proof.* Given the layer below, pre-activations are normal with variance $\sigma_w^2 S$, and
    $\mathbb E z_+^4 / (\mathbb E z_+^2)^2 = 6$, so that each layer multiplies $\mathbb E S^2 /
    (\mathbb E S)^2$ by $1 + \frac5m$. Checked for networks of drawn weights, and wider ones by that
    law of a layer, at one input; the variance against `infinite_width`, the first layer by the
    distance of its law from the normal one. That all inputs are jointly normal is quoted.

    Knobs:
        depth: Which layers count: all, one only, or none, as though outputs were normal.
        unit: The number that is divided by the width.
        nets: How many networks are drawn.
    """
    x = torch.randn(6)
    for m, L, weights in ((10, 2, True), (16, 3, True), (40, 4, False), (160, 2, False)):
        at = {"m": m, "L": L}
        S = squares(x, m, L, nets, weights=weights)
        f = (2 * S[-1]).sqrt() * torch.randn(nets)
        limit = infinite_width(network(nn.ReLU(), 6, L), weight_variance=2.0)
        K = float(limit.nngp.diagonal(x[None])[0])
        yield in_mean("variance of an output", f.square(), K, sigmas=6.0, **at)
        layers = {"all": L, "one": 1, "none": 0}[depth]
        kurtosis = 3 * ((1 + Fraction(unit, m)) ** layers - 1)
        found = 3 * (2 * S[-1] / K).square() - 3
        yield in_mean("excess kurtosis of an output", found, float(kurtosis), sigmas=6.0, **at)
        far = 10**9
        scaled = far * 3 * ((1 + Fraction(unit, far)) ** layers - 1)
        yield equals("kurtosis times a great width", float(scaled), 15.0 * L, tol=1e-6, **at)
        below = torch.randn(nets, 6) @ x * math.sqrt(2 / 6)
        D, room = distance_from_normal(below, 2 * x.square().mean())
        yield at_most("distance of the first layer's law from the normal", D, room, tol=0.0, **at)


wide_layers_gaussian.foil(
    "normal at every width", refuted_by="excess kurtosis of an output", depth="none"
)
wide_layers_gaussian.foil(
    "the kurtosis of one layer whatever the depth",
    refuted_by="excess kurtosis of an output",
    depth="one",
)
wide_layers_gaussian.foil(
    "the fourth moment of a linear layer", refuted_by="excess kurtosis of an output", unit=2
)


def grams(phi: Function, K: Tensor, variances: tuple[float, float], widths: list[int], nets: int):
    r"""Covariances of the next pre-activations at two inputs, for drawn networks.

    By the exact law of a layer given the one below: its units are independent normal pairs.
    """
    G = K.expand(nets, 2, 2)
    for m in widths:
        L = torch.linalg.cholesky(G + 1e-12 * torch.eye(2))
        h = phi(L @ torch.randn(nets, 2, m))
        G = variances[0] * h @ h.mT / m + variances[1]
    return G


@claim(
    by="sampling",
    sources=("A-307", "C-267", "C-268", "D-379"),
    budget=1.0,
    short=r"K^l(x, x') = \sigma_w^2\, \mathbb E[\phi(a) \phi(b)] + \sigma_b^2,\ (a, b) \sim"
    r" \mathcal N(0, K^{l-1}|_{x, x'})",
)
def nngp_recursion(power: float = 1.0, bias: bool = True, middle: int = 1000, nets: int = 200):
    r"""The recursion for the kernel of a network's infinite width.

    In the limit of great width $K^l(x, x') = \sigma_w^2\, \mathbb E[\phi(a) \phi(b)] + \sigma_b^2$
    with $(a, b) \sim \mathcal N(0, K^{l-1}|_{x, x'})$, from $K^1 = \sigma_w^2 x^\top x' / n +
    \sigma_b^2$, and independent across units. A ReLU with $\sigma_w^2 = 2$ and $\sigma_b = 0$
    keeps the diagonal. The limit of a deep network is ONE Gaussian process, not a deep Gaussian
    process in the sense of composed ones, whose increments are not normal.

    *Proof.* Given the layer below, units are independent and normal; the mean over them tends to
    its expectation. Checked for a ReLU and erf, two depths and inputs of two sizes: the recursion
    by quadrature against `infinite_width`; drawn networks with hidden layers of width 1000, whose
    mean covariance has a bias of order $1/m$, well below one of six standard errors.

    Knobs:
        power: The power of $\sigma_w^2$ before the expectation.
        bias: Whether $\sigma_b^2$ is added.
        middle: The width of the layer in the middle; 1 makes two Gaussian processes composed.
        nets: How many networks are drawn.
    """
    K1 = torch.tensor([[1.0, 0.3], [0.3, 1.0]])
    x = torch.linalg.cholesky(K1)  # with n = 2 and the variance 2 its first kernel is K1
    limit = infinite_width(network(nn.ReLU(), 2, 1), weight_variance=2.0)
    formula = 2.0**power * pair_mean(relu, K1)
    yield equals("kernel at unit variances", limit.nngp(x)[0, 1], formula, rho=0.3, variance=2)
    for (name, (layer, phi)), d, depth in zip(LAYERS.items(), (3, 5), (2, 3), strict=True):
        w, b, x = 1.6, 0.2, at_lengths(4, d, 1.5)
        at = {"phi": name, "depth": depth, "d": d}
        K = w * x @ x.T / d + b
        for _ in range(depth):
            K = w**power * pair_means(phi, K) + b * bias
        net = network(layer, d, depth, bias=True)
        limit = infinite_width(net, weight_variance=w, bias_variance=b)
        yield equals("kernel of infinite_width", limit.nngp(x), K, tol=1e-8, **at)
    limit = infinite_width(network(nn.ReLU(), 6, 3), weight_variance=2.0)
    x = torch.randn(5, 6)
    kept = limit.nngp.diagonal(x) / (2 * x.square().mean(1))
    yield equals("diagonal of a ReLU network over that of its first layer", kept, 1.0, tol=1e-12)
    h = relu(torch.randn(20_000, 7, 6) @ x[0])
    y = (torch.randn(20_000, 2, 7) @ h[..., None])[..., 0]
    yield in_mean("mean product of two units", y.prod(1), 0.0, sigmas=6.0)
    C = torch.tensor([[1.2, 0.5], [0.5, 0.9]])
    for name, (_, phi) in LAYERS.items():
        at, K, v = {"phi": name, "middle": middle}, C, (1.6, 0.2)
        for _ in range(3):
            K = v[0] ** power * pair_means(phi, K) + v[1] * bias
        G = grams(phi, C, v, [1000, middle, 1000], nets)
        V = G[:, 0, 0] + G[:, 1, 1] - 2 * G[:, 0, 1]  # given the network, of an increment
        kurtosis = 3 * V.var() / V.mean() ** 2
        # 0 in the limit and at most 0.1 observed at width 1000
        yield at_most("excess kurtosis of increments", kurtosis, 0.5, tol=0.0, **at)
        for i, j in ((0, 0), (0, 1), (1, 1)):
            target = float(K[i, j])
            yield in_mean("mean covariance of drawn networks", G[:, i, j], target, sigmas=6.0, **at)


nngp_recursion.erratum(
    "C-268",
    printed=r"$K_{\mu\nu}^l = \mathbb E[\varphi(x_{i_\mu}^{l-1}) \varphi(x_{i_\nu}^{l-1})] ="
    r" \sigma^2\, \mathbb E[\varphi(f_\mu) \varphi(f_\nu)]$",
    right=r"$K_{\mu\nu}^l = \sigma^2\, \mathbb E[\varphi(f_\mu) \varphi(f_\nu)]$",
    why=r"both expectations run over the same normal pair, so that the first lacks $\sigma^2$: for"
    r" a ReLU, unit variances, $\sigma^2 = 2$ and correlation 0.3 they are 0.241 and 0.483",
    power=0.0,
)
nngp_recursion.erratum(
    "D-379",
    printed="Deep GPs: this equivalence extends to deep networks",
    right="one Gaussian process, whose kernel is recursive",
    why="a deep Gaussian process is a composition of such, and increments of that are not normal",
    weight="soft",
    refuted_by="excess kurtosis of increments",
    middle=1,
)
nngp_recursion.foil(r"the recursion without $\sigma_b^2$", bias=False)
