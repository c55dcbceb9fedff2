"""Scores: what they need not know, and how far one is from another."""

import math

import numpy as np
import sympy
import torch
from scipy.integrate import quad
from torch import Tensor

from vademecum import generative
from vademecum.claims import at_least, claim, complex_step, equals
from vademecum.generative import VESDE, MixtureScore
from vademecum.generative.claims._score_oracles import (
    Field,
    density,
    grid_of,
    hermite,
    mixture,
    score_of,
)


@claim(
    by="identity",
    sources=("A-392",),
    budget=0.5,
    short=r"\nabla \log c\,p = \nabla p / p,\qquad p \propto e^{-f}:\ \nabla \log p = -\nabla f",
)
def score_function(of_logarithm: bool = True, sign: int = -1):
    r"""The score needs no normaliser.

    The score $\nabla_x \log p(x) = \nabla p(x) / p(x)$ of a differentiable positive density is
    unchanged by a constant factor of $p$; for $p \propto e^{-f}$ it is $-\nabla f$.

    Checked symbolically for a general quartic $f$ in two variables, and numerically for random
    mixtures in one and three dimensions: the complex step of $\log c\,p$ with three factors $c$
    against `MixtureScore.score`.

    Knobs:
        of_logarithm: Whether the gradient is that of the logarithm, and not of the density.
        sign: The sign of the gradient of f.
    """
    c, x, y = sympy.symbols("c x y", positive=True)
    a = sympy.symbols("a0:5")
    f = a[0] * x**4 + a[1] * x**3 * y + a[2] * x**2 * y**2 + a[3] * x * y + a[4] * y**4
    p = c * sympy.exp(-f)
    for name, z in (("x", x), ("y", y)):
        found = sympy.diff(p, z) / (p if of_logarithm else 1)
        found = sympy.cancel(found)
        rest = found - sign * sympy.diff(f, z)
        yield equals("terms left of the score minus its formula", len(_terms(rest)), 0, by=name)
        holds = int(c in found.free_symbols)
        yield equals("occurrences of the factor in the score", holds, 0, by=name)
    for d, k in ((1, 2), (3, 4)):
        law, at = mixture(d, k), 2 * torch.randn(20, d)
        ours = MixtureScore(*law, process=VESDE()).score(at)
        for factor in (0.01, 1.0, 300.0):

            def whole(z: Tensor, factor: float = factor, law: tuple = law) -> Tensor:
                value = factor * density(z, *law)
                return value.log() if of_logarithm else value

            found = torch.stack([complex_step(whole, at, e) for e in torch.eye(d)], 1)
            yield equals("score of a density times c", found, ours, d=d, c=factor)


def _terms(expression: sympy.Expr) -> list:
    return [term for term in sympy.Add.make_args(sympy.expand(expression)) if term != 0]


score_function.foil(
    "the gradient of the density itself", refuted_by="score of a density times c",
    of_logarithm=False,
)  # fmt: skip
score_function.foil(
    "the gradient of f without a minus", sign=1,
    refuted_by="terms left of the score minus its formula",
)  # fmt: skip


@claim(
    by="identity",
    sources=("A-393",),
    budget=0.5,
    short=r"J(\theta) = \mathbb E_p \|\nabla_x \log p(x) - s_\theta(x)\|_2^2 \ge 0,"
    r"\quad = 0 \iff s_\theta = \nabla \log p",
)
def fisher_divergence(of_data: bool = True, power: int = 4, pairs: int = 50):
    r"""Fisher divergence.

    $J(\theta) = \mathbb E_p \|\nabla_x \log p(x) - s_\theta(x)\|_2^2 \ge 0$, zero if and only if
    $s_\theta$ equals the score $p$-almost everywhere; for $\mathcal N(m, s^2)$ against the score of
    $\mathcal N(\mu, \sigma^2)$ it is $s^2 \big(\frac1{s^2} - \frac1{\sigma^2}\big)^2 + \frac{(m -
    \mu)^2}{\sigma^4}$, and for laws with independent coordinates the sum over these.

    Checked for the room's `fisher_divergence`: on Gauss's nodes, which are exact for the
    polynomials at hand, against the closed form in one and three dimensions; for mixtures against
    SciPy's adaptive quadrature; for examples that are drawn against NumPy. Zero: at equal
    parameters, and where the field differs only outside the support of $p$ (a density
    $\frac12 (1 + \cos \pi x)$ on $[-1, 1]$); a field that differs on a piece of length $0.1$ of the
    support has a divergence of at least its share.

    Knobs:
        of_data: Whether the mean is over the data's law $p$, and not over the model's.
        power: The power of $\sigma$ under $(m - \mu)^2$.
        pairs: How many pairs of laws are drawn.
    """
    z, w = hermite(8)
    cube = torch.cartesian_prod(z, z, z), torch.cartesian_prod(w, w, w).prod(1)
    for d, (nodes, weights) in ((1, (z[:, None], w)), (3, cube)):
        for _ in range(pairs // 2):
            m, mu = torch.randn(2, d)
            s, sigma = 0.5 + 1.5 * torch.rand(2, d)
            x = m + s * nodes if of_data else mu + sigma * nodes
            found = _between(x, weights, m, s, mu, sigma)
            wanted = (s * (1 / s**2 - 1 / sigma**2)) ** 2 + (m - mu) ** 2 / sigma**power
            yield equals("divergence of normal laws", found, wanted.sum(), tol=1e-10, d=d)
            same = _between(x, weights, mu, sigma, mu, sigma)
            yield equals("divergence of a law from itself", same, 0.0, tol=1e-12, d=d)
    yield from _of_mixtures(of_data)
    x, field = torch.randn(40, 2), Field(2)
    found = generative.fisher_divergence(field, x, -x)
    squares = ((field(x) + x) ** 2).sum(1)
    yield equals("mean over examples", found.value, float(np.mean(squares.numpy())))
    error = float(np.std(squares.numpy(), ddof=1)) / math.sqrt(40)
    yield equals("its standard error", found.standard_error, error)


def _between(x: Tensor, w: Tensor, m: Tensor, s: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    return generative.fisher_divergence(
        lambda y: (mu - y) / sigma**2, x, lambda y: (m - y) / s**2, weights=w
    ).value


def _of_mixtures(of_data: bool):
    """Mixtures by SciPy, and a law with a bounded support."""
    one, two = mixture(1, 2), mixture(1, 3)
    x, cell = grid_of(1, 15.0, 0.05)
    models = [MixtureScore(*law, process=VESDE()) for law in (one, two)]
    weights = density(x, *(one if of_data else two)) * cell
    found = generative.fisher_divergence(models[1].score, x, models[0].score, weights=weights).value

    def integrand(y: float) -> float:
        at = torch.tensor([[y]])
        return float(density(at, *one) * (score_of(at, *one) - score_of(at, *two)) ** 2)

    wanted = quad(integrand, -12, 12, epsabs=1e-9, limit=200)[0]
    yield equals("divergence of mixtures", found, wanted, tol=1e-7)
    x = torch.linspace(-2, 2, 4001)[:, None]
    inside = (x.abs() < 1).double()
    weights = inside[:, 0] * (1 + (math.pi * x[:, 0]).cos()) / 2 * 0.001
    score = inside * -math.pi * (math.pi * x / 2).tan()  # of (1 + cos pi x) / 2
    apart = generative.fisher_divergence(lambda y: score + 7 * (1 - inside), x, score,
                                         weights=weights).value  # fmt: skip
    yield equals("divergence of fields that differ outside the support", apart, 0.0, tol=0.0)
    piece = ((x > 0.2) & (x < 0.3)).double()
    inner = generative.fisher_divergence(lambda y: score + 7 * piece, x, score, weights=weights)
    least = 49 * 0.1 * 0.5 * (1 + math.cos(0.3 * math.pi)) * 0.98  # two points of a hundred
    yield at_least("divergence of fields that differ inside it", inner.value, least)


fisher_divergence.foil(
    "the mean over the model's law", refuted_by="divergence of normal laws", of_data=False
)
fisher_divergence.foil(
    "the variance once under the squared distance of the means",
    refuted_by="divergence of normal laws", power=2,
)  # fmt: skip
