"""Cross-entropy: a score, a loss, a divergence with an entropy."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Dirichlet
from torch.nn import functional as F

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import cross_entropy as cross
from vademecum.foundations import entropy as shannon
from vademecum.foundations import kl_divergence as kl
from vademecum.foundations.claims.divergences import BIASED, FAIR, Divergence, loop
from vademecum.foundations.claims.information import random_laws


@claim(
    by="identity",
    sources=("D-125", "E-113"),
    budget=0.5,
    short=r"H(p, q) = -\textstyle\sum_x p(x) \log q(x)",
)
def cross_entropy(formula: Callable[[Tensor, Tensor], Tensor] = cross):
    r"""Cross-entropy.

    For discrete laws, $H(p, q) = -\sum_x p(x) \log q(x) = \mathbb E_{x \sim p}[-\log q(x)] \ge 0$,
    with the value $+\infty$ if $q(x) = 0 < p(x)$ for some $x$, and terms with $p(x) = 0$ counted as
    0. It is linear in $p$ and convex in $q$; for the empirical law $\hat p$ of $n$ draws,
    $n H(\hat p, q)$ is the negative log-likelihood of $q$.

    Knobs:
        formula: What is called the cross-entropy of p and q.
    """
    biased, fair = torch.tensor([[0.9, 0.1], [0.5, 0.5]])
    yield equals("cross-entropy of two coins", formula(biased, fair), math.log(2))
    for k in (2, 4, 9):
        p, q = random_laws(60, k, zeros=True), random_laws(60, k, zeros=True)
        q[::2] = random_laws(30, k)
        loop = [_loop(*rows) for rows in zip(p.tolist(), q.tolist(), strict=True)]
        yield equals("cross-entropy, by its definition", formula(p, q), loop, k=k)
        yield at_least("cross-entropy", formula(p, q), 0.0, k=k)
        other = random_laws(60, k)
        middle, chord = formula(p, (q + other) / 2), (formula(p, q) + formula(p, other)) / 2
        yield at_most("cross-entropy half-way in q", middle, chord, k=k)
        mixed = formula(0.25 * p + 0.75 * other, other.flip(0))
        parts = 0.25 * formula(p, other.flip(0)) + 0.75 * formula(other, other.flip(0))
        yield equals("cross-entropy of a mixture in p", mixed, parts, k=k)
        draws, model = torch.randint(k, (40,)), other[0]
        likelihood = math.fsum(-math.log(model[x]) for x in draws)
        empirical = torch.bincount(draws, minlength=k) / 40
        total = 40 * formula(empirical, model)
        yield equals("cross-entropy of 40 draws, times 40", total, likelihood, k=k)


def _loop(p: list[float], q: list[float]) -> float:
    pairs = [(a, b) for a, b in zip(p, q, strict=True) if a > 0]
    return math.fsum(-a * math.log(b) if b > 0 else math.inf for a, b in pairs)


cross_entropy.foil("exchanged arguments: 1.204 instead of 0.693", formula=lambda p, q: cross(q, p))
cross_entropy.foil("symmetrised", formula=lambda p, q: (cross(p, q) + cross(q, p)) / 2)


def soft_loss(z: Tensor, y: Tensor) -> Tensor:
    """The loss that torch computes from logits and target weights."""
    return F.cross_entropy(z, y, reduction="none")


@claim(
    by="identity",
    sources=("B-027",),
    budget=0.5,
    short=r"\ell = -\textstyle\sum_c y_c \log P_c, \quad \nabla_z \ell = \mathrm{softmax}(z) - y",
)
def cross_entropy_loss(loss: Callable[[Tensor, Tensor], Tensor] = soft_loss, sign: int = 1):
    r"""Cross-entropy loss of one observation.

    With target weights $y_c$ over $M$ classes (one-hot or soft, summing to 1) and predicted
    probabilities $P_c$: $\ell = -\sum_{c = 1}^M y_c \log P_c$; for a one-hot target it is minus the
    log-probability of the true class. With $P = \mathrm{softmax}(z)$ the gradient is
    $\nabla_z \ell = P - y$, and the loss must be computed from the logits, as
    $\mathrm{logsumexp}(z) - y^\top z$, to stay finite.

    Checked on torch's loss, against 40 digits; on its gradient by central differences of logits up
    to 5, which with steps of $10^{-5}$ err by some $10^{-9}$.

    Knobs:
        loss: The loss of rows of logits and of target weights.
        sign: The sign of the gradient.
    """
    far = torch.tensor([[0.0, 1000.0]])
    hit = torch.tensor([[1.0, 0.0]])
    yield equals("loss of a logit behind by 1000", loss(far, hit), 1000.0)
    for scale in (5.0, 1000.0):
        z = scale * (2 * torch.rand(12, 4) - 1)
        hot = F.one_hot(torch.randint(4, (6,)), 4).double()
        y = torch.cat([hot, random_laws(6, 4)])
        exact = [_exact_loss(*pair) for pair in zip(z, y, strict=True)]
        yield equals("loss", loss(z, y), exact, scale=scale)
        yield equals("loss of shifted logits", loss(z + scale, y), loss(z, y), scale=scale)
        alone = [-float(z[i].log_softmax(0)[hot[i].argmax()]) for i in range(6)]
        yield equals("loss of a one-hot target", loss(z, y)[:6], alone, scale=scale)
        if scale == 5.0:
            h = 1e-5 * torch.eye(4)[:, None]
            up, down = (loss((z + s * h).flatten(0, 1), y.repeat(4, 1)) for s in (1, -1))
            central = ((up - down) / 2e-5).view(4, 12).T
            exact = sign * (z.softmax(-1) - y)
            yield equals("gradient in the logits", central, exact, tol=1e-8, scale=scale)


def _exact_loss(z: Tensor, y: Tensor) -> float:
    import mpmath  # comes with SymPy, and so with torch

    with mpmath.workdps(40):
        total = mpmath.fsum(mpmath.exp(v) for v in z.tolist())
        return float(mpmath.log(total) - mpmath.fdot(y.tolist(), z.tolist()))


cross_entropy_loss.foil(
    "naively, by the logarithm of a softmax that has underflowed, it is infinite",
    loss=lambda z, y: -torch.special.xlogy(y, z.softmax(-1)).sum(-1),
)
cross_entropy_loss.foil(
    "the sum over one class against the rest counts the others twice",
    loss=lambda z, y: F.binary_cross_entropy(z.softmax(-1), y, reduction="none").sum(-1),
)
cross_entropy_loss.foil(r"the gradient is not $y - P$", sign=-1)


@claim(
    by="identity",
    sources=("D-126", "D-130", "E-114", "E-118"),
    budget=0.5,
    short=r"H(p, q) = H(p) + \mathrm{KL}(p \| q)",
)
def cross_entropy_decomposition(
    formula: Divergence = lambda p, q: cross(p, q) - shannon(p),
):
    r"""Cross-entropy is entropy plus KL divergence.

    $H(p, q) = H(p) + \mathrm{KL}(p \| q)$, i.e. $\mathrm{KL}(p \| q) = H(p, q) - H(p)$, where both
    entropies average under $p$. So minimising cross-entropy and minimising KL in $q$ are the same
    problem: their gradients by the logits of $q$ agree.

    Checked against the definition of the divergence, zeros included, and on gradients by autograd
    and by central differences, which with steps of $10^{-5}$ err by some $10^{-10}$.

    Knobs:
        formula: The divergence as a function of entropies.
    """
    yield equals(
        "divergence from entropies, of a fair and a biased coin",
        formula(FAIR, BIASED),
        math.log(5 / 3),
    )
    for k in (2, 4, 15):
        p, q = random_laws(50, k, zeros=True), random_laws(50, k, zeros=True)
        q[::2] = random_laws(25, k)
        exact = loop(p, q)
        yield equals("divergence from entropies", formula(p, q), exact, k=k)
        yield equals("divergence", kl(p, q), exact, k=k)
        z = torch.randn(50, k, requires_grad=True)
        (ours,) = torch.autograd.grad(kl(p, z.softmax(-1)).sum(), z)
        (theirs,) = torch.autograd.grad(formula(p, z.softmax(-1)).sum(), z)
        slope = z.detach().softmax(-1) - p
        yield equals("gradient of the divergence", ours, slope, k=k)
        yield equals("gradient of the divergence from entropies", theirs, slope, k=k)
        h = 1e-5 * torch.eye(k)[:, None]
        ends = (formula(p, (z + s * h).softmax(-1)) for s in (1, -1))
        central = (next(ends) - next(ends)).T / 2e-5
        yield equals(
            "central difference of the divergence from entropies", central, slope, tol=1e-8, k=k
        )


cross_entropy_decomposition.foil(
    r"$H(p) - H(q)$: 0.3681 instead of 0.5108", formula=lambda p, q: shannon(p) - shannon(q)
)
cross_entropy_decomposition.foil(
    r"$H(p, q) - H(q)$: 0.8789 instead of 0.5108", formula=lambda p, q: cross(p, q) - shannon(q)
)


@claim(
    by="sampling",
    sources=("D-127", "E-115"),
    budget=0.5,
    full={"pairs": 10**6},
    short=r"H(p, q) \ge H(p), \text{ with equality only for } q = p",
)
def gibbs_inequality(score: Divergence = cross, pairs: int = 10**4):
    r"""Cross-entropy is minimised by the true distribution (Gibbs).

    For fixed $p$, $H(p, q) \ge H(p)$ over all laws $q$, with equality only at $q = p$:
    $H(p, q) - H(p) \ge 2\, \mathrm{TV}(p, q)^2$. In softmax logits the gradient of
    $H(p, \mathrm{softmax}(z))$ is $\mathrm{softmax}(z) - p$, zero exactly there. The log score is
    thus strictly proper.

    Checked on random laws; on the gradient; and on where L-BFGS ends: an excess of $10^{-15}$,
    which rounding hides, leaves a total variation of at most $3 \cdot 10^{-8}$.

    Knobs:
        score: What is called the cross-entropy of p and q.
        pairs: How many pairs of laws are drawn.
    """
    witness = torch.tensor([0.7, 0.3]), torch.tensor([1.0, 0.0])
    for p, q in (witness, Dirichlet(torch.full((5,), 0.5)).sample((2, pairs))):
        gap, half = score(p, q) - score(p, p), (p - q).abs().sum(-1) / 2
        yield at_least("excess of the cross-entropy", gap, 2 * half**2, k=p.shape[-1])
    p = 0.05 + 0.75 * random_laws(5)
    z = torch.randn(5, requires_grad=True)
    (slope,) = torch.autograd.grad(score(p, z.softmax(0)), z)
    yield equals("gradient in the logits", slope, z.softmax(0) - p)
    descent = torch.optim.LBFGS(
        [z], max_iter=200, tolerance_grad=1e-9, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        descent.zero_grad()
        value = score(p, z.softmax(0))
        value.backward()
        return value.item()

    descent.step(closure)
    yield equals("law that minimises the cross-entropy", z.softmax(0), p, tol=1e-7)


gibbs_inequality.foil(
    r"$H(q, p)$ is least at the mode: $0.357 < 0.611$ for $p = (0.7, 0.3)$",
    score=lambda p, q: cross(q, p),
)
gibbs_inequality.foil(
    "the linear score is improper: least at the mode as well", score=lambda p, q: -(p * q).sum(-1)
)
