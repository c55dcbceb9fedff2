"""Jensen and Shannon: a divergence that is symmetric and bounded."""

import math
from collections.abc import Callable
from itertools import product
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Categorical, Dirichlet

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import js_distance
from vademecum.foundations import js_divergence as js
from vademecum.foundations import kl_divergence as kl
from vademecum.foundations.claims.divergences import loop
from vademecum.foundations.claims.information import random_laws


def shannon(p: Tensor) -> Tensor:
    """The entropy, as torch has it."""
    return Categorical(p).entropy()


def overlap(p: Tensor, q: Tensor) -> Tensor:
    """The mass that two laws share: one less their total variation distance."""
    return torch.minimum(p, q).sum(-1)


@claim(
    by="identity",
    sources=("B-516", "D-136", "D-137", "D-138", "D-139"),
    budget=0.5,
    short=r"\mathrm{JS}(P, Q) = \tfrac12 [\mathrm{KL}(P \| M) + \mathrm{KL}(Q \| M)] \in [0, \log "
    r"2],\ M = \tfrac12 (P + Q)",
)
def jensen_shannon(formula: Callable[..., Tensor] = js, ends: Literal["laws", "letters"] = "laws"):
    r"""Jensen-Shannon divergence.

    $\mathrm{JS}(P, Q) = \frac12 \mathrm{KL}(P \| M) + \frac12 \mathrm{KL}(Q \| M)$ with the mixture
    $M = \frac12 (P + Q)$, which dominates both. It is symmetric, finite even for disjoint supports,
    lies in $[0, \log 2]$, equals 0 iff $P = Q$ and $\log 2$ iff the supports are disjoint;
    $\mathrm{JS} = H(M) - \frac12 H(P) - \frac12 H(Q)$. For $n$ equally weighted laws the upper end
    is $\log n$.

    *The ends:* $\frac12 \mathrm{TV}(P, Q)^2 \le \mathrm{JS}(P, Q) \le \log 2 \cdot
    \mathrm{TV}(P, Q)$. The left one is Pinsker's; the right one follows from the binary entropy,
    which is at least $2 \log 2 \cdot \min\{t, 1 - t\}$, and TV is 0 for equal laws only and 1 for
    disjoint supports only.

    Knobs:
        formula: The divergence of two laws.
        ends: The number whose logarithm is the upper end: that of the laws, two, or that of the
            letters.
    """
    for k in (2, 6, 10):
        p, q = random_laws(2, 40, k, zeros=True)
        measured = formula(p, q)
        yield equals("divergence, the other way round", formula(q, p), measured, k=k)
        yield equals("divergence of a law from itself", formula(p, p), 0.0, k=k)
        apart = 1 - overlap(p, q)
        yield at_least("divergence, from below", measured, apart**2 / 2, k=k)
        yield at_most("divergence, from above", measured, math.log(2) * apart, k=k)
        m = (p + q) / 2
        entropies = shannon(m) - (shannon(p) + shannon(q)) / 2
        yield equals("divergence, from entropies", measured, entropies, k=k)
        halves = (torch.tensor(loop(p, m)) + torch.tensor(loop(q, m))) / 2
        yield equals("divergence, by its definition", measured, halves, k=k)
        half = torch.cat([random_laws(k // 2), torch.zeros(k - k // 2)])
        end, top = formula(half, half.flip(0)), {"laws": 2, "letters": k}[ends]
        yield equals("divergence of disjoint laws", end, math.log(top), tol=1e-14, k=k)
        yield equals("divergence of $k$ disjoint laws", js(*torch.eye(k)), math.log(k), k=k)


def geometric(p: Tensor, q: Tensor) -> Tensor:
    """The mean divergence to the geometric mean instead of the mixture."""
    middle = (p * q).sqrt()
    middle = middle / middle.sum(-1, keepdim=True)
    terms = [torch.special.xlogy(law, law) - torch.special.xlogy(law, middle) for law in (p, q)]
    return (terms[0] + terms[1]).sum(-1) / 2


jensen_shannon.foil(
    "the mean of both KL divergences is infinite where a letter is missing",
    formula=lambda p, q: (kl(p, q) + kl(q, p)) / 2,
)
jensen_shannon.foil("the geometric mean as the mixture", formula=geometric)
jensen_shannon.erratum(
    "D-136",
    printed=r"$JSD(P, Q) = \frac12 KL(P, M) + \frac12 KL(Q, M) \in [0, \log(n)]$",
    right=r"$\mathrm{JS}(P, Q) \in [0, \log 2]$",
    why=r"For the two-law divergence that is defined there the sharp upper end is $\log 2$; $n$ is "
    r"not defined on the sheet, and $\log n$ is the bound for $n$ laws. On a 6-letter alphabet JSD "
    r"never exceeds $0.693 < \log 6$.",
    weight="soft",
    ends="letters",
)


@claim(
    by="sampling",
    sources=("D-138",),
    budget=0.5,
    full={"triples": 10**6},
    short=r"\sqrt{\mathrm{JS}(P, R)} \le \sqrt{\mathrm{JS}(P, Q)} + \sqrt{\mathrm{JS}(Q, R)}",
)
def jensen_shannon_metric(power: float = 1.0, triples: int = 10**4):
    r"""The square root of the Jensen-Shannon divergence is a metric.

    $d(P, Q) = \sqrt{\mathrm{JS}(P, Q)}$ is symmetric, vanishes only for $P = Q$ and satisfies the
    triangle inequality; $\mathrm{JS}$ itself does not. (Endres and Schindelin, 2003.)

    Knobs:
        power: The power of the distance for which the triangle inequality is checked.
        triples: How many triples of laws are drawn.
    """
    quarters = torch.tensor([[w, 4 - w] for w in range(5)]) / 4
    grid = torch.stack([torch.stack(t) for t in product(quarters, repeat=3)], 1)
    random = [Dirichlet(torch.full((k,), 0.3)).sample((3, (triples + 1) // 2)) for k in (2, 6)]
    for p, q, r in (grid, *random):
        apart, first, second = (js_distance(*ends) ** power for ends in ((p, r), (p, q), (q, r)))
        at = {"k": p.shape[-1]}
        yield at_most("distance of the ends of a triangle", apart, first + second, **at)
        yield equals("distance, the other way round", js_distance(r, p) ** power, apart, **at)
        distance = js_distance(p, r)
        least = (1 - overlap(p, r)) / math.sqrt(2)
        yield at_least("distance, from below", distance, least, **at)
        entropies = shannon((p + r) / 2) - (shannon(p) + shannon(r)) / 2
        yield equals("square of the distance", distance**2, entropies, **at)


jensen_shannon_metric.foil(
    r"without the root: $0.693 > 2 \cdot 0.216$ between the ends of $(1, 0), (\frac12, \frac12), "
    r"(0, 1)$",
    power=2.0,
)
