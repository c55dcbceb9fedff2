"""What the course claims of the divergence of Jensen and Shannon."""

import math
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor
from torch.distributions import Dirichlet

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.claims.divergences import loop
from vademecum.foundations.claims.information import random_laws
from vademecum.foundations.divergences import js_distance, total_variation
from vademecum.foundations.divergences import js_divergence as js
from vademecum.foundations.divergences import kl_divergence as kl
from vademecum.foundations.entropies import entropy as shannon


@claim(by="identity", sources=("B-516", "D-136", "D-137", "D-138", "D-139"), budget=0.5)
def jensen_shannon(formula: Callable[..., Tensor] = js, ends: str = "laws"):
    r"""Jensen-Shannon divergence.

    $\mathrm{JS}(P, Q) = \frac12 \mathrm{KL}(P \| M) + \frac12 \mathrm{KL}(Q \| M)$ with the mixture
    $M = \frac12 (P + Q)$, which dominates both. It is symmetric, finite even for disjoint supports,
    lies in $[0, \log 2]$, equals 0 iff $P = Q$ and $\log 2$ iff the supports are disjoint;
    $\mathrm{JS} = H(M) - \frac12 H(P) - \frac12 H(Q)$. For $n$ equally weighted laws the upper end
    is $\log n$.

    *Zero only for equal laws:* by Pinsker, $\mathrm{JS} \ge \frac12 \mathrm{TV}(P, Q)^2$.
    """
    for k in (2, 6, 10):
        p, q = random_laws(2, 40, k, zeros=True)
        measured = formula(p, q)
        yield equals(measured, formula(q, p), k=k)
        yield equals(formula(p, p), 0.0, k=k)
        yield at_least(measured, total_variation(p, q) ** 2 / 2, k=k)
        yield at_most(measured, math.log(2), k=k)
        m = (p + q) / 2
        yield equals(measured, shannon(m) - (shannon(p) + shannon(q)) / 2, k=k)
        yield equals(measured, (torch.tensor(loop(p, m)) + torch.tensor(loop(q, m))) / 2, k=k)
        overlap = ((p > 0) & (q > 0)).any(-1)
        yield equals(measured < math.log(2) - 1e-12, overlap, k=k)
        half = torch.cat([random_laws(k // 2), torch.zeros(k - k // 2)])
        top = {"laws": 2, "letters": k}[ends]
        yield equals(formula(half, half.flip(0)), math.log(top), tol=1e-14, k=k)
        yield equals(js(*torch.eye(k)), math.log(k), k=k)


def geometric(p: Tensor, q: Tensor) -> Tensor:
    """The mean divergence to the geometric mean instead of the mixture."""
    middle = (p * q).sqrt()
    middle = middle / middle.sum(-1, keepdim=True)
    terms = [torch.special.xlogy(law, law) - torch.special.xlogy(law, middle) for law in (p, q)]
    return (terms[0] + terms[1]).sum(-1) / 2


jensen_shannon.foil(
    "the mean of both KL divergences is infinite", formula=lambda p, q: (kl(p, q) + kl(q, p)) / 2
)
jensen_shannon.foil("the geometric mean as the mixture", formula=geometric)
jensen_shannon.erratum(
    "D-136",
    printed=r"$JSD(P, Q) = \frac12 KL(P, M) + \frac12 KL(Q, M) \in [0, \log(n)]$",
    right=r"$\mathrm{JS}(P, Q) \in [0, \log 2]$",
    why=r"The sheet does not define $n$. Two laws reach $\log 2$ and no more, on any number of "
    r"letters; $\log n$ is the end of the range for $n$ laws.",
    weight="soft",
    ends="letters",
)


@claim(by="sampling", sources=("D-138",), budget=0.5, full={"triples": 10**6})
def jensen_shannon_metric(power: float = 1.0, triples: int = 10**4):
    r"""The square root of the Jensen-Shannon divergence is a metric.

    $d(P, Q) = \sqrt{\mathrm{JS}(P, Q)}$ is symmetric, vanishes only for $P = Q$ and satisfies the
    triangle inequality; $\mathrm{JS}$ itself does not. (Endres and Schindelin, 2003.)
    """
    quarters = torch.tensor([[w, 4 - w] for w in range(5)]) / 4
    grid = torch.stack([torch.stack(t) for t in product(quarters, repeat=3)], 1)
    random = [Dirichlet(torch.full((k,), 0.3)).sample((3, triples // 2)) for k in (2, 6)]
    for p, q, r in (grid, *random):
        apart, first, second = (js_distance(*ends) ** power for ends in ((p, r), (p, q), (q, r)))
        yield at_most(apart, first + second, k=p.shape[-1])
        yield equals(apart, js_distance(r, p) ** power, k=p.shape[-1])
        yield at_least(js_distance(p, r), total_variation(p, r) / math.sqrt(2), k=p.shape[-1])


jensen_shannon_metric.foil(r"without the root: $0.693 > 2 \cdot 0.216$", power=2.0)
