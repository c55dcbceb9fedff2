r"""A maximum of many affine functions as a signed sum of maxima of few.

In $\mathbb{R}^n$ any $n + 2$ affine functions $\ell_i$ have $\lambda \ne 0$ with
$\sum_i \lambda_i = 0$ and $\sum_i \lambda_i \nabla \ell_i = 0$ (Radon), so that
$\sum_i \lambda_i \ell_i = c$ is constant; let $c \ge 0$, else take $-\lambda$. With $P$ and $J$ the
indices of positive and negative $\lambda_i$, a weighted mean of $\ell_P$ is nowhere below one of
$\ell_J$, hence $\max_P \ell \ge \min_J \ell$ everywhere. For $M = \max_K \ell$ with $K \supseteq P$
and disjoint from $J$, this says $M = \max(M, \min_J \ell) = \min_{j \in J} \max(M, \ell_j)$, and by
inclusion and exclusion

$$\max_K \ell = \sum_{\emptyset \ne T \subseteq J} (-1)^{|T| + 1} \max_{K \cup T} \ell .$$

Solved for the term $T = J$, it writes the maximum over $K \cup J$ by maxima over fewer functions
with coefficients $\pm 1$; repeated, by maxima over at most $n + 1$. This is Wang and Sun's theorem
for convex functions. The coefficients are integers and exact; $\lambda$ is found up to rounding,
which moves the sum by no more than rounding. The claim is `wang_sun`.
"""

from collections import Counter
from itertools import chain, combinations
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.approximation.max_affine import MaxAffine
from vademecum.arguments import whole
from vademecum.results import one_line

__all__ = ["HingeSum", "hinge_decomposition"]

_MOST = 16  # pieces: there are up to 2 ** 16 maxima to sum


class HingeSum(NamedTuple):
    r"""The function $\sum_i \mathrm{coefficients}_i \cdot \mathrm{hinges}_i(x)$.

    Example:
        >>> HingeSum((2,), (MaxAffine(torch.eye(1), torch.ones(1)),))(torch.tensor([3.0])).item()
        8.0
    """

    coefficients: tuple[int, ...]
    """The coefficients."""
    hinges: tuple[MaxAffine, ...]
    """The hinge that each belongs to."""

    __repr__ = one_line

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the sum at each point."""
        return torch.stack([c * g(x) for c, g in zip(*self, strict=True)]).sum(0)


@torch.no_grad()
def hinge_decomposition(hinge: MaxAffine) -> HingeSum:
    r"""Write a max-affine function on $\mathbb{R}^n$ as a signed sum of $(n + 1)$-hinges.

    Args:
        hinge: A maximum of up to 16 affine functions.

    Returns:
        Integer coefficients, and hinges each with at most $n + 1$ of the pieces given.

    References:
        Wang and Sun, Generalization of hinging hyperplanes, IEEE Transactions on Information
        Theory, 2005.

    Example:
        >>> g = MaxAffine(torch.tensor([[-1.0], [0.0], [1.0]]), torch.zeros(3))  # max(-x, 0, x)
        >>> parts = hinge_decomposition(g)
        >>> max(len(h.b) for h in parts.hinges), parts(torch.tensor([[-2.0], [3.0]])).tolist()
        (2, [2.0, 3.0])
    """
    k, n = hinge.A.shape
    whole("the number of pieces of hinge", k, high=_MOST)
    counts = Counter({tuple(range(k)): 1})
    for size in range(k, n + 1, -1):
        for pieces in [p for p in counts if len(p) == size]:
            weight = counts.pop(pieces)
            for fewer, sign in _fewer(hinge, pieces):
                counts[fewer] += sign * weight
    parts = [(c, MaxAffine(hinge.A[[*p]], hinge.b[[*p]])) for p, c in counts.items() if c]
    return HingeSum(tuple(c for c, _ in parts), tuple(g for _, g in parts))


def _fewer(hinge: MaxAffine, pieces: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
    """The maximum over some pieces, more than n + 1, by signed maxima over proper subsets."""
    some = torch.tensor(pieces[: hinge.A.shape[1] + 2], device=hinge.A.device)
    lifted = torch.cat([hinge.A[some].mT, hinge.A.new_ones(1, len(some))])
    lam = torch.linalg.svd(lifted).Vh[-1]
    if lam @ hinge.b[some] < 0:
        lam = -lam
    negative = lam < -8 * len(some) * torch.finfo(lam.dtype).eps
    j = some[negative].tolist()
    kept = [p for p in pieces if p not in j]
    proper = chain.from_iterable(combinations(j, r) for r in range(len(j)))
    flip = (-1) ** (len(j) + 1)
    return [(tuple(sorted([*kept, *t])), flip * (-1) ** len(t)) for t in proper]
