"""What the course claims of sums of ridge functions."""

import math
from fractions import Fraction

from vademecum.claims import claim, equals, rational_rank, row_reduce


@claim(by="exhaustion", sources=("B-128", "B-129"), budget=0.5, full={"degree": 9})
def ridge_span(spare: int = 1, profile: str = "power", degree: int = 6):
    r"""Sums of ridge functions with free profiles are universal.

    Finite sums $\sum_j \sigma_j(x \cdot \theta_j)$ with arbitrary continuous profiles $\sigma_j$
    are dense in $C(\mathbb R^n)$ on compacts: every homogeneous polynomial of degree $k$ is a
    finite combination of powers $(x \cdot \theta)^k$, in the plane of those of any $k + 1$ pairwise
    independent directions, for example $x y = \frac14 [(x + y)^2 - (x - y)^2]$. The profile may
    differ from term to term, so this does not yet justify one fixed activation; dimension lifting
    closes that gap.

    *Proof in the plane.* $(x + t y)^k = \sum_i \binom ki t^i x^{k - i} y^i$, and the matrix of
    $\binom ki t_j^i$ is a Vandermonde matrix with scaled columns. Two polynomials of degree $k$ in
    each variable are equal if they agree on a grid of $(k + 1)^2$ points.
    """
    for k in range(1, degree + 1):
        t = [Fraction(2 * j - k, 3) for j in range(k + spare)]
        columns = [[math.comb(k, i) * v**i for v in t] for i in range(k + 1)]
        yield equals(rational_rank(columns), k + 1, k=k)
        power = k if profile == "power" else 1
        for i in range(k + 1):
            system = [[*row, int(i == j)] for j, row in enumerate(columns)]
            rows, pivots = row_reduce(system)
            c = {p: row[-1] for row, p in zip(rows, pivots, strict=True) if p < len(t)}
            wrong = sum(
                sum(c[j] * (x + t[j] * y) ** power for j in c) != x ** (k - i) * y**i
                for x in range(k + 1)
                for y in range(k + 1)
            )
            yield equals(wrong, 0, k=k, i=i)
    square = [(x + y) ** 2 - (x - y) ** 2 - 4 * x * y for x in range(3) for y in range(3)]
    yield equals(square, 0)


ridge_span.foil("$k$ directions span too little", spare=0)
ridge_span.foil(r"the profile $\sigma(z) = z$ alone", profile="identity")
