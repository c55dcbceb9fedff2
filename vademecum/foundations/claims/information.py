"""What the course claims of entropy, cross-entropy and codes."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Categorical,
    Distribution,
    Exponential,
    Normal,
    TransformedDistribution,
    Uniform,
)
from torch.nn import functional as F

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.divergences import kl_divergence as kl
from vademecum.foundations.entropies import cross_entropy as cross
from vademecum.foundations.entropies import entropy as shannon
from vademecum.foundations.huffman import huffman_code


def random_laws(*shape: int, zeros: bool = False) -> Tensor:
    """Random laws along the last axis, about a third of their entries zero on demand."""
    weights = torch.rand(shape) ** 2 + 1e-3
    if zeros:
        keep = torch.rand(shape) < 2 / 3
        keep.scatter_(-1, torch.randint(shape[-1], (*shape[:-1], 1)), True)
        weights = weights * keep
    return weights / weights.sum(-1, keepdim=True)


@claim(by="identity", sources=("A-007", "B-019", "D-123", "D-132", "E-111"), budget=0.5)
def entropy(order: float = 1.0, base: float = math.e, sign: int = 1):
    r"""Shannon entropy.

    For a discrete $X$ with $k$ outcomes, $H(X) = \mathbb E[-\log P(X)] = -\sum_x p(x) \log p(x)$,
    with $0 \log 0 := 0$, the limit of $x \log x$. $0 \le H \le \log k$, with $H = 0$ exactly for
    point masses and $H = \log k$ exactly for the uniform law. It is additive over independent
    variables, and a choice made in two steps has the entropy of the first plus the mean entropy of
    the second (grouping), which no Rényi entropy $\frac{1}{1 - \alpha} \log \sum_x p(x)^\alpha$ of
    another order $\alpha$ has.
    """

    def formula(p: Tensor) -> Tensor:
        renyi = shannon(p, base=base) if order == 1 else (p**order).sum(-1).log() / (1 - order)
        return sign * renyi

    for k in (1, 2, 5, 20):
        p, q = random_laws(50, k, zeros=True), random_laws(50, 3, zeros=True)
        measured = formula(p)
        yield at_least(measured, 0.0, k=k)
        yield at_most(measured, math.log(k), k=k)
        yield equals(formula(torch.eye(k)), 0.0, k=k)
        yield equals(formula(torch.full((k,), 1 / k)), math.log(k), k=k)
        product = (p[:, :, None] * q[:, None]).flatten(1)
        yield equals(formula(product), measured + formula(q), k=k)
        halves = p[:, :, None] * torch.stack([q[:, 0], 1 - q[:, 0]], -1)[:, None]
        split = torch.cat([halves[:, 0], p[:, 1:]], 1)  # the first outcome falls into two
        second = formula(torch.stack([q[:, 0], 1 - q[:, 0]], -1))
        yield equals(formula(split), measured + p[:, 0] * second, k=k)
        loop = [-math.fsum(v * math.log(v) for v in row if v > 0) for row in p.tolist()]
        yield equals(measured, loop, k=k)
    dyadic = torch.tensor([0.5, 0.25, 0.125, 0.125])
    yield equals(formula(dyadic) / math.log(2), 1.75)


entropy.foil("without the minus it is negative", sign=-1)
entropy.foil(r"$\log_2$ gives 2 for the uniform law on 4, where nats are promised", base=2.0)
entropy.foil(r"the collision entropy reaches $\log k$, but does not group", order=2.0)


@claim(by="identity", sources=("D-124", "E-112"), budget=0.5)
def surprisal(formula: Callable[[Tensor], Tensor] = lambda p: -p.log()):
    r"""Information content, and entropy as its expectation.

    The information content (surprisal) of an outcome is $I(x) = -\log p(x) \ge 0$. It adds over
    independent outcomes, $I(x, y) = I(x) + I(y)$; $I = \log m$ for a probability $\frac1m$, and
    $I = \infty$ for an impossible outcome. $H(X) = \mathbb E[I(X)]$.
    """
    for k in (2, 6):
        p, q = random_laws(30, k), random_laws(30, 4)
        yield at_least(formula(p), 0.0, k=k)
        joint = formula(p[:, :, None] * q[:, None])
        yield equals(joint, formula(p)[:, :, None] + formula(q)[:, None], k=k)
        yield equals((p * formula(p)).sum(-1), shannon(p), k=k)
        law = Categorical(p[0])
        yield equals(formula(p[0]), -law.log_prob(torch.arange(k)), k=k)
    m = torch.arange(1.0, 10.0)
    yield equals(formula(1 / m), m.log())
    yield equals(formula(torch.zeros(1)), math.inf)


surprisal.foil(r"$1 - p(x)$ is not additive: $\frac34$ against 1", formula=lambda p: 1 - p)


legendre = cache(np.polynomial.legendre.leggauss)


def quadrature(low: float, high: float, nodes: int = 200) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss and Legendre on an interval."""
    x, w = map(torch.as_tensor, legendre(nodes))
    return (low + high + (high - low) * x) / 2, w * (high - low) / 2


def integrated_entropy(law: Distribution, low: float, high: float) -> Tensor:
    r"""$-\int f \log f$ over an interval that holds the law up to rounding."""
    x, w = quadrature(min(low, high), max(low, high))
    log = law.log_prob(x)
    return -(w * log.exp() * log).sum()


@claim(by="identity", sources=("D-123", "E-111"), budget=0.5)
def differential_entropy(jacobian: float = 1.0, floor: float = -math.inf):
    r"""Differential entropy can be negative.

    For a density, $h(X) = -\int f \log f$ is not bounded below by 0 and not invariant under
    scaling: $h(a X) = h(X) + \log |a|$ for $a \ne 0$. The uniform law on $[0, c]$ has
    $h = \log c$, the exponential law of rate $\lambda$ has $h = 1 - \log \lambda$, and the normal
    law has $h = \frac12 \log(2 \pi e \sigma^2)$, which is negative for
    $\sigma^2 < \frac{1}{2 \pi e}$.
    """
    cases = [
        (Uniform(0.0, 0.5), 0.0, 0.5, math.log(0.5)),
        (Normal(0.0, 0.1), -1.2, 1.2, math.log(2 * math.pi * math.e * 0.01) / 2),
        (Exponential(5.0), 0.0, 12.0, 1 - math.log(5)),
        (Normal(0.0, (2 * math.pi * math.e) ** -0.5), -3.0, 3.0, 0.0),
    ]
    for i, (law, low, high, closed) in enumerate(cases):
        yield equals(law.entropy(), closed, law=i)
        yield equals(integrated_entropy(law, low, high), closed, law=i)
        yield at_least(integrated_entropy(law, low, high), floor, law=i)
        for a in (-2.0, 0.1, 3.0):
            scaled = TransformedDistribution(law, AffineTransform(0.0, a))
            measured = integrated_entropy(scaled, a * low, a * high)
            yield equals(measured, closed + jacobian * math.log(abs(a)), law=i, a=a)


differential_entropy.foil("a density's entropy is not at least 0 as a discrete one's", floor=0.0)
differential_entropy.foil(r"scaling is not for free: $h(aX) \ne h(X)$", jacobian=0.0)


@claim(by="identity", sources=("D-125", "E-113"), budget=0.5)
def cross_entropy(formula: Callable[[Tensor, Tensor], Tensor] = cross):
    r"""Cross-entropy.

    For discrete laws, $H(p, q) = -\sum_x p(x) \log q(x) = \mathbb E_{x \sim p}[-\log q(x)] \ge 0$,
    with the value $+\infty$ if $q(x) = 0 < p(x)$ for some $x$, and terms with $p(x) = 0$ counted as
    0. It is linear in $p$ and convex in $q$; for the empirical law $\hat p$ of $n$ draws,
    $n H(\hat p, q)$ is the negative log-likelihood of $q$.
    """
    yield equals(formula(torch.tensor([0.9, 0.1]), torch.tensor([0.5, 0.5])), math.log(2))
    for k in (2, 4, 9):
        p, q = random_laws(60, k, zeros=True), random_laws(60, k, zeros=True)
        q[::2] = random_laws(30, k)
        loop = [_loop(*rows) for rows in zip(p.tolist(), q.tolist(), strict=True)]
        yield equals(formula(p, q), loop, k=k)
        other = random_laws(60, k)
        middle = formula(p, (q + other) / 2)
        yield at_most(middle, (formula(p, q) + formula(p, other)) / 2, k=k)
        mixed = formula(0.25 * p + 0.75 * other, other.flip(0))
        parts = 0.25 * formula(p, other.flip(0)) + 0.75 * formula(other, other.flip(0))
        yield equals(mixed, parts, k=k)
        draws, model = torch.randint(k, (40,)), other[0]
        likelihood = math.fsum(-math.log(model[x]) for x in draws)
        empirical = torch.bincount(draws, minlength=k) / 40
        yield equals(40 * formula(empirical, model), likelihood, k=k)


def _loop(p: list[float], q: list[float]) -> float:
    pairs = [(a, b) for a, b in zip(p, q, strict=True) if a > 0]
    return math.fsum(-a * math.log(b) if b > 0 else math.inf for a, b in pairs)


cross_entropy.foil("exchanged arguments: 1.204 instead of 0.693", formula=lambda p, q: cross(q, p))
cross_entropy.foil("symmetrised", formula=lambda p, q: (cross(p, q) + cross(q, p)) / 2)


def soft_loss(z: Tensor, y: Tensor) -> Tensor:
    """The loss that torch computes from logits and target weights."""
    return F.cross_entropy(z, y, reduction="none")


@claim(by="identity", sources=("B-027",), budget=0.5)
def cross_entropy_loss(loss: Callable[[Tensor, Tensor], Tensor] = soft_loss, sign: int = 1):
    r"""Cross-entropy loss of one observation.

    With target weights $y_c$ over $M$ classes (one-hot or soft, summing to 1) and predicted
    probabilities $P_c$: $\ell = -\sum_{c = 1}^M y_c \log P_c$; for a one-hot target it is minus the
    log-probability of the true class. With $P = \mathrm{softmax}(z)$ the gradient is
    $\nabla_z \ell = P - y$, and the loss must be computed from the logits, as
    $\mathrm{logsumexp}(z) - y^\top z$, to stay finite.
    """
    far = torch.tensor([[0.0, 1000.0]])
    yield equals(loss(far, torch.tensor([[1.0, 0.0]])), 1000.0)
    for scale in (5.0, 1000.0):
        z = scale * (2 * torch.rand(12, 4) - 1)
        hot = F.one_hot(torch.randint(4, (6,)), 4).double()
        y = torch.cat([hot, random_laws(6, 4)])
        yield equals(
            loss(z, y), [_exact_loss(*pair) for pair in zip(z, y, strict=True)], scale=scale
        )
        yield equals(loss(z + scale, y), loss(z, y), scale=scale)
        alone = [-float(z[i].log_softmax(0)[hot[i].argmax()]) for i in range(6)]
        yield equals(loss(z, y)[:6], alone, scale=scale)
        if scale == 5.0:
            h = 1e-5 * torch.eye(4)[:, None]
            central = ((loss((z + h).flatten(0, 1), y.repeat(4, 1))
                        - loss((z - h).flatten(0, 1), y.repeat(4, 1))) / 2e-5)  # fmt: skip
            yield equals(central.view(4, 12).T, sign * (z.softmax(-1) - y), tol=1e-6)


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


@claim(by="identity", sources=("D-133",), budget=0.5, full={"trees": 300, "leaves": 30})
def kl_code_length(
    excess: Callable[[Tensor, Tensor], Tensor] = lambda p, q: kl(p, q, base=2),
    trees: int = 6,
    leaves: int = 8,
):
    r"""The KL divergence as excess code length.

    Coding data from $p$ with the code that is ideal for $q$ (lengths $-\log_2 q(x)$) costs
    $H_2(p) + \mathrm{KL}_2(p \| q)$ bits a symbol on average: KL is the information lost by using
    the model $q$ for the truth $p$. For a dyadic $q$ a prefix code, Huffman's, attains these
    lengths exactly.
    """
    pairs = [(torch.tensor([1, 2, 2]), torch.tensor([1.0, 1.0, 6.0]))]
    for _ in range(trees):
        depths = [0]
        while len(depths) < leaves:
            depth = depths.pop(int(torch.randint(len(depths), ()))) + 1
            depths += [depth, depth]
        pairs.append((torch.tensor(depths), torch.randint(9, (leaves,)) + torch.eye(leaves)[0]))
    for tree, (depths, weights) in enumerate(pairs):
        q, p = 0.5 ** depths.double(), weights / weights.sum()
        code = huffman_code(q)
        yield equals(code.lengths, depths, tree=tree)
        yield equals([len(word) for word in code.words], depths, tree=tree)
        begun = [sum(other.startswith(word) for other in code.words) for word in code.words]
        yield equals(begun, 1, tree=tree)  # by itself only
        mean = p @ code.lengths.double()
        yield equals(mean - shannon(p, base=2), excess(p, q), tree=tree)
        text = torch.randint(len(p), (30,)).tolist()
        yield equals(_decoded("".join(code.words[x] for x in text), code.words), text, tree=tree)


def _decoded(stream: str, words: tuple[str, ...]) -> list[int]:
    text, word = [], ""
    for bit in stream:
        word += bit
        if word in words:
            text.append(words.index(word))
            word = ""
    return text


kl_code_length.foil("the reversed divergence", excess=lambda p, q: kl(q, p, base=2))
kl_code_length.foil(
    "the excess over the entropy of the model",
    excess=lambda p, q: cross(p, q, base=2) - shannon(q, base=2),
)
