"""Divergence: what Kullback and Leibler measure."""

import math
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor
from torch.distributions import Dirichlet, Normal, TanhTransform, TransformedDistribution

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import kl_divergence as kl
from vademecum.foundations import total_variation
from vademecum.foundations.claims.information import quadrature, random_laws

Divergence = Callable[[Tensor, Tensor], Tensor]
BIASED, FAIR, MIRRORED = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]], dtype=torch.float64)


def loop(p: Tensor, q: Tensor) -> list[float]:
    """The divergences of rows, by the definition and its two conventions."""
    return [
        math.fsum(
            (a * math.log(a / b) if b > 0 else math.inf)
            for a, b in zip(*rows, strict=True)
            if a > 0
        )
        for rows in zip(p.tolist(), q.tolist(), strict=True)
    ]


@claim(
    by="identity",
    sources=("A-006", "B-018", "C-282", "D-129", "E-116"),
    budget=0.5,
    full={"pairs": 10**6},
    short=r"\mathrm{KL}(p \| q) = \mathbb E_{x \sim p}\big[\log \tfrac{p(x)}{q(x)}\big] \ge 0",
)
def kl_divergence(formula: Divergence = kl, pairs: int = 10**4):
    r"""Kullback-Leibler divergence.

    $\mathrm{KL}(p \| q) = \mathbb E_{x \sim p}\bigl[\log \frac{p(x)}{q(x)}\bigr] =
    \int p \log \frac pq \ge 0$ (a sum for discrete laws), defined for $p \ll q$ and $+\infty$
    otherwise. It is additive over independent components and invariant under invertible changes of
    variable. For normal laws it is
    $\log \frac{\sigma_q}{\sigma_p} + \frac{\sigma_p^2 + (\mu_p - \mu_q)^2}{2 \sigma_q^2}-\frac12$.

    Checked on discrete laws, by the definition and under permutations; on a pair of normal laws and
    on their images under tanh, by quadrature.

    Knobs:
        formula: The divergence of discrete laws.
        pairs: How many pairs of laws are drawn to see the sign.
    """
    exact = 0.9 * math.log(1.8) + 0.1 * math.log(0.2)
    yield equals("divergence of two coins", formula(BIASED, FAIR), exact)
    for k in (2, 5, 20):
        p, q = Dirichlet(torch.full((k,), 0.5)).sample((2, 50))
        yield equals("divergence, by its definition", formula(p, q), loop(p, q), k=k)
        order = torch.randperm(k)
        moved = formula(p[:, order], q[:, order])
        yield equals("divergence after a permutation", moved, formula(p, q), k=k)
        a, b = random_laws(2, 50, 3)
        joint = formula(*((u[:, :, None] * v[:, None]).flatten(1) for u, v in ((p, a), (q, b))))
        yield equals("divergence of product laws", joint, formula(p, q) + formula(a, b), k=k)
    drawn = formula(*Dirichlet(torch.full((6,), 0.3)).sample((2, pairs)))
    yield at_least("divergence of random laws", drawn, 0.0)
    p, q = Normal(0.5, 0.8), Normal(-0.2, 1.1)
    closed = math.log(1.1 / 0.8) + (0.8**2 + 0.7**2) / (2 * 1.1**2) - 0.5
    squeezed = (TransformedDistribution(law, TanhTransform()) for law in (p, q))
    for name, wide, laws in (("identity", 10.0, (p, q)), ("tanh", 1.0, squeezed)):
        x, w = quadrature(-wide, wide, 400)
        log_p, log_q = (law.log_prob(x) for law in laws)
        area = (w * log_p.exp() * (log_p - log_q)).sum()
        yield equals("divergence of normal laws after a map", area, closed, map=name)


kl_divergence.foil(r"$\sum p \log \frac qp$ has lost its sign", formula=lambda p, q: -kl(p, q))
kl_divergence.foil(
    r"$\sum q \log \frac pq$ averages under the wrong law", formula=lambda p, q: -kl(q, p)
)
kl_divergence.foil("the total variation", formula=total_variation)


@claim(
    by="identity",
    sources=("D-131", "D-132"),
    budget=0.5,
    short=r"\mathrm{KL}(p \| q) < \infty \iff (q(x) = 0 \Rightarrow p(x) = 0), \quad 0 \log 0 := 0",
)
def kl_support(formula: Divergence = kl):
    r"""Support conditions and zero conventions of the KL divergence.

    On a finite alphabet $\mathrm{KL}(p \| q)$ is finite iff $q(x) = 0 \Rightarrow p(x) = 0$. Terms
    with $p(x) = 0$ contribute 0, whatever $q(x)$ is, because $x \log x \to 0$ as $x \downarrow 0$
    (from $|x \log x| \le \frac2e \sqrt x$ on $[0, 1]$); and one $x$ with $p(x) > 0 = q(x)$ makes it
    $+\infty$. Checked for all pairs of laws on three points with weights in thirds.

    Knobs:
        formula: The divergence of discrete laws.
    """
    thirds = [w for w in product(range(4), repeat=3) if sum(w) == 3]
    grid = torch.tensor(thirds) / 3
    p, q = grid.repeat_interleave(len(grid), 0), grid.repeat(len(grid), 1)
    measured = formula(p, q)
    yield equals("divergences that are not numbers", int(measured.isnan().sum()), 0)
    violated = [any(a > 0 == b for a, b in zip(*pq, strict=True)) for pq in product(thirds, thirds)]
    yield equals("whether the divergence is infinite", measured.isinf(), violated)
    yield equals("divergence, by its definition", measured, loop(p, q))
    x = torch.cat([10.0 ** -torch.arange(0.0, 300.0), torch.tensor([math.exp(-2)])])
    size = (x.sqrt() * x.log()).abs()
    yield at_most("$\\sqrt x\\, |\\log x|$", size, 2 / math.e)
    yield equals("$\\sqrt x\\, |\\log x|$ at $e^{-2}$", size[-1], 2 / math.e)


kl_support.foil("naively, zeros give NaN", formula=lambda p, q: (p * (p / q).log()).sum(-1))
kl_support.foil(
    r"with $q$ clipped at $10^{-12}$ it is finite where it is not",
    formula=lambda p, q: torch.special.xlogy(p, p / q.clamp(min=1e-12)).sum(-1),
)


@claim(
    by="sampling",
    sources=("D-134", "E-117"),
    budget=0.5,
    full={"pairs": 10**6},
    short=r"\mathrm{KL}(p \| q) = 0 \iff p = q, \quad"
    r" \mathrm{KL}(p \| q) \ge 2\,\mathrm{TV}(p, q)^2",
)
def kl_zero(constant: float = 2.0, curvature: float = 0.5, pairs: int = 10**4):
    r"""The KL divergence vanishes only for equal laws.

    $\mathrm{KL}(p \| q) = 0$ iff $p = q$ (almost everywhere). Quantitatively (Pinsker)
    $\mathrm{KL}(p \| q) \ge 2\, \mathrm{TV}(p, q)^2$ in nats, with
    $\mathrm{TV} = \frac12 \sum |p - q|$; and near $q = p$ it is quadratic,
    $\mathrm{KL}(p \| p + h v) = \frac{h^2}{2} \sum v^2 / p + O(h^3)$ for $\sum v = 0$.

    *The remainder.* With $t = h v / p$, $|t| < 1$, it is
    $\sum p\, |t - \log(1 + t) - \frac{t^2}2| \le \sum \frac{p\, |t|^3}{3 (1 - |t|)}$.

    Knobs:
        constant: The factor of the squared total variation.
        curvature: The factor of $h^2 \sum v^2 / p$.
        pairs: How many pairs of laws are drawn on each alphabet.
    """
    for k in (2, 3, 10):
        p, q = Dirichlet(torch.full((k,), 0.5)).sample((2, pairs))
        yield equals("divergence of a law from itself", kl(p, p), 0.0, tol=0.0, k=k)
        half = (p - q).abs().sum(-1) / 2
        yield equals("total variation", total_variation(p, q), half, k=k)
        apart = half > 1e-6  # of closer laws rounding hides the ratio
        ratio = (kl(p, q) / half**2)[apart]
        yield at_least("divergence over squared variation", ratio, constant, k=k)
    small = 0.1 ** torch.arange(1.0, 7.0)
    leaning = torch.stack([0.5 + small, 0.5 - small], -1)
    ratio = kl(leaning, FAIR) / total_variation(leaning, FAIR) ** 2
    yield at_least("divergence over squared variation, for nearly fair coins", ratio, constant)
    p = 0.1 + 0.6 * random_laws(20, 4)
    v = torch.randn(20, 4)
    v = v - v.mean(-1, keepdim=True)
    v = v / v.abs().amax(-1, keepdim=True)
    for h in (1e-3, 1e-5, 1e-7):
        t = (h * v / p).abs()
        rest = (p * t**3 / (3 * (1 - t))).sum(-1) / h**2 + 1e-14 / h  # and rounding of p + h v
        error = kl(p, p + h * v) / h**2 - curvature * (v**2 / p).sum(-1)
        yield at_most("error of the quadratic form, over $h^2$", error.abs(), rest, h=h)


kl_zero.foil(
    "twice the constant fails for nearly fair coins",
    refuted_by="divergence over squared variation, for nearly fair coins",
    constant=4.0,
)
kl_zero.foil("the Fisher metric without its half", curvature=1.0)


@claim(
    by="witness",
    sources=("D-135",),
    budget=0.5,
    short=r"\mathrm{KL}(p \| q) \ne \mathrm{KL}(q \| p) \text{ in general}",
)
def kl_asymmetry(formula: Divergence = kl):
    r"""The KL divergence is not symmetric.

    In general $\mathrm{KL}(p \| q) \ne \mathrm{KL}(q \| p)$, and the triangle inequality fails as
    well, so KL is not a metric: for $p = (0.9, 0.1)$ and $q = (0.5, 0.5)$ the two values are 0.3681
    and 0.5108 nats, and from $p$ to its mirror image it is farther directly, 1.758, than by $q$.
    (From $p$ to its mirror image and back it is equally far.)

    Knobs:
        formula: The divergence of discrete laws.
    """
    there, back = formula(BIASED, FAIR), formula(FAIR, BIASED)
    exact = 0.9 * math.log(9 / 5) - 0.1 * math.log(5)
    yield equals("divergence of a biased coin from a fair one", there, exact)
    yield equals("divergence of a fair coin from a biased one", back, math.log(5 / 3))
    yield at_least("difference of the two directions", back - there, 0.14)
    direct = formula(BIASED, MIRRORED)
    yield equals("divergence of mirror images", direct, formula(MIRRORED, BIASED))
    detour = there + formula(FAIR, MIRRORED)
    yield at_least("divergence less that of a detour", direct - detour, 0.8)


kl_asymmetry.foil(
    "a symmetric divergence: the mean of both", formula=lambda p, q: (kl(p, q) + kl(q, p)) / 2
)
kl_asymmetry.foil("Jeffreys' sum", formula=lambda p, q: kl(p, q) + kl(q, p))
