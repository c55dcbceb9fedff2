"""Information: entropy, and the content of one outcome."""

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

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import entropy as shannon
from vademecum.foundations import mutual_information


def random_laws(*shape: int, zeros: bool = False) -> Tensor:
    """Random laws along the last axis, about a third of their entries zero on demand."""
    weights = torch.rand(shape) ** 2 + 1e-3
    if zeros:
        keep = torch.rand(shape) < 2 / 3
        keep.scatter_(-1, torch.randint(shape[-1], (*shape[:-1], 1)), True)
        weights = weights * keep
    return weights / weights.sum(-1, keepdim=True)


@claim(
    by="identity",
    sources=("A-007", "B-019", "D-123", "D-132", "E-111"),
    budget=0.5,
    short=r"H(X) = -\textstyle\sum_x p(x) \log p(x), \quad 0 \le H(X) \le \log k",
)
def entropy(order: float = 1.0, base: float = math.e, sign: int = 1):
    r"""Shannon entropy.

    For a discrete $X$ with $k$ outcomes, $H(X) = \mathbb E[-\log P(X)] = -\sum_x p(x) \log p(x)$,
    with $0 \log 0 := 0$, the limit of $x \log x$. $0 \le H \le \log k$, with $H = 0$ exactly for
    point masses and $H = \log k$ exactly for the uniform law. It is additive over independent
    variables, and a choice made in two steps has the entropy of the first plus the mean entropy of
    the second (grouping), which no Rényi entropy $\frac{1}{1 - \alpha} \log \sum_x p(x)^\alpha$ of
    another order $\alpha$ has. For variables that need not be independent,
    $H(X, Y) = H(X) + H(Y) - I(X; Y)$ with the mutual information
    $I(X; Y) = \mathrm{KL}(p_{XY} \| p_X \otimes p_Y) \ge 0$.

    Checked on random laws with zeros, on up to 20 outcomes and on $k \times 3$ tables. The entropy
    is that of this room, and so is the mutual information.

    Knobs:
        order: The order of the entropy; 1 is Shannon's.
        base: The base of the logarithm.
        sign: The sign in front.
    """

    def formula(p: Tensor) -> Tensor:
        renyi = shannon(p, base=base) if order == 1 else (p**order).sum(-1).log() / (1 - order)
        return sign * renyi

    for k in (1, 2, 5, 20):
        p, q = random_laws(50, k, zeros=True), random_laws(50, 3, zeros=True)
        measured = formula(p)
        yield at_least("entropy", measured, 0.0, k=k)
        yield at_most("entropy", measured, math.log(k), k=k)
        yield equals("entropy of a point mass", formula(torch.eye(k)), 0.0, k=k)
        yield equals("entropy of a uniform law", formula(torch.full((k,), 1 / k)), math.log(k), k=k)
        product = (p[:, :, None] * q[:, None]).flatten(1)
        yield equals("entropy of a pair", formula(product), measured + formula(q), k=k)
        halves = p[:, :, None] * torch.stack([q[:, 0], 1 - q[:, 0]], -1)[:, None]
        split = torch.cat([halves[:, 0], p[:, 1:]], 1)  # the first outcome falls into two
        second = formula(torch.stack([q[:, 0], 1 - q[:, 0]], -1))
        both = measured + p[:, 0] * second
        yield equals("entropy of a choice in two steps", formula(split), both, k=k)
        loop = [-math.fsum(v * math.log(v) for v in row if v > 0) for row in p.tolist()]
        yield equals("entropy, by its definition", measured, loop, k=k)
        joint = random_laws(20, 3 * k, zeros=True).view(20, k, 3)
        shared = formula(joint.sum(2)) + formula(joint.sum(1)) - formula(joint.flatten(1))
        exact = [_information(table) for table in joint.tolist()]
        yield equals("entropies of two, less that of the pair", shared, exact, k=k)
        yield equals("mutual information", mutual_information(joint), exact, k=k)
        yield at_least("mutual information", mutual_information(joint), 0.0, k=k)
        bits = mutual_information(joint, base=2) * math.log(2)
        yield equals("mutual information from bits", bits, exact, k=k)
    dyadic = torch.tensor([0.5, 0.25, 0.125, 0.125])
    yield equals("nats of a dyadic law over those of a bit", formula(dyadic) / math.log(2), 1.75)
    yield equals("bits of a dyadic law", sign * shannon(dyadic, base=2), 1.75)


def _information(table: list[list[float]]) -> float:
    """The divergence of a joint law from the product of its marginals, by its definition."""
    rows = [math.fsum(row) for row in table]
    columns = [math.fsum(column) for column in zip(*table, strict=True)]
    return math.fsum(
        v * math.log(v / (rows[i] * columns[j]))
        for i, row in enumerate(table)
        for j, v in enumerate(row)
        if v > 0
    )


entropy.foil("without the minus it is negative", sign=-1)
entropy.foil(
    r"$\log_2$ gives 1 for a fair coin, where nats are promised",
    refuted_by="entropy of a uniform law",
    base=2.0,
)
entropy.foil(r"the collision entropy reaches $\log k$, but does not group", order=2.0)


@claim(
    by="identity",
    sources=("D-124", "E-112"),
    budget=0.5,
    short=r"I(x) = -\log p(x), \quad H(X) = \mathbb E[I(X)]",
)
def surprisal(formula: Callable[[Tensor], Tensor] = lambda p: -p.log()):
    r"""Information content, and entropy as its expectation.

    The information content (surprisal) of an outcome is $I(x) = -\log p(x) \ge 0$. It adds over
    independent outcomes, $I(x, y) = I(x) + I(y)$; $I = \log m$ for a probability $\frac1m$, and
    $I = \infty$ for an impossible outcome. $H(X) = \mathbb E[I(X)]$.

    Knobs:
        formula: The information content as a function of the probability.
    """
    coin, pair = torch.tensor([0.5, 0.25])
    yield equals("content of two fair coins", formula(pair), 2 * formula(coin))
    for k in (2, 6):
        p, q = random_laws(30, k), random_laws(30, 4)
        yield at_least("information content", formula(p), 0.0, k=k)
        joint = formula(p[:, :, None] * q[:, None])
        both = formula(p)[:, :, None] + formula(q)[:, None]
        yield equals("content of two independent outcomes", joint, both, k=k)
        yield equals("mean content", (p * formula(p)).sum(-1), shannon(p), k=k)
        law = Categorical(p[0])
        yield equals("content of an outcome", formula(p[0]), -law.log_prob(torch.arange(k)), k=k)
    m = torch.arange(1.0, 10.0)
    yield equals("content of one outcome in m", formula(1 / m), m.log())
    yield equals("content of an impossible outcome", formula(torch.zeros(1)), math.inf)


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


@claim(
    by="identity",
    sources=("D-123", "E-111"),
    budget=0.5,
    short=r"h(X) = -\int f \log f, \quad h(a X) = h(X) + \log |a|",
)
def differential_entropy(jacobian: float = 1.0, floor: float | None = None):
    r"""Differential entropy can be negative.

    For a density, $h(X) = -\int f \log f$ is bounded below by $-\log \sup f$, and not by 0; nor is
    it invariant under scaling: $h(a X) = h(X) + \log |a|$ for $a \ne 0$. The uniform law on
    $[0, c]$ has $h = \log c$, the exponential law of rate $\lambda$ has $h = 1 - \log \lambda$, and
    the normal law has $h = \frac12 \log(2 \pi e \sigma^2)$, which is negative for
    $\sigma^2 < \frac{1}{2 \pi e}$.

    Checked by quadrature, and on torch's closed forms.

    Knobs:
        jacobian: The factor of $\log |a|$.
        floor: What the entropy of a density is said to be at least; $-\log \sup f$ if not given.
    """
    cases = [
        ("uniform", Uniform(0.0, 0.5), 0.0, 0.5, math.log(0.5)),
        ("normal", Normal(0.0, 0.1), -1.2, 1.2, math.log(2 * math.pi * math.e * 0.01) / 2),
        ("exponential", Exponential(5.0), 0.0, 12.0, 1 - math.log(5)),
        ("normal with entropy 0", Normal(0.0, (2 * math.pi * math.e) ** -0.5), -3.0, 3.0, 0.0),
    ]
    for name, law, low, high, closed in cases:
        top = law.log_prob(torch.tensor(max(low, 0.0)))  # all densities here are largest at 0
        area = integrated_entropy(law, low, high)
        yield equals("torch's entropy", law.entropy(), closed, law=name)
        yield equals("entropy of a density", area, closed, law=name)
        lowest = -top if floor is None else floor
        yield at_least("entropy of a density, from below", area, lowest, law=name)
        for a in (-2.0, 0.1, 3.0):
            scaled = TransformedDistribution(law, AffineTransform(0.0, a))
            measured = integrated_entropy(scaled, a * low, a * high)
            exact = closed + jacobian * math.log(abs(a))
            yield equals("entropy after scaling", measured, exact, a=a, law=name)


differential_entropy.foil("a density's entropy is not at least 0 as a discrete one's", floor=0.0)
differential_entropy.foil(r"scaling is not for free: $h(aX) \ne h(X)$", jacobian=0.0)
