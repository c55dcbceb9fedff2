"""Initialisation: at which scale weights are drawn, so that signals last."""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from scipy.stats import kstest, norm, uniform
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, consistent, equals, in_mean
from vademecum.regularization import mean_field

ROOT_3 = math.sqrt(3)


@claim(
    by="sampling",
    sources=("C-202", "C-203"),
    short=r"\mathrm{Var}\, U[-a, a] = \tfrac{a^2}{3}:\ a = \sqrt3\, \sigma\ "
    r"\text{has the variance of}\ \mathcal N(0, \sigma^2)",
)
def variance_matched_init(half_width: float = ROOT_3) -> Iterator[Evidence]:
    r"""Parameters start as independent Gaussian or uniform draws of one variance.

    $\theta_i \sim \mathcal N(0, \sigma^2)$, or $\theta_i \sim \mathrm{Uniform}[-\sqrt3 \sigma,
    \sqrt3 \sigma]$, which has the same variance $\sigma^2$, with a scale $\sigma$ for each group of
    parameters.

    *Proof.* $\mathrm{Var}\, U[-a, a] = \int_{-a}^a \frac{x^2}{2 a} dx = \frac{a^2}{3}$. Checked by
    Gauss's rule, exact for squares, and on torch's draws for two groups of different $\sigma$: each
    law by Kolmogorov's and Smirnov's test, each variance within 6 standard errors.

    Knobs:
        half_width: Half the width of the uniform law, in units of $\sigma$.
    """
    nodes, weights = np.polynomial.legendre.leggauss(2)
    for sigma in (0.02, 3.0):
        a = half_width * sigma
        variance = float((weights * a * (a * nodes) ** 2 / (2 * a)).sum())
        yield equals("variance of the uniform law", variance / sigma**2, 1.0, sigma=sigma)
        even = nn.init.uniform_(torch.empty(400, 150), -a, a)
        normal = nn.init.normal_(torch.empty(300, 200), std=sigma)
        for name, draws in (("uniform", even), ("Gaussian", normal)):
            squares = (draws / sigma).square()
            yield in_mean(f"square of a {name} draw", squares, 1.0, sigmas=6, sigma=sigma)
            yield in_mean(f"{name} draw", draws / sigma, 0.0, sigmas=6, sigma=sigma)
        end = ROOT_3 * sigma
        yield at_most("largest uniform draw", even.abs() / end, 1.0, sigma=sigma)
        test = kstest(even.flatten(), uniform(-end, 2 * end).cdf)
        yield consistent("p-value of the uniform law", test.pvalue, alpha=1e-9, sigma=sigma)
        test = kstest(normal.flatten(), norm(0, sigma).cdf)
        yield consistent("p-value of the Gaussian law", test.pvalue, alpha=1e-9, sigma=sigma)


variance_matched_init.foil(
    r"Uniform$[-\sigma, \sigma]$ has the variance $\sigma^2 / 3$", half_width=1.0
)


@claim(
    by="training",
    sources=("C-205", "E-195"),
    short=r"\text{equal units stay equal, so weights are random; biases may start at}\ 0",
)
def symmetry_breaking(
    start: Literal["Gaussian", "zero", "equal"] = "Gaussian", steps: int = 1500
) -> Iterator[Evidence]:
    r"""Hidden units that start equal stay equal: weights must be random, biases need not.

    Units with identical incoming and outgoing weights get identical gradients, so descent never
    parts them: the layer acts as one unit. Weights therefore start at random; biases may then start
    at 0. That scales of $1 / n$, or $2 / n$ with ReLU, keep variances is checked by `lecun_init`
    and `he_init`.

    *Proof.* Exchanging two units leaves the network as it is, and turns the gradient of the one
    into that of the other. One tanh unit is a monotone function of $w^T x$, along which the labels
    of XOR change twice: isotonic regression leaves at least 2/3 of the mean square.

    Checked with XOR on $\{\pm1\}^2$, 16 tanh units, steps of 0.1 on the mean squared error.

    Knobs:
        start: The weights of the network that is to learn; all biases are 0.
        steps: How many steps of descent are made.
    """
    x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    twins = XorNet(torch.randn(3, 16, 2), torch.randn(3, 16))
    twins.W.data[:, 5], twins.v.data[:, 5] = twins.W.data[:, 11], twins.v.data[:, 11]
    for p in torch.autograd.grad(twins.loss(x).sum(), (twins.W, twins.b, twins.v)):
        yield equals("gradients of twin units", p[:, 5], p[:, 11], tol=1e-12)
    W, v = torch.randn(1, 16, 2), torch.randn(1, 16)
    scale = {"Gaussian": W, "zero": 0 * W, "equal": 0 * W + 0.5}[start]
    outer = {"Gaussian": v, "zero": 0 * v, "equal": 0 * v + 0.5}[start]
    half = torch.full((1, 16, 2), 0.5)
    nets = XorNet(torch.cat([half, scale]), torch.cat([half[..., 0], outer]))
    losses = nets.descend(x, steps)
    yield at_most("distance of units that started equal", (nets.W[0] - nets.W[0, 0]).abs(), 1e-12)
    yield at_least("loss of units that started equal", losses[0], 2 / 3)
    yield at_most("loss of the network that is to learn", losses[1], 0.01, tol=0.0)


class XorNet:
    """Networks of one hidden layer side by side, with biases that start at zero."""

    def __init__(self, W: Tensor, v: Tensor):
        self.W, self.b, self.v = W.clone(), torch.zeros(W.shape[:2]), v.clone()
        self.c = torch.zeros(len(W))
        for p in (self.W, self.b, self.v, self.c):
            p.requires_grad_()

    def loss(self, x: Tensor) -> Tensor:
        """The mean squared error of each network on XOR."""
        hidden = torch.tanh(x @ self.W.mT + self.b[:, None])
        output = (hidden @ self.v[..., None])[..., 0] + self.c[:, None]
        return (output - x.prod(1)).square().mean(1)

    def descend(self, x: Tensor, steps: int) -> Tensor:
        """The losses after steps of gradient descent."""
        parameters = (self.W, self.b, self.v, self.c)
        with torch.no_grad():
            for _ in range(steps):
                hidden = torch.tanh(x @ self.W.mT + self.b[:, None])
                rest = (hidden @ self.v[..., None])[..., 0] + self.c[:, None] - x.prod(1)
                outer = rest / 2  # the derivative of a mean of four squares
                inner = outer[..., None] * self.v[:, None] * (1 - hidden**2)
                grads = inner.mT @ x, inner.sum(1), (outer[:, None] @ hidden)[:, 0], outer.sum(1)
                for p, g in zip(parameters, grads, strict=True):
                    p -= 0.1 * g
        return self.loss(x).detach()


symmetry_breaking.foil("all weights 0: nothing moves but a bias", start="zero")
symmetry_breaking.foil("all weights 0.5: one unit, sixteen times", start="equal")


def fixed_input(n: int) -> Tensor:
    """A vector whose squares have the mean 1."""
    x = torch.randn(n)
    return x * math.sqrt(n) / x.norm()


@claim(
    by="sampling",
    sources=("C-204",),
    short=r"w_{ij} \sim U[-\sqrt{3/n}, \sqrt{3/n}]:\ "
    r"\mathbb E (W x)_i^2 = \tfrac1n \|x\|^2",
)
def lecun_init(half_width: float = ROOT_3) -> Iterator[Evidence]:
    r"""With weights of variance $1 / n$ a linear layer keeps the mean squared activation.

    With fan-in $n$ and independent zero-mean weights of variance $v$ a linear layer multiplies the
    mean squared activation by $n v$; it is preserved for $v = 1 / n$, as of $\mathcal N(0, 1/n)$ or
    $\mathrm{Uniform}[-\sqrt{3/n}, \sqrt{3/n}]$. The older heuristic $\mathrm{Uniform}[-1/\sqrt n,
    1/\sqrt n]$, today's default of `nn.Linear`, has variance $\frac{1}{3 n}$ and divides the signal
    by 3 a layer.

    *Proof.* $\mathbb E (\sum_j w_j x_j)^2 = v \sum_j x_j^2$. Checked for $n = 400$ and $n = 37$,
    over one layer and over five, within 6 standard errors.

    Knobs:
        half_width: Half the width of the uniform law, in units of $1 / \sqrt n$.
    """
    for n, m in ((400, 10_000), (37, 50_000)):
        x, a = fixed_input(n), half_width / math.sqrt(n)
        out = nn.init.uniform_(torch.empty(m, n), -a, a) @ x
        yield in_mean("square after a uniform layer", out.square(), 1.0, sigmas=6, n=n)
        out = nn.init.kaiming_normal_(torch.empty(m, n), nonlinearity="linear") @ x
        yield in_mean("square after a Gaussian layer", out.square(), 1.0, sigmas=6, n=n)
        layer = nn.Linear(n, m, bias=False)
        out = layer(x).detach()
        yield in_mean("square after nn.Linear", out.square(), 1 / 3, sigmas=6, n=n)
        stated = float(mean_field(nn.Identity(), n * a**2 / 3).variance_map(2.0))
        yield equals("variance of a wide layer", stated, 2.0, n=n)
    weights = nn.init.kaiming_uniform_(torch.empty(300, 400), nonlinearity="linear")
    largest = float(weights.abs().max()) * math.sqrt(400 / 3)
    yield at_most("largest of torch's weights", largest, 1.0)
    yield at_least("largest of torch's weights", largest, 0.99, tol=0.0)
    signals = fixed_input(60).repeat(300, 1)[..., None]
    for _ in range(5):
        a = half_width / math.sqrt(60)
        signals = nn.init.uniform_(torch.empty(300, 60, 60), -a, a) @ signals
    squares = signals.square().mean((1, 2))
    yield in_mean("mean square after five layers", squares, 1.0, sigmas=6, n=60)


lecun_init.foil("twice the variance", half_width=math.sqrt(6))
lecun_init.erratum(
    "C-204",
    printed=r"$w_{ij} \sim \mathrm{Uniform}[-a; a]$, $a := 1/\sqrt{n}$, ... Stabilizes variance.",
    right=r"$a := \sqrt{3/n}$",
    why=r"$U[-1/\sqrt n, 1/\sqrt n]$ has the variance $1/(3n)$: it no longer depends on $n$, but"
    r" every linear layer divides the mean square by 3, so $3^{-5} = 0.0041$ is left after five"
    r" layers, while $\sqrt{3/n}$ keeps it. LeCun's rule asks for the standard deviation"
    r" $1/\sqrt n$.",
    weight="hard",
    refuted_by="mean square after five layers",
    half_width=1.0,
)
