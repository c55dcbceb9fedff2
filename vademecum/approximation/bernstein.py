r"""Bernstein polynomials: Weierstrass' theorem by construction.

The polynomial of degree $n$ of a function $f$ on $[0, 1]$ with the values $y_k = f(k / n)$ is

$$B_n f(x) = \sum_{k = 0}^n y_k \binom{n}{k} x^k (1 - x)^{n - k},$$

the mean of $f(K / n)$ for $K \sim \mathrm{Bin}(n, x)$. Therefore
$\|B_n f - f\|_\infty \le \frac{\mathrm{Lip}(f)}{2 \sqrt n}$; an interval $[l, h]$ is moved to
$[0, 1]$. De Casteljau's scheme evaluates it by repeated means of neighbours,

$$y_k \leftarrow (1 - x)\, y_k + x\, y_{k + 1} \qquad (n \text{ times}),$$

which on the interval is a convex combination at every step: the error is some $n$ roundings of
$\max |y_k|$. It takes $n^2 / 2$ means a point. The claim is `weierstrass`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number

__all__ = ["bernstein_polynomial"]

_BLOCK = 1 << 17  # entries, which stay in a cache


def bernstein_polynomial(
    y: Float[Tensor, " n"], x: Float[Tensor, " *batch"], *, low: float = 0.0, high: float = 1.0
) -> Float[Tensor, " *batch"]:
    r"""Evaluate the Bernstein polynomial of a function that is known at equally spaced points.

    It is differentiable in the values and in the points.

    Args:
        y: The values at $l + k (h - l) / n$, $k = 0, \dots, n$: one more than the degree.
        x: Where to evaluate the polynomial; elsewhere than in $[l, h]$ it approximates nothing.
        low: The left end $l$ of the interval.
        high: The right end $h$.

    References:
        Bernstein, Démonstration du théorème de Weierstrass fondée sur le calcul des probabilités,
        Communications de la Société mathématique de Kharkow, 1912.

    Example:
        >>> knots = torch.tensor([0.0, 0.5, 1.0])
        >>> bernstein_polynomial(knots**2, torch.tensor([0.0, 0.5]))  # x^2 + x (1 - x) / 2
        tensor([0.0000, 0.3750])
    """
    y, x = floats("y", y, ndim=1), floats("x", x, empty=True)
    if (x.dtype, x.device) != (y.dtype, y.device):
        raise ValueError(f"x must be {y.dtype} on {y.device} as y is, got {x.dtype} on {x.device}")
    most = torch.finfo(x.dtype).max
    number("high", high, above=number("low", low, low=-most), high=most)
    t = ((x - low) / (high - low)).flatten()
    blocks = t.split(max(1, _BLOCK // len(y)))
    return torch.cat([_de_casteljau(y, block) for block in blocks]).reshape(x.shape)


def _de_casteljau(y: Tensor, t: Tensor) -> Tensor:
    means = y[:, None].expand(-1, len(t))
    for _ in range(len(y) - 1):
        means = torch.lerp(means[:-1], means[1:], t)
    return means[0]
