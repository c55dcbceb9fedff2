"""What the course claims of the divergence of Kullback and Leibler."""

import math
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor
from torch.distributions import Dirichlet, Normal, TanhTransform, TransformedDistribution

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.claims.information import quadrature, random_laws
from vademecum.foundations.divergences import kl_divergence as kl
from vademecum.foundations.divergences import total_variation
from vademecum.foundations.entropies import cross_entropy as cross
from vademecum.foundations.entropies import entropy as shannon

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
    by="identity", sources=("A-006", "B-018", "C-282", "D-129", "E-116"), budget=0.5,
    full={"pairs": 10**6},
)  # fmt: skip
def kl_divergence(formula: Divergence = kl, pairs: int = 10**4):
    r"""Kullback-Leibler divergence.

    $\mathrm{KL}(p \| q) = \mathbb E_{x \sim p}\bigl[\log \frac{p(x)}{q(x)}\bigr] =
    \int p \log \frac pq \ge 0$ (a sum for discrete laws), defined for $p \ll q$ and $+\infty$
    otherwise. It is additive over independent components and invariant under invertible changes of
    variable. For normal laws it is
    $\log \frac{\sigma_q}{\sigma_p} + \frac{\sigma_p^2 + (\mu_p - \mu_q)^2}{2 \sigma_q^2}-\frac12$.
    """
    yield equals(formula(BIASED, FAIR), 0.9 * math.log(1.8) + 0.1 * math.log(0.2))
    for k in (2, 5, 20):
        p, q = Dirichlet(torch.full((k,), 0.5)).sample((2, 50))
        yield equals(formula(p, q), loop(p, q), k=k)
        order = torch.randperm(k)
        yield equals(formula(p[:, order], q[:, order]), formula(p, q), k=k)
        a, b = random_laws(2, 50, 3)
        joint = formula(*((u[:, :, None] * v[:, None]).flatten(1) for u, v in ((p, a), (q, b))))
        yield equals(joint, formula(p, q) + formula(a, b), k=k)
    yield at_least(formula(*Dirichlet(torch.full((6,), 0.3)).sample((2, pairs))), 0.0)
    p, q = Normal(0.5, 0.8), Normal(-0.2, 1.1)
    closed = math.log(1.1 / 0.8) + (0.8**2 + 0.7**2) / (2 * 1.1**2) - 0.5
    squeezed = (TransformedDistribution(law, TanhTransform()) for law in (p, q))
    for wide, laws in ((10.0, (p, q)), (1.0, squeezed)):
        x, w = quadrature(-wide, wide, 400)
        log_p, log_q = (law.log_prob(x) for law in laws)
        yield equals((w * log_p.exp() * (log_p - log_q)).sum(), closed, wide=wide)


kl_divergence.foil(r"$\sum p \log \frac qp$ has lost its sign", formula=lambda p, q: -kl(p, q))
kl_divergence.foil(
    r"$\sum q \log \frac pq$ averages under the wrong law", formula=lambda p, q: -kl(q, p)
)
kl_divergence.foil("the total variation", formula=total_variation)


@claim(by="exhaustion", sources=("D-131", "D-132"), budget=0.5)
def kl_support(formula: Divergence = kl):
    r"""Support conditions and zero conventions of the KL divergence.

    On a finite alphabet $\mathrm{KL}(p \| q)$ is finite iff $q(x) = 0 \Rightarrow p(x) = 0$. Terms
    with $p(x) = 0$ contribute 0, whatever $q(x)$ is, because $x \log x \to 0$ as $x \downarrow 0$
    (from $|x \log x| \le \frac2e \sqrt x$ on $[0, 1]$); and one $x$ with $p(x) > 0 = q(x)$ makes it
    $+\infty$. All pairs of laws on three points with weights in thirds.
    """
    thirds = [w for w in product(range(4), repeat=3) if sum(w) == 3]
    grid = torch.tensor(thirds) / 3
    p, q = grid.repeat_interleave(len(grid), 0), grid.repeat(len(grid), 1)
    measured = formula(p, q)
    yield equals(int(measured.isnan().sum()), 0)
    violated = [any(a > 0 == b for a, b in zip(*pq, strict=True)) for pq in product(thirds, thirds)]
    yield equals(measured.isinf(), violated)
    yield equals(measured, loop(p, q))
    x = 10.0 ** -torch.arange(0.0, 300.0)
    yield at_most((x * x.log()).abs(), 2 / math.e * x.sqrt(), tol=1e-300)


kl_support.foil("naively, zeros give NaN", formula=lambda p, q: (p * (p / q).log()).sum(-1))
kl_support.foil(
    r"with $q$ clipped at $10^{-12}$ it is finite where it is not",
    formula=lambda p, q: torch.special.xlogy(p, p / q.clamp(min=1e-12)).sum(-1),
)


@claim(by="sampling", sources=("D-134", "E-117"), budget=0.5, full={"pairs": 10**6})
def kl_zero(constant: float = 2.0, curvature: float = 0.5, pairs: int = 10**4):
    r"""The KL divergence vanishes only for equal laws.

    $\mathrm{KL}(p \| q) = 0$ iff $p = q$ (almost everywhere). Quantitatively (Pinsker)
    $\mathrm{KL}(p \| q) \ge 2\, \mathrm{TV}(p, q)^2$ in nats, with
    $\mathrm{TV} = \frac12 \sum |p - q|$; and near $q = p$ it is quadratic,
    $\mathrm{KL}(p \| p + h v) = \frac{h^2}{2} \sum v^2 / p + O(h^3)$ for $\sum v = 0$.

    *The remainder.* With $t = h v / p$, $|t| < 1$, it is
    $\sum p\, |t - \log(1 + t) - \frac{t^2}2| \le \sum \frac{p\, |t|^3}{3 (1 - |t|)}$.
    """
    for k in (2, 3, 10):
        p, q = Dirichlet(torch.full((k,), 0.5)).sample((2, pairs))
        yield equals(kl(p, p), 0.0, tol=0.0, k=k)
        yield at_least(kl(p, q), constant * total_variation(p, q) ** 2, k=k)
    small = 0.1 ** torch.arange(1.0, 7.0)
    leaning = torch.stack([0.5 + small, 0.5 - small], -1)
    ratio = kl(leaning, FAIR) / total_variation(leaning, FAIR) ** 2
    yield at_least(ratio, constant, tol=1e-9)
    p = 0.1 + 0.6 * random_laws(20, 4)
    v = torch.randn(20, 4)
    v = v - v.mean(-1, keepdim=True)
    v = v / v.abs().amax(-1, keepdim=True)
    for h in (1e-3, 1e-5, 1e-7):
        t = (h * v / p).abs()
        rest = (p * t**3 / (3 * (1 - t))).sum(-1) / h**2 + 1e-14 / h  # and rounding of p + h v
        error = kl(p, p + h * v) / h**2 - curvature * (v**2 / p).sum(-1)
        yield at_most(error.abs(), rest, h=h)


kl_zero.foil(r"twice the constant fails for nearly fair coins", constant=4.0)
kl_zero.foil("the Fisher metric without its half", curvature=1.0)


@claim(by="witness", sources=("D-135",), budget=0.5)
def kl_asymmetry(formula: Divergence = kl):
    r"""The KL divergence is not symmetric.

    In general $\mathrm{KL}(p \| q) \ne \mathrm{KL}(q \| p)$, and the triangle inequality fails as
    well, so KL is not a metric: for $p = (0.9, 0.1)$ and $q = (0.5, 0.5)$ the two values are 0.3681
    and 0.5108 nats, and from $p$ to its mirror image it is farther directly, 1.758, than by $q$.
    (For two binary laws that are mirror images the two directions agree.)
    """
    there, back = formula(BIASED, FAIR), formula(FAIR, BIASED)
    yield equals(there, 0.9 * math.log(9 / 5) - 0.1 * math.log(5))
    yield equals(back, math.log(5 / 3))
    yield at_least(back - there, 0.14)
    direct = formula(BIASED, MIRRORED)
    yield equals(direct, formula(MIRRORED, BIASED))
    yield at_least(direct, there + formula(FAIR, MIRRORED) + 0.8)


kl_asymmetry.foil(
    "a symmetric divergence: the mean of both", formula=lambda p, q: (kl(p, q) + kl(q, p)) / 2
)
kl_asymmetry.foil("Jeffreys' sum", formula=lambda p, q: kl(p, q) + kl(q, p))


@claim(by="identity", sources=("D-126", "D-130", "E-114", "E-118"), budget=0.5)
def cross_entropy_decomposition(
    formula: Divergence = lambda p, q: cross(p, q) - shannon(p),
):
    r"""Cross-entropy is entropy plus KL divergence.

    $H(p, q) = H(p) + \mathrm{KL}(p \| q)$, i.e. $\mathrm{KL}(p \| q) = H(p, q) - H(p)$, where both
    entropies average under $p$. So minimising cross-entropy and minimising KL in $q$ are the same
    problem: their gradients by the logits of $q$ agree.
    """
    yield equals(formula(FAIR, BIASED), math.log(5 / 3))
    for k in (2, 4, 15):
        p, q = random_laws(50, k, zeros=True), random_laws(50, k, zeros=True)
        q[::2] = random_laws(25, k)
        yield equals(formula(p, q), kl(p, q), k=k)
        z = torch.randn(50, k, requires_grad=True)
        (ours,) = torch.autograd.grad(kl(p, z.softmax(-1)).sum(), z)
        (theirs,) = torch.autograd.grad(formula(p, z.softmax(-1)).sum(), z)
        yield equals(theirs, ours, k=k)
        h = 1e-5 * torch.eye(k)[:, None]
        ends = (formula(p, (z + s * h).softmax(-1)) for s in (1, -1))
        central = (next(ends) - next(ends)).T / 2e-5
        yield equals(central, z.softmax(-1) - p, tol=1e-6, k=k)


cross_entropy_decomposition.foil(
    r"$H(p) - H(q)$: 0.3681 instead of 0.5108", formula=lambda p, q: shannon(p) - shannon(q)
)
cross_entropy_decomposition.foil(
    r"$H(p, q) - H(q)$: 0.8789 instead of 0.5108", formula=lambda p, q: cross(p, q) - shannon(q)
)


@claim(by="sampling", sources=("D-127", "E-115"), budget=0.5, full={"pairs": 10**6})
def gibbs_inequality(score: Divergence = cross, pairs: int = 10**4):
    r"""Cross-entropy is minimised by the true distribution (Gibbs).

    For fixed $p$, $H(p, q) \ge H(p)$ over all laws $q$, with equality only at $q = p$:
    $H(p, q) - H(p) \ge 2\, \mathrm{TV}(p, q)^2$. In softmax logits the gradient of
    $H(p, \mathrm{softmax}(z))$ is $\mathrm{softmax}(z) - p$, zero exactly there. The log score is
    thus strictly proper.
    """
    witness = torch.tensor([0.7, 0.3]), torch.tensor([1.0, 0.0])
    for p, q in (witness, Dirichlet(torch.full((5,), 0.5)).sample((2, pairs))):
        yield at_least(score(p, q) - score(p, p), 2 * total_variation(p, q) ** 2)
    p = 0.05 + 0.75 * random_laws(5)
    z = torch.randn(5, requires_grad=True)
    (slope,) = torch.autograd.grad(score(p, z.softmax(0)), z)
    yield equals(slope, z.softmax(0) - p)
    descent = torch.optim.LBFGS(
        [z], max_iter=200, tolerance_grad=1e-9, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        descent.zero_grad()
        value = score(p, z.softmax(0))
        value.backward()
        return value.item()

    descent.step(closure)
    yield equals(z.softmax(0), p, tol=1e-6)


gibbs_inequality.foil(
    r"$H(q, p)$ is least at the mode: $0.357 < 0.611$ for $p = (0.7, 0.3)$",
    score=lambda p, q: cross(q, p),
)
gibbs_inequality.foil(
    "the linear score is improper: least at the mode as well", score=lambda p, q: -(p * q).sum(-1)
)
