r"""An activation's Hermite coefficients under Gaussians: what serves all correlations at once.

With normalised Hermite polynomials $h_k$ and $z, z'$ standard normal of correlation $c$ (Mehler),

$$a_k(q) = \mathbb{E} \phi(\sqrt q\, z)\, h_k(z), \qquad
\mathbb{E} \phi(\sqrt q\, z)\, \phi(\sqrt{q'}\, z') = \sum_k a_k(q)\, a_k(q')\, c^k .$$

What the first $K$ terms leave out is at most $|c|^K$ times the geometric mean of $\mathbb{E}
\phi^2 - \sum_{k < K} a_k^2$ at both variances, by Cauchy and Schwarz. The integrals are those of
`GaussianExpectations`, on pieces of one unit, which resolve 256 polynomials to rounding.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, whole
from vademecum.expectations._quadrature import gaussian_nodes
from vademecum.expectations.moments import GaussianExpectations
from vademecum.results import one_line

__all__ = ["HermiteCoefficients", "hermite_coefficients"]

MOST = 256
"""How many coefficients there are at most."""
_TINY = 1e-300


class HermiteCoefficients(NamedTuple):
    """An activation in Hermite polynomials, for each of some variances.

    Example:
        >>> q = torch.tensor([4.0])
        >>> found = hermite_coefficients(GaussianExpectations(lambda u: 3 * u), q, 2)
        >>> found.square.round()  # 9 * 4
        tensor([36.], dtype=torch.float64)
    """

    values: Float[Tensor, " n terms"]
    """The first coefficients."""
    square: Float[Tensor, " n"]
    """The second moment, which is the sum of squares of all of them."""

    __repr__ = one_line


def hermite_coefficients(
    of: GaussianExpectations, variance: Float[Tensor, " n"], terms: int, *, order: int = 0
) -> HermiteCoefficients:
    """The first coefficients of an activation for each variance, and its second moment.

    Args:
        of: The activation's integrals.
        variance: The variances; results are in double precision.
        terms: How many coefficients.
        order: Of the activation's derivative, 0 or 1.

    Example:
        >>> cubes = GaussianExpectations(lambda u: u**3)
        >>> q = torch.ones(1, dtype=torch.float64)
        >>> a, square = hermite_coefficients(cubes, q, 4)  # z^3 = sqrt(6) h_3 + 3 h_1
        >>> a.square().round(), square.round()
        (tensor([[0., 9., 0., 6.]], dtype=torch.float64), tensor([15.], dtype=torch.float64))
    """
    whole("terms", terms, low=1, high=MOST)
    q = floats("variance", variance, ndim=1).double()
    edges = of._cut(q, order=order).edges.to(q)
    root = q.sqrt()[:, None]
    nodes, weights = gaussian_nodes(edges / root.clamp(min=_TINY), 1.0)
    values = of._call(root * nodes, order)
    h, before = torch.ones_like(nodes), torch.zeros_like(nodes)
    found, part = [], weights * values
    for k in range(terms):
        found.append((part * h).sum(-1))
        h, before = (nodes * h - math.sqrt(k) * before) / math.sqrt(k + 1), h
    return HermiteCoefficients(torch.stack(found, -1), (part * values).sum(-1))
