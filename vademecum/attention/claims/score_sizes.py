"""Sizes of scores: their rank, why they are scaled, and what large ones do to the softmax."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from vademecum.arrays import rational_rank as rank
from vademecum.attention import attention
from vademecum.claims import Evidence, at_most, claim, complex_step, equals, in_mean, integers


@claim(
    by="identity", sources=("C-158",), budget=0.5,
    short=r"\mathrm{rank}(Q K^\top) \le \min(d, e, T)",
)  # fmt: skip
def score_rank(
    matrix: Literal["scores", "weights"] = "scores",
    bound: Callable[[int, int, int], int] = min,
    n: int = 6,
) -> Iterator[Evidence]:
    r"""The rank of the attention scores is at most that of queries and keys.

    $\mathrm{rank}(Q K^\top) \le \min(d, e, T)$ for $T$ tokens of $e$ features and queries and keys
    of dimension $d$, $Q = X U_Q$, $K = X U_K$: small heads have scores of low rank. The bound is
    attained. The softmax of the rows is not covered by it: with $d = 1$, $q_i = i$ and $k_j = j
    \log 2$ the weights of row $i$ are proportional to $(2^j)^i$, a matrix of Vandermonde, of full
    rank. Ranks are exact, of integers and fractions.

    Knobs:
        matrix: Of which matrix the rank is bounded: the scores, or the weights after the softmax.
        bound: The bound, of $d$, $e$ and $T$.
        n: How many tokens there are in the example of Vandermonde.
    """
    for T, e, d in ((8, 5, 2), (8, 2, 5), (3, 5, 4), (7, 4, 4)):
        X, U_Q, U_K = integers(T, e), integers(e, d), integers(e, d)
        at = {"T": T, "e": e, "d": d}
        found = rank((X @ U_Q @ (X @ U_K).T).tolist())
        yield at_most("rank of the scores", found, bound(d, e, T), **at)
        X, U_Q = torch.eye(T, e), torch.eye(e, d)
        found = rank((X @ U_Q @ (X @ U_Q).T).tolist())
        yield at_most("rank of the scores of coordinate vectors", found, bound(d, e, T), **at)
        yield equals("the same, against its bound", found, min(d, e, T), **at)
    i = torch.arange(n)
    table = torch.outer(i, i)  # scores over log 2
    keys = i[:, None] * math.log(2)
    weights = attention(i[:, None].double(), keys, torch.eye(n), scale=1.0).weights
    rows = [[2**v for v in row] for row in table.tolist()]
    exact = [[Fraction(v, sum(row)) for v in row] for row in rows]
    yield equals("weights", weights, [[float(w) for w in row] for row in exact], tol=1e-13)
    yield equals("rank of the weights", rank(exact), n)
    found = rank(exact if matrix == "weights" else table.tolist())
    yield at_most(f"rank of the {matrix} of one feature", found, bound(1, 1, n), T=n, d=1)


score_rank.foil("the softmax keeps the rank", matrix="weights",
                refuted_by="rank of the weights of one feature")  # fmt: skip
score_rank.foil("one less", bound=lambda d, e, T: min(d, e, T) - 1)


def skew(m: int) -> list[tuple[list[Fraction], Fraction]]:
    """All vectors of m numbers -1/2 and 2, which have mean 0 and variance 1, and how likely."""
    law = {Fraction(-1, 2): Fraction(4, 5), Fraction(2): Fraction(1, 5)}
    return [(list(x), math.prod((law[v] for v in x), start=Fraction(1)))
            for x in product(law, repeat=m)]  # fmt: skip


def dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    """The inner product, exactly."""
    return sum((u * v for u, v in zip(a, b, strict=True)), Fraction(0))


@claim(
    by="identity", sources=("B-393", "C-161"), budget=0.7,
    short=r"\xi_i, x_i \text{ iid, mean 0, variance 1}: \mathrm{Var}(\xi"
    r" \cdot x) = m, \mathrm{Var}(\xi \cdot x / \sqrt m) = 1",
)  # fmt: skip
def score_variance(
    scale: Callable[[int], float] | None = None, dependent: bool = False, N: int = 20_000
) -> Iterator[Evidence]:
    r"""Scaling by the square root keeps unit variance.

    If the entries of $\xi, x \in \mathbb R^m$ are independent with mean 0 and variance 1, then
    $\xi \cdot x$ has mean 0 and variance $m$, so that $\xi \cdot x / \sqrt m$ has variance 1 for
    every $m$: of the $m^2$ products $\mathbb E\, \xi_i x_i \xi_j x_j$ those with $i \ne j$ vanish.
    All signs up to $m = 10$ for a fixed $\xi$, all vectors of a law that is not symmetric up to
    $m = 3$, and Gaussian ones. Scores are those of `attention`, whose two weights for the keys $x$
    and 0 have the logarithmic ratio $\xi \cdot x / \sqrt m$.

    Knobs:
        scale: What scores are multiplied by, of $m$; by default what `attention` does.
        dependent: Whether $x$ is $\xi$ itself.
        N: How many Gaussian pairs are drawn.
    """

    def scores(q: Tensor, x: Tensor) -> Tensor:
        keys = torch.stack((x, torch.zeros_like(x)), 1)
        factor = None if scale is None else scale(x.shape[1])
        weights = attention(q[:, None], keys, keys, scale=factor).weights[:, 0]
        return (weights[:, 0] / weights[:, 1]).log()

    for m in range(1, 11):
        x = torch.tensor(list(product((-1.0, 1.0), repeat=m)))
        xi = x if dependent else x[torch.randint(len(x), (1,))].expand_as(x)
        s = scores(xi, x)
        yield equals("mean of the scores of all signs", s.mean(), 0.0, tol=1e-12, m=m)
        yield equals("mean of their squares", s.square().mean(), 1.0, tol=1e-12, m=m)
    for m in (1, 2, 3):
        law = skew(m)
        square = sum(p * q * dot(a, b) ** 2 for a, p in law for b, q in law)
        yield equals("variance of the unscaled score, exactly", float(square), float(m), tol=0.0)
        x = torch.tensor([[float(v) for v in a] for a, _ in law])
        p = torch.tensor([float(p) for _, p in law])
        a, b = x.repeat_interleave(len(x), 0), x.repeat(len(x), 1)
        p = torch.outer(p, p).flatten()
        s = scores(a, a if dependent else b)
        yield equals("mean of a skew law's scores", (p * s).sum(), 0.0, tol=1e-12, m=m)
        yield equals("their variance", (p * s.square()).sum(), 1.0, tol=1e-12, m=m)
    for m in (2, 64):
        xi, x = torch.randn(2, N, m)
        s = scores(xi, xi if dependent else x)
        yield in_mean("score of Gaussian vectors", s, 0.0, m=m)
        yield in_mean("its square", s.square(), 1.0, m=m)


score_variance.foil("division by m", scale=lambda m: 1 / m)
score_variance.foil("no division", scale=lambda m: 1.0)
score_variance.foil("a vector with itself", dependent=True)


def weights_of(s: Tensor) -> Tensor:
    """The softmax of scores, as attention with one query makes it."""
    one = torch.ones(*s.shape[:-1], 1, 1)
    return attention(one, s[..., None], s[..., None], scale=1.0).weights[..., 0, :]


def jacobian(p: Tensor) -> Tensor:
    """The derivative of the softmax as stated."""
    return torch.diag_embed(p) - p[..., None] * p[..., None, :]


@claim(
    by="sampling", sources=("B-393",), budget=0.7,
    short=r"\|J\|_2 \le 1 - \textstyle\sum_i p_i^2 \le 2(1 - p_{\max}) \le 2(n - 1) e^{-g},\ g "
    r"\text{ the lead of the first}",
)  # fmt: skip
def softmax_saturation(
    factor: float = 2.0,
    others: Callable[[int], int] = lambda n: n - 1,
    rate: float = 1.0,
    vectors: int = 300,
) -> Iterator[Evidence]:
    r"""Large scores saturate the softmax.

    The Jacobian of the softmax, $J = \mathrm{diag}(p) - p p^\top$, satisfies $\|J\|_2 \le 1 -
    \sum_i p_i^2 \le 2 (1 - p_{\max})$, and if the largest score leads by a gap $g$ over $n - 1$
    others then $1 - p_{\max} \le (n - 1) e^{-g}$. So scores times $c$ leave a gradient of at most
    $2 (n - 1) e^{-c g}$. The first is an equality for $n = 2$, the last one in the limit of large
    gaps where all others are equal. The gap of two unscaled scores $\xi \cdot x$ of Gaussian
    vectors in $\mathbb R^m$ is $2 \Gamma(\frac{m+1}2) \sqrt{2/\pi} / \Gamma(\frac m2)$ in mean,
    which grows as $\sqrt m$: gradients die, and learning slows down.

    $J$ is positive semidefinite, so its norm is at most its trace, $\sum_i p_i (1 - p_i)$.

    Knobs:
        factor: The factor before $1 - p_{\max}$.
        others: How many scores the largest leads, of $n$.
        rate: What the gap is multiplied by in the exponent.
        vectors: How many score vectors are drawn for each $n$.
    """
    for n in (2, 3, 7):
        s = torch.randn(vectors, n) * 10.0 ** torch.linspace(-1, 2, vectors)[:, None]
        p = weights_of(s)
        J = jacobian(p)
        for row in (0, vectors // 3, vectors // 2):
            found = complex_step(lambda z: torch.exp(z) / torch.exp(z).sum(), s[row] - s[row].max())
            at = {"n": n, "scale": float(s[row].abs().max())}
            yield equals("Jacobian, by complex steps", found, J[row], tol=1e-13, **at)
        norm, trace = torch.linalg.matrix_norm(J, 2), 1 - p.square().sum(1)
        left = p.sort(1).values[:, :-1].sum(1)  # 1 - max p, without cancellation
        yield at_most("norm of the Jacobian", norm, trace, tol=1e-14, n=n)
        yield at_most("its trace", trace, factor * left, tol=1e-14, n=n)
        if n == 2:
            yield equals("norm of the Jacobian, against its trace", norm, trace, tol=1e-14, n=n)
        ordered = s.sort(1).values
        gap = ordered[:, -1] - ordered[:, -2]
        stated = math.log(others(n)) - rate * gap
        yield at_most("logarithm of 1 - max p", left.log(), stated, tol=1e-12, n=n)
        top = torch.zeros(40, n)
        top[:, 0] = torch.arange(1, 41)
        found, stated = weights_of(top)[:, 1:].sum(1).log(), math.log(others(n)) - rate * top[:, 0]
        yield at_most("the same, all others equal", found, stated, tol=1e-12, n=n)
        name = "its limit for a gap of 40"
        yield equals(name, found[-1], math.log(n - 1) - 40, tol=1e-12, n=n)
        yield from gradients(n, factor, others, rate)
    for m in (4, 64):
        q, k = torch.randn(20 * vectors, m), torch.randn(2, 20 * vectors, m)
        a, b = (q * k).sum(2)
        mean = 2 * math.exp(math.lgamma((m + 1) / 2) - math.lgamma(m / 2)) * math.sqrt(2 / math.pi)
        yield in_mean("gap of two unscaled scores", (a - b).abs(), mean, m=m)


def gradients(
    n: int, factor: float, others: Callable[[int], int], rate: float
) -> Iterator[Evidence]:
    """The gradient of attention in the scores, as they are multiplied."""
    s = torch.randn(n).sort().values
    s[-1] = s[-2] + 0.3 + torch.rand(())  # a gap
    gap, up = float(s[-1] - s[-2]), torch.randn(n)
    # a gradient is rounded by some 1e-15 of the incoming one, and the bound is at least 3e-9 of it
    for c in (1.0, 5.0, 10.0, 15.0):
        z = (c * s).requires_grad_()
        (gradient,) = torch.autograd.grad((weights_of(z) * up).sum(), z)
        stated = math.log(factor * others(n)) - rate * c * gap + math.log(float(up.norm()))
        yield at_most("logarithm of a gradient through the softmax",
                      gradient.norm().log(), stated, tol=1e-6, n=n, c=c)  # fmt: skip


softmax_saturation.foil("the factor 2 dropped", factor=1.0, refuted_by="its trace")
softmax_saturation.foil("one of the others", others=lambda n: 1,
                        refuted_by="the same, all others equal")  # fmt: skip
softmax_saturation.foil("ten percent faster", rate=1.1)
