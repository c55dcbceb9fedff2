r"""The sawtooth: a function that is cheap for a deep network and dear for a shallow one.

The zigzag $T_k : [0, 1] \to [0, 1]$ with $T_k(\frac{j}{k}) = j \bmod 2$ has $k$ linear pieces,

$$T_k(x) = k x_+ + 2 k \sum_{j = 1}^{k - 1} (-1)^j \left(x - \tfrac{j}{k}\right)_+,$$

and zigzags compose like Chebyshev polynomials, $T_k \circ T_l = T_{k l}$. So $L$ hidden layers of
$k$ ReLUs have $k^L$ pieces on $[0, 1]$, for which one hidden layer needs $k^L$ units.

The construction is exact on $[0, 1]$: with $k$ a power of two even in floating-point arithmetic, at
every multiple of its spacing near 1. Elsewhere errors grow by the slope $k^L$. The claim is
`sawtooth_depth`.
"""

import torch
from torch import nn

from vademecum.approximation.pwl import linear_with
from vademecum.arguments import whole

__all__ = ["sawtooth_network"]


def sawtooth_network(
    depth: int, width: int = 2, *, dtype: torch.dtype | None = None
) -> nn.Sequential:
    r"""A ReLU network whose graph on $[0, 1]$ zigzags $\mathrm{width}^{\mathrm{depth}}$ times.

    Args:
        depth: The number $L$ of hidden layers.
        width: The number $k \ge 2$ of ReLUs in each; 2 makes $T_k$ the tent map.
        dtype: The type of the parameters, torch's default one if not given.

    Returns:
        A network of inputs (batch, 1). `sawtooth_network(1, width**depth)` is the same function on
        $[0, 1]$ in one hidden layer.

    References:
        Telgarsky, Benefits of depth in neural networks, COLT, 2016.

    Example:
        >>> x = torch.arange(9.0)[:, None] / 8
        >>> sawtooth_network(3)(x).flatten().tolist()
        [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    """
    whole("depth", depth, low=1)
    k = whole("width", width, low=2)
    j = torch.arange(k, dtype=dtype or torch.get_default_dtype())
    knots, weights = j / k, torch.where(j % 2 == 0, 2 * k, -2 * k).to(j)
    weights[0] = k
    layers: list[nn.Module] = [linear_with(torch.ones_like(j)[:, None], -knots), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [linear_with(weights.expand(k, k), -knots), nn.ReLU()]
    return nn.Sequential(*layers, linear_with(weights[None], torch.zeros_like(j[:1])))
