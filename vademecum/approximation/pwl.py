r"""A piecewise-linear function of one variable as an exact network.

The function through $(x_0, y_0), \dots, (x_m, y_m)$, $x_0 < \dots < x_m$, has the slopes
$s_i = \frac{y_i - y_{i - 1}}{x_i - x_{i - 1}}$; its first and last pieces go on for ever. With the
slope changes $c_i = s_{i + 1} - s_i$ at $x_i$, $0 < i < m$, it is

$$f(x) = a x + b + \sum_i c_i\, (x - x_i)_+
= \left(a + \tfrac12 \sum_i c_i\right) x + b - \tfrac12 \sum_i c_i x_i
+ \sum_i \tfrac{c_i}{2} |x - x_i|, \qquad a = s_1,$$

since $z_+ = \frac12 (z + |z|)$; and its convex and concave kinks, $c_i > 0$ and $c_i < 0$, make it
a difference of two maxima of affine functions. In a plain layer of ReLUs the first kink takes the
affine part over: $a x + b + c_1 (x - x_1)_+ = y_1 - s_1 (x_1 - x)_+ + s_2 (x - x_1)_+$.

All three are exact on the whole line up to rounding; points without a change of slope get no unit.
The claims are `relu_spline`, `abs_spline`, `two_maxout`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.approximation.max_affine import MaxAffine
from vademecum.approximation.units import AbsUnit
from vademecum.arguments import floats
from vademecum.results import one_line

__all__ = [
    "AbsExpansion", "HingeDifference", "linear_with", "pwl_to_abs", "pwl_to_maxout", "pwl_to_relu",
]  # fmt: skip


def pwl_to_relu(x: Float[Tensor, " m"], y: Float[Tensor, " m"]) -> nn.Sequential:
    r"""One hidden layer of ReLUs that equals a piecewise-linear function on the whole line.

    Args:
        x: Where the function is given, in increasing order; two points or more.
        y: Its values there. Between and beyond them it is linear.

    Returns:
        A network of inputs (batch, 1) with at most one unit more than there are kinks.

    Example:
        >>> hat = pwl_to_relu(torch.tensor([-1.0, 0.0, 1.0, 2.0]), torch.tensor([0.0, 0, 1, 0]))
        >>> hat(torch.tensor([[-5.0], [0.5], [1.0], [3.0]])).flatten().tolist()
        [0.0, 0.5, 1.0, -1.0]
        >>> hat[0].out_features  # at 0 and at 1, and the first slope is 0
        2
    """
    s, kink, c = _slopes(x, y)
    first = int(kink[0]) if len(kink) else 0
    left, right = s[0], s[first]  # with no kink they are equal, and meet at x[0]
    signs = torch.cat([-x.new_ones(1), x.new_ones(max(len(kink), 1))])
    knots = torch.cat([x[first : first + 1], x[kink] if len(kink) else x[:1]])
    weights = torch.cat([-left[None], right[None], c[1:]])
    needed = weights != 0
    needed[0] |= not needed.any()  # a constant function still has a layer
    first_layer = linear_with(signs[needed, None], -(signs * knots)[needed])
    return nn.Sequential(first_layer, nn.ReLU(), linear_with(weights[needed][None], y[first][None]))


class AbsExpansion(nn.Module):
    r"""The network $f(x) = \alpha x + \beta + \sum_i \gamma_i |x - x_i|$ of inputs (batch, 1).

    Absolute values alone cannot do without the affine part: a sum of them has opposite slopes at
    $\pm \infty$.

    Example:
        >>> two, three, one, zero = torch.tensor([[2.0], [3.0], [1.0], [0.0]])
        >>> f = AbsExpansion(two, three, one, zero)  # x + 3 |x - 2|
        >>> f(torch.tensor([[1.0], [4.0]])).flatten().tolist()
        [4.0, 10.0]
    """

    def __init__(
        self,
        knots: Float[Tensor, " k"],
        gamma: Float[Tensor, " k"],
        alpha: Float[Tensor, " 1"],
        beta: Float[Tensor, " 1"],
    ):
        super().__init__()
        first = linear_with(torch.ones_like(knots)[:, None], -knots)
        self.affine = linear_with(alpha[None], beta)
        self.kinks = nn.Sequential(first, AbsUnit(), linear_with(gamma[None]))

    def forward(self, x: Float[Tensor, " *batch 1"]) -> Float[Tensor, " *batch 1"]:
        """The affine part plus the kinks."""
        return self.affine(x) + self.kinks(x)


def pwl_to_abs(x: Float[Tensor, " m"], y: Float[Tensor, " m"]) -> AbsExpansion:
    r"""A layer of absolute value units, and a linear bypass, equal to a piecewise-linear function.

    Args:
        x: Where the function is given, in increasing order; two points or more.
        y: Its values there. Between and beyond them it is linear.

    Returns:
        A network of inputs (batch, 1) with a unit for each kink (a line has one of weight 0).

    Example:
        >>> f = pwl_to_abs(torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, 1.0]))
        >>> f(torch.tensor([[-2.0], [3.0]])).flatten().tolist()  # (x + |x|) / 2
        [0.0, 3.0]
    """
    s, kink, c = _slopes(x, y)
    if not len(kink):
        kink, c = kink.new_zeros(1), c.new_zeros(1)
    alpha = s[0] + c.sum() / 2
    beta = y[0] - s[0] * x[0] - (c * x[kink]).sum() / 2
    return AbsExpansion(x[kink], c / 2, alpha[None], beta[None])


class HingeDifference(NamedTuple):
    r"""The function $g(x) - h(x)$ of two maxout units.

    Example:
        >>> zero = MaxAffine(torch.zeros(1, 1), torch.zeros(1))
        >>> HingeDifference(zero, zero)(torch.ones(2, 1)).tolist()
        [0.0, 0.0]
    """

    g: MaxAffine
    """The unit with the convex kinks."""
    h: MaxAffine
    """The unit with the concave kinks."""

    __repr__ = one_line

    def __call__(self, x: Float[Tensor, " *batch 1"]) -> Float[Tensor, " *batch"]:
        """The difference at each point."""
        return self.g(x) - self.h(x)


def pwl_to_maxout(x: Float[Tensor, " m"], y: Float[Tensor, " m"]) -> HingeDifference:
    r"""Two maxout units whose difference is a piecewise-linear function: $f = g - h$.

    Args:
        x: Where the function is given, in increasing order; two points or more.
        y: Its values there. Between and beyond them it is linear.

    Returns:
        The unit $g$ with the convex kinks and the first slope, and $h$ with the concave kinks.

    Example:
        >>> f = pwl_to_maxout(torch.tensor([0.0, 1, 2, 3]), torch.tensor([0.0, 0, 1, 1]))
        >>> f.g.A.flatten().tolist(), f.h.A.flatten().tolist()  # max(0, x - 1) - max(0, x - 2)
        ([0.0, 1.0], [0.0, 1.0])
    """
    s, kink, c = _slopes(x, y)
    parts = []
    for sign, a, b in ((1, s[0], y[0] - s[0] * x[0]), (-1, s.new_zeros(()), s.new_zeros(()))):
        mine = sign * c > 0
        rise, knots = (sign * c)[mine], x[kink[mine]]
        slopes = torch.cat([a[None], a + rise.cumsum(0)])
        offsets = torch.cat([b[None], b - (rise * knots).cumsum(0)])
        parts.append(MaxAffine(slopes[:, None], offsets))
    return HingeDifference(*parts)


def _slopes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The slopes of all pieces, the points where they change, and by how much."""
    x, y = floats("x", x, ndim=1), floats("y", y, ndim=1, width=len(x))
    if len(x) < 2:
        raise ValueError(f"x must have at least 2 points, got {len(x)}")
    if (x.dtype, x.device) != (y.dtype, y.device):
        raise ValueError(f"y must be {x.dtype} on {x.device} as x is, got {y.dtype} on {y.device}")
    if not (x.diff() > 0).all():
        i = int((x.diff() <= 0).nonzero()[0])
        raise ValueError(f"x must increase, got {x[i + 1].item()} after {x[i].item()}")
    s = floats("the slopes of y over x", y.detach().diff() / x.detach().diff())
    c = s.diff()
    kink = c.nonzero()[:, 0]
    return s, kink + 1, c[kink]


def linear_with(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A linear layer with given parameters; nothing is drawn at random."""
    layer = nn.Linear(*weight.shape[::-1], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer
