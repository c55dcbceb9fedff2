r"""Bounds on the 0-1 risk of a chain from its norms and margins, with every union bound counted.

The margin of an example is its label's score less the largest other; $\hat{\mathcal R}_\gamma$ is
the share of margins below $\gamma$. With probability at least $1 - \delta$, for all weights and all
$\gamma > 0$ at once, the 0-1 risk is at most $\hat{\mathcal R}_\gamma + T + 3 \sqrt{(\ln
\frac2\delta + U) / (2n)}$ with a complexity $T$ of the class that the norms describe, and what it
costs not to know the norms beforehand, $U$: $T$ is twice the Rademacher complexity on the sample
of the ramps of margins, which fall from 1 at 0 to 0 at $\gamma$. The norms are rounded up to a
grid, $\gamma$ down, and the $j$-th point of a grid of all integers takes $1 / (2 (|j| + 1) (|j| +
2))$ of $\delta$, which add up to 3/4. A bias is a column more, of a matrix with a row that keeps a
1 in the input; it passes maps in between unchanged, so that their constants $\rho_i$ count as 1 at
least.

- **spectral** (Bartlett, Foster and Telgarsky, NIPS 2017): with operator norms $s_i$ and sums of
  rows' lengths $b_i$ in $L$ layers of width at most $W$,
  $T = \frac8{n^{3/2}} + \frac{72 \ln n \sqrt{\ln(2 W^2 + 1)}}{\gamma n} \|X\|_F \prod_i \rho_i
  s_i \big(\sum_i (b_i / s_i)^{2/3}\big)^{3/2}$. By their covering numbers $\ln N(\epsilon) \le
  C^2 / \epsilon^2$, $C = \frac2\gamma \|X\|_F \sqrt{\ln(2 W^2 + 1)} \prod_i \rho_i s_i
  (\dots)^{3/2}$, since the map from scores to the ramp is $\frac2\gamma$-Lipschitz, Dudley's
  integral from $\frac1n$ to $\sqrt n$ gives $\frac T2 = \frac4{n^{3/2}} + \frac{12}n C \ln
  n^{3/2}$. Where they leave out that Maurey's number of terms is whole, $\lceil a^2 b^2 /
  \epsilon^2 \rceil$, the 1 beside $2 W^2$ mends it: with 0 among the centres $k$ terms come within
  $\min(\|U\|^2, (a^2 b^2 - \|U\|^2) / k) \le a^2 b^2 / (k + 1)$ of any $U$, so that $k <
  a^2 b^2 / \epsilon^2$ are enough. Centres are projected on the convex set of what matrices of norm
  at most $s_i$ give, which brings them no farther from it.
- **Frobenius** and **path** (Golowich, Rakhlin and Shamir, COLT 2018, theorems 1 and 2): for
  positively homogeneous units and $k$ classes, $T = \frac{4 k}\gamma \mathfrak R$ with
  $\mathfrak R$ the complexity of one output: the ramp is $\frac{\sqrt2}\gamma$-Lipschitz in the
  scores, Maurer's contraction for vectors has another $\sqrt2$, and the supremum of a sum over
  classes is at most the sum of suprema. $\mathfrak R = \frac1n (\sqrt{2 L \ln 2} + 1) \|X\|_F\,
  M$ for the product $M$ of Frobenius norms, of the last layer the longest row; and $\mathfrak R =
  \frac2n \sqrt{L + 1 + \ln d}\, \max_j \|X_{\cdot j}\|\, M$ for the largest path norm $M$ of an
  output, which by rescaling of units is a product of largest absolute row sums. Both follow from
  $\frac1t \ln \mathbb E e^{t \sup |\cdot|}$, which a layer raises by $\frac{\ln 2}t$ at most:
  $\frac{L \ln 2}t + M \|X\|_F + \frac t2 M^2 \|X\|_F^2$ and, with $2 d$ signed inputs, $\frac{L
  \ln 2 + \ln 2 d}t + \frac t2 M^2 \max_j \|X_{\cdot j}\|^2$, at the best $t$. As networks over
  $\gamma$ are such networks too, $M / \gamma$ alone is rounded.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.generalization._layer_norms import LayerNorms
from vademecum.results import one_line

__all__ = ["Chain", "NormBound", "frobenius_bound", "path_bound", "spectral_bound"]


class NormBound(NamedTuple):
    """A bound on the 0-1 risk, or why there is none.

    Example:
        >>> NormBound("path", 3.5, True, 0.1, "")
        NormBound(name='path', value=3.5, vacuous=True, margin=0.1, reason='')
    """

    name: str
    """Which norm it is by: "spectral", "frobenius" or "path"."""
    value: float
    """The bound, at the best margin; infinite where it does not apply."""
    vacuous: bool
    """Whether it is at least 1, and says nothing."""
    margin: float
    """The margin that it is at."""
    reason: str
    """Why it does not apply; empty where it does."""

    __repr__ = one_line


class Chain(NamedTuple):
    """What the bounds need to know of a network and its examples."""

    layers: tuple[LayerNorms, ...]
    biased: bool  # whether any layer has a bias
    rho: float  # the product of the constants of maps without weights, of each 1 where biased
    path: float  # the largest path norm of an output
    last: float  # the longest row of the last layer, its bias included
    augmented: tuple[tuple[float, float], ...]  # sums of rows and Frobenius norms with biases
    classes: int
    inputs: Tensor  # squared lengths of the columns of the inputs, (d,)
    n: int


def spectral_bound(chain: Chain, margins: Tensor, gamma: float, delta: float) -> float:
    """The bound by operator norms, at one margin."""
    L, n = len(chain.layers), chain.n
    biased = chain.biased
    width = max(max(layer.shape) for layer in chain.layers) + biased
    union, product, ratios = 0.0, chain.rho, 0.0
    for layer, (rows, _) in zip(chain.layers, chain.augmented, strict=True):
        s, cost = _up(_with_bias(layer, biased), L)
        b, more = _up(rows, L)
        product, ratios, union = product * s, ratios + (b / s) ** (2 / 3), union + cost + more
    margin, cost = _up(1 / gamma, 1)
    size = math.sqrt(float(chain.inputs.sum()) + n * biased)
    T = 8 / n**1.5 + 72 * math.log(n) * math.sqrt(math.log(2 * width**2 + 1)) * margin / n * (
        size * product * ratios**1.5
    )
    return _total(margins, gamma, T, n, delta, union + cost)


def frobenius_bound(chain: Chain, margins: Tensor, gamma: float, delta: float) -> float:
    """The bound by Frobenius norms, at one margin."""
    biased = chain.biased
    hidden = [math.sqrt(f**2 + biased) for _, f in chain.augmented[:-1]]
    ratio, cost = _up(math.prod(hidden) * chain.last * chain.rho / gamma, 1)
    size = math.sqrt(float(chain.inputs.sum()) + chain.n * biased)
    each = (math.sqrt(2 * math.log(2) * len(chain.layers)) + 1) * size / chain.n
    T = 4 * chain.classes * each * ratio
    return _total(margins, gamma, T, chain.n, delta, cost)


def path_bound(chain: Chain, margins: Tensor, gamma: float, delta: float) -> float:
    """The bound by path norms, at one margin."""
    biased = chain.biased
    ratio, cost = _up(chain.path * chain.rho / gamma, 1)
    size = math.sqrt(max(float(chain.inputs.max()), chain.n * biased))
    depth = len(chain.layers) + 1 + math.log(len(chain.inputs) + biased)
    T = 4 * chain.classes * 2 * math.sqrt(depth) * size / chain.n * ratio
    return _total(margins, gamma, T, chain.n, delta, cost)


def _total(margins: Tensor, gamma: float, T: float, n: int, delta: float, union: float) -> float:
    share = float((margins < gamma).double().mean())
    return share + T + 3 * math.sqrt((math.log(2 / delta) + union) / (2 * n))


def _up(value: float, parts: int) -> tuple[float, float]:
    """A positive number rounded up to a power of two to the 1 / parts, and what its place costs.

    The grid is a little above these powers, so that their rounding does not leave them.
    """
    j = math.ceil(parts * (math.log2(max(value, 1e-300)) - 2e-9))
    return 2 ** (j / parts + 4e-9), math.log(2 * (abs(j) + 1) * (abs(j) + 2))


def _with_bias(layer: LayerNorms, biased: bool) -> float:
    """An upper bound of the norm of a matrix with its bias as a column and a row that keeps 1."""
    if not biased:
        return layer.spectral_high
    blocks = torch.tensor([[layer.spectral_high, layer.bias], [0.0, 1.0]], dtype=torch.float64)
    return float(torch.linalg.matrix_norm(blocks, 2)) * (1 + 1e-12)
