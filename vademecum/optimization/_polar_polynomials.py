r"""The odd polynomials of degree five that pull singular values towards one fastest.

On $[l, u]$ the best polynomial $p(x) = a x + b x^3 + c x^5$ in the sense of
$\max_x |1 - p(x)| = E$ takes the values $1 - E, 1 + E, 1 - E, 1 + E$ in turn at $l < q < r < u$,
where $q$ and $r$ are the zeros of $p'$ (the odd powers $x, x^3, x^5$ are a Chebyshev system on
$[l, u]$). Four linear equations give $a, b, c, E$ for given $q, r$, a quadratic equation in $x^2$
gives $q, r$ for given $a, b, c$, and the two in turn are Remez' exchange. The image of $[l, u]$ is
$[1 - E, 1 + E]$, and the best polynomial there is applied next: no other composition of as many odd
polynomials of degree five has a smaller error on the first interval (Amsel and others, 2025).

Where $[l, u]$ is so narrow that the equations lose their meaning in double precision, the limit of
the polynomials for $l \to u = 1$ is used, $\frac{15}8 x - \frac{10}8 x^3 + \frac38 x^5$, whose
error is $\frac52 |1 - x|^3$ to leading order. Tests hold the polynomials against linear programs,
and the errors of compositions against a grid.

References:
    Amsel, Persson, Musco and Gower, The Polar Express: optimal matrix sign methods and their
    application to the Muon algorithm, 2025.
"""

import math
from functools import lru_cache

import numpy as np

__all__ = ["Quintic", "best_quintic", "express"]

Quintic = tuple[float, float, float]
_NARROW = 1e-3  # of u - l, relative: E is below 2e-10 then, and the system has condition 1e9
_LIMIT: Quintic = (15 / 8, -10 / 8, 3 / 8)


def best_quintic(low: float, high: float) -> tuple[Quintic, float]:
    r"""The coefficients $a, b, c$ of the best polynomial on an interval, and its error $E$.

    Example:
        >>> (a, b, c), error = best_quintic(0.1, 1.0)
        >>> round(a * 0.1 + b * 0.1**3 + c * 0.1**5, 12) == round(1 - error, 12)
        True
    """
    if high - low < _NARROW * high:
        a, b, c = _LIMIT
        middle = (low + high) / 2
        widest = (high - low) / (high + low)
        return (a / middle, b / middle**3, c / middle**5), 2.5 * widest**3
    q, r = low + 0.3 * (high - low), low + 0.75 * (high - low)
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    while True:
        x = np.array([low, q, r, high])
        a, b, c, error = np.linalg.solve(np.stack([x, x**3, x**5, signs], 1), np.ones(4)).tolist()
        root = math.sqrt(9 * b * b - 20 * a * c)
        before = q + r
        q, r = (math.sqrt((-3 * b + sign * root) / (10 * c)) for sign in (-1, 1))
        if abs(q + r - before) <= 1e-12 * high:
            return (a, b, c), error


@lru_cache
def express(steps: int, low: float) -> tuple[tuple[Quintic, ...], float]:
    r"""The polynomials to compose on $[\mathrm{low}, 1]$, and the error of the composition.

    Example:
        >>> [round(express(steps, 1e-3)[1], 6) for steps in (4, 5, 6, 7)]
        [0.545893, 0.113448, 0.000916, 0.0]
    """
    high, error, found = 1.0, 1.0, []
    for _ in range(steps):
        quintic, error = best_quintic(low, high)
        found.append(quintic)
        low, high = 1 - error, 1 + error
    return tuple(found), error
