r"""The critical points of a two-layer linear network.

Let $\Gamma = \sum_{i=1}^r \sigma_i u_i v_i^\top$ with $\sigma_1 > \dots > \sigma_r > 0$. The points
where the gradient of $\ell(W_2, W_1) = \frac12 \|W_2 W_1 - \Gamma\|_F^2$ with hidden width $k$
vanishes have the products

$$W_2 W_1 = \sum_{i \in I} \sigma_i u_i v_i^\top, \qquad I \subseteq \{1, \dots, r\},\ |I| \le k,$$

$\sum_{j \le \min(k, r)} \binom rj$ of them, and the losses $\frac12 \sum_{i \notin I} \sigma_i^2$.
At balanced weights the Hessian splits into blocks of two: a mode $i \notin I$ and a hidden unit
that carries the mode $h \in I$ have the eigenvalues $\sigma_h \pm \sigma_i$, and with a unit that
carries nothing $\pm \sigma_i$. So its index, the number of negative eigenvalues, is

$$(r - |I|)(k - |I|) + \#\{(i, h): i \notin I,\ h \in I,\ \sigma_i > \sigma_h\},$$

which is zero for the $\min(k, r)$ strongest modes alone: all minima are global, and every other
critical point is a saddle with a direction of negative curvature. Exact; the claim is
`two_layer_critical_points`.
"""

import math
from itertools import combinations
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, whole
from vademecum.results import one_line

__all__ = ["CriticalPoint", "critical_points"]

MOST = 100_000


class CriticalPoint(NamedTuple):
    """A critical point, up to the choice of weights with that product.

    Weights with that product: `DeepLinearNetwork.balanced(point.product, width=k)`.

    Example:
        >>> critical_points(torch.tensor([[2.0]]), 1)[-1]
        CriticalPoint(modes=(), product=tensor([[0.]]), loss=2.0, saddle_index=1)
    """

    modes: tuple[int, ...]
    """The $I$, counted from 0, strongest first."""
    product: Float[Tensor, " p q"]
    """The $W_2 W_1$."""
    loss: float
    """The loss there."""
    saddle_index: int
    """The number of directions of negative curvature: 0 at a minimum."""

    __repr__ = one_line


def critical_points(gamma: Float[Tensor, " p q"], width: int) -> list[CriticalPoint]:
    r"""All critical points of a two-layer linear network on whitened inputs, by ascending loss.

    Args:
        gamma: The target $\Gamma$, with distinct positive singular values beside those that are
            zero up to rounding.
        width: The number $k$ of hidden units.

    Raises:
        ValueError: If two singular values coincide up to rounding, so that the critical points are
            not isolated; or if there are more than 100 000.

    References:
        Baldi, Hornik, Neural networks and principal component analysis: learning from examples
        without local minima, Neural Networks, 1989.

    Example:
        >>> points = critical_points(torch.diag(torch.tensor([2.0, 1.0])), 1)
        >>> [(p.modes, p.loss, p.saddle_index) for p in points]
        [((0,), 0.5, 0), ((1,), 2.0, 1), ((), 2.5, 2)]
    """
    gamma = floats("gamma", gamma, ndim=2).detach()
    whole("width", width, low=1)
    u, s, vh = torch.linalg.svd(gamma, full_matrices=False)
    rounding = max(gamma.shape) * torch.finfo(s.dtype).eps * s[0]
    r = int((s > rounding).sum())
    if r > 1 and (s[: r - 1] - s[1:r]).min() <= rounding:
        raise ValueError(f"gamma must have distinct singular values, got {s[:r].tolist()}")
    sizes = range(min(width, r) + 1)
    count = sum(math.comb(r, j) for j in sizes)
    if count > MOST:
        raise ValueError(f"gamma must have at most {MOST} critical points, got {count}")
    squares = s[:r].double().square().tolist()
    points = []
    for modes in (subset for j in sizes for subset in combinations(range(r), j)):
        chosen = list(modes)
        product = (u[:, chosen] * s[chosen]) @ vh[chosen]
        others = [i for i in range(r) if i not in modes]
        loss = sum(squares[i] for i in others) / 2
        stronger = sum(i < h for i in others for h in modes)
        index = len(others) * (width - len(modes)) + stronger
        points.append(CriticalPoint(modes, product, loss, index))
    return sorted(points, key=lambda point: point.loss)
