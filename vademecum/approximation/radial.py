r"""Radial functions by two hidden layers, with polynomially many units.

A function $f(x) = g(\|x\|^2)$ on the ball of radius $R$ in $\mathbb R^n$ is a function of one
variable behind a sum of $n$ functions of one variable. Interpolating each of them linearly gives

$$\tilde s(x) = \sum_i q(x_i), \qquad F(x) = \tilde g(\tilde s(x)),$$

with $q$ equal to $t^2$ at the ends of $k$ equal pieces of $[-R, R]$ and $\tilde g$ equal to $g$ at
those of $p$ equal pieces of $[0, R^2]$; beyond, both go on linearly. Since
$0 \le q(t) - t^2 \le R^2 / k^2$, and $\tilde g$ is as Lipschitz as $g$,

$$\sup_{\|x\| \le R} |F - f|
\le \mathrm{Lip}(g)\, \frac{n R^2}{k^2} + \frac18 \Big(\frac{R^2}{p}\Big)^2 \sup |g''| .$$

The layers have $n k$ and at most $p$ units: an accuracy takes $k \propto \sqrt n$, so $n^{3/2}$
units in all, where one hidden layer can need exponentially many (Eldan and Shamir). The network is
this $F$ up to rounding. The claim is `radial_depth_separation`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vademecum.approximation.pwl import linear_with, pwl_to_relu
from vademecum.arguments import floats, number, whole

__all__ = ["radial_network"]


@torch.no_grad()
def radial_network(
    g: Callable[[Tensor], Tensor],
    n: int,
    *,
    inner: int,
    outer: int,
    radius: float = 1.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> nn.Sequential:
    r"""A ReLU network with two hidden layers for $g(\|x\|^2)$ on a ball.

    Args:
        g: The function of the squared norm, entry by entry, of a tensor on $[0, R^2]$.
        n: The dimension of the inputs.
        inner: The number $k$ of pieces of each square, two or more.
        outer: The number $p$ of pieces of $g$.
        radius: The radius $R$ of the ball.
        dtype: The dtype of the network, torch's default without one.
        device: The device of the network.

    Returns:
        A network of inputs (batch, n) with outputs (batch, 1).

    References:
        Eldan and Shamir, The power of depth for feedforward neural networks, COLT, 2016.

    Example:
        >>> cone = radial_network(torch.sqrt, 2, inner=10, outer=100)
        >>> x = torch.tensor([[0.6, -0.8], [0.2, 0.0]])  # whose coordinates are knots
        >>> [round(value, 4) for value in cone(x).flatten().tolist()]
        [1.0, 0.2]
    """
    whole("n", n, low=1)
    whole("inner", inner, low=2)
    whole("outer", outer, low=1)
    kind = {"dtype": dtype or torch.get_default_dtype(), "device": device}
    r = number("radius", radius, above=0, high=torch.finfo(kind["dtype"]).max ** 0.5)
    t, s = torch.linspace(-r, r, inner + 1, **kind), torch.linspace(0, r * r, outer + 1, **kind)
    values = floats("g(s)", g(s))
    if values.shape != s.shape:
        raise ValueError(f"g(s) must have shape {tuple(s.shape)}, got {tuple(values.shape)}")
    w1, b1, w2, b2 = pwl_to_relu(t, t.square()).parameters()
    w3, b3, w4, b4 = pwl_to_relu(s, values).parameters()
    squares = linear_with(torch.eye(n, **kind).kron(w1), b1.repeat(n))
    bends = linear_with(w3 @ w2.repeat(1, n), w3[:, 0] * (n * b2) + b3)
    return nn.Sequential(squares, nn.ReLU(), bends, nn.ReLU(), linear_with(w4, b4))
