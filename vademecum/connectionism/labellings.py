r"""All labellings of a set of points that hyperplanes through the origin realise.

The weights $\theta \in \mathbb{R}^n$ that give the points $x_1, \dots, x_s$ one labelling
$y_i = \operatorname{sign} \langle \theta, x_i \rangle$ form an open cone. If $s > n$ points are in
general position, each such cone has an extreme ray, which is orthogonal to a set $A$ of exactly
$n - 1$ points. So every labelling is found from some $A$: outside $A$ it is

$$y_j = \pm \operatorname{sign} \det(x_A, x_j),$$

and on $A$ it may be anything, because the points of $A$ are independent. All of them together are
thus the signs of $\binom{s}{n}$ determinants, spread over $\binom{s}{n-1}\, 2^n$ candidates of
which the distinct ones are kept. At most $n$ independent points take all $2^s$ labellings.

The signs are exact: a determinant in double precision that does not exceed the bound of its
rounding error is computed again in rational arithmetic, and one that is zero is refused.
"""

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import chain, combinations
from operator import mul
from typing import NoReturn

import numpy as np
import torch
from jaxtyping import Float, Int8, Int64
from torch import Tensor

from vademecum.arguments import floats
from vademecum.arrays import rational_determinant

__all__ = ["count_dichotomies", "dichotomies"]

_MOST = 2**26  # labels among the candidates, a byte each


def count_dichotomies(x: Float[Tensor, " s n"]) -> int:
    """The number of labellings that hyperplanes through the origin realise, by enumeration.

    Args:
        x: Points in general position, one a row.

    Raises:
        ValueError: If the points are not in general position, or too many to enumerate.

    Example:
        >>> count_dichotomies(torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]))
        6
    """
    return len(dichotomies(x))


def dichotomies(x: Float[Tensor, " s n"]) -> Int8[Tensor, " count s"]:
    """The labellings, rows of -1 and +1, that hyperplanes through the origin realise.

    Args:
        x: Points in general position, one a row: any `n` of them linearly independent, or all if
            they are fewer.

    Returns:
        One labelling a row, in lexicographic order.

    Raises:
        ValueError: If the points are not in general position, or too many to enumerate.

    Example:
        >>> dichotomies(torch.tensor([[1.0], [-2.0]]))
        tensor([[-1,  1],
                [ 1, -1]], dtype=torch.int8)
    """
    s, n = floats("x", x, ndim=2).shape
    candidates = 2**s if s <= n else math.comb(s, n - 1) * 2 ** (n - 1)
    if s * candidates > _MOST:
        raise ValueError(
            f"x must have fewer rows: {s} points in {n} dimensions have {candidates} candidates, "
            f"the limit is {_MOST // s}"
        )
    half = _few(x) if s <= n else _many(x)
    return torch.cat([-half.flip(0), half])


def _few(x: Tensor) -> Tensor:
    """All labellings of at most n independent points that begin with +1."""
    rows = [[Fraction(v) for v in row] for row in x.double().tolist()]
    gram = [[sum(map(mul, p, q), Fraction(0)) for q in rows] for p in rows]
    if rational_determinant(gram) == 0:
        _refuse(range(len(x)))
    return torch.nn.functional.pad(_all_signs(len(x) - 1, x.device), (1, 0), value=1)


def _many(x: Tensor) -> Tensor:
    """All labellings of more than n points that begin with +1."""
    s, n = x.shape
    sets, faces = _subsets(s, n, x.device), _subsets(s, n - 1, x.device)
    signs = _orientations(x.double(), sets)
    sides = torch.zeros(len(faces), s, dtype=torch.int8, device=x.device)
    for k in range(n):
        face = torch.cat([sets[:, :k], sets[:, k + 1 :]], 1)
        sides[_rank(face, s), sets[:, k]] = signs * (-1) ** (n - 1 - k)
    around = _all_signs(n - 1, x.device)
    labels = sides[:, None].repeat(1, len(around), 1)  # (faces, signs on a face, s)
    labels.scatter_(2, *torch.broadcast_tensors(faces[:, None], around))
    labels = labels.flatten(0, 1)
    return torch.unique(labels * labels[:, :1], dim=0)


def _orientations(x: Tensor, sets: Tensor) -> Tensor:
    r"""The signs of $\det x_B$ for all sets $B$ of n points.

    Rows scaled to a largest entry in $[\frac12, 1)$ have a norm of at most $\sqrt n$. Elimination
    with pivots is exact for $x_B + E$, $|E_{ij}| \le n u \cdot n 2^{n-1}$ up to terms of order
    $u^2$, and the determinant is linear in each row, so that its error is below the bound used.
    """
    n = x.shape[1]
    exponent = torch.frexp(x.abs().amax(1, keepdim=True)).exponent
    scaled = torch.ldexp(x, -exponent.double())
    values = torch.linalg.det(scaled[sets])
    bound = 2.0**n * n ** (n / 2 + 3) * torch.finfo(torch.float64).eps
    signs = values.sign().to(torch.int8)
    doubtful = ~(values.abs() > bound)  # NaN too: the scale of a denormal row overflows
    for i in doubtful.nonzero().squeeze(1).tolist():
        points = sets[i].tolist()
        exact = rational_determinant(x[points].tolist())
        if exact == 0:
            _refuse(points)
        signs[i] = 1 if exact > 0 else -1
    return signs


def _refuse(points: Iterable[int]) -> NoReturn:
    which = ", ".join(map(str, points))
    raise ValueError(f"x must be in general position, got linearly dependent rows {which}")


def _subsets(s: int, k: int, device: torch.device) -> Int64[Tensor, " subsets k"]:
    """The sets of k of s points, in lexicographic order."""
    entries = chain.from_iterable(combinations(range(s), k))
    flat = np.fromiter(entries, dtype=np.int64, count=math.comb(s, k) * k)
    return torch.from_numpy(flat).to(device).view(math.comb(s, k), k)


def _rank(subsets: Tensor, s: int) -> Tensor:
    """The place of each set of k of s points in lexicographic order."""
    k = subsets.shape[1]
    after = np.array([[math.comb(a, b) for b in range(k, 0, -1)] for a in range(s)], np.int64)
    behind = torch.from_numpy(after).to(subsets.device).gather(0, s - 1 - subsets)
    return math.comb(s, k) - 1 - behind.sum(1)


def _all_signs(k: int, device: torch.device) -> Int8[Tensor, " signs k"]:
    """All vectors of k signs, in lexicographic order."""
    number = torch.arange(2**k, device=device)[:, None]
    place = torch.arange(k - 1, -1, -1, device=device)
    return (2 * (number >> place & 1) - 1).to(torch.int8)
