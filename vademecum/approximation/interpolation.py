r"""One hidden layer of ReLUs through given points of any dimension.

Let $\theta$ be a direction along which no two points meet, $t_i = \langle \theta, x_i \rangle$, and
let the points be ordered, $t_0 < \dots < t_n$. The piecewise-linear function through all
$(t_i, y_i)$ that is constant to the left of $t_0$ needs $n$ units,

$$f(x) = y_0 + \sum_{i = 0}^{n - 1} c_i \left(\langle \theta, x \rangle - t_i\right)_+, \qquad
c_i = s_i - s_{i - 1}, \quad s_i = \frac{y_{i + 1} - y_i}{t_{i + 1} - t_i}, \quad s_{-1} = 0 .$$

Almost every $\theta$ will do. Of the axes and some random directions the one is taken whose
smallest gap is the largest share of the range, since the slopes, and with them the rounding, grow
as gaps shrink. Interpolation is exact up to that rounding; between the points nothing is promised
beyond one dimension. The claim is `relu_universality`.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.approximation.pwl import linear_with
from vademecum.arguments import floats, whole
from vademecum.randomness import source

__all__ = ["interpolating_network"]


@torch.no_grad()
def interpolating_network(
    x: Float[Tensor, " n d"],
    y: Float[Tensor, " n *m"],
    *,
    directions: int = 256,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    r"""A ReLU network with one hidden layer of $n - 1$ units that takes $x_i$ to $y_i$.

    Args:
        x: Points, no two of them equal; in one dimension the network is linear between them.
        y: Their values: numbers, or vectors, one a row.
        directions: How many random directions to try, beside the axes.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        A network of inputs (batch, d) with outputs (batch, 1) or (batch, m).

    Raises:
        ValueError: If two points are equal, or too close to be told apart in their dtype.

    References:
        Zhang, Bengio, Hardt, Recht and Vinyals, Understanding deep learning requires rethinking
        generalization, ICLR, 2017, theorem 1.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> net = interpolating_network(x, torch.tensor([0.0, 1.0, 1.0, 0.0]))  # XOR
        >>> net(x).flatten().round().abs().tolist(), net[0].out_features
        ([0.0, 1.0, 1.0, 0.0], 3)
    """
    x, y = floats("x", x, ndim=2), floats("y", y)
    if y.ndim not in (1, 2) or len(y) != len(x):
        raise ValueError(f"y must have {len(x)} rows, got shape {tuple(y.shape)}")
    if (x.dtype, x.device) != (y.dtype, y.device):
        raise ValueError(f"y must be {x.dtype} on {x.device} as x is, got {y.dtype} on {y.device}")
    if len(x) < 2:
        raise ValueError(f"x must have at least 2 points, got {len(x)}")
    theta = _direction(x, whole("directions", directions, low=0), generator)
    t, order = (x @ theta).sort()
    y = y[order].reshape(len(x), -1)
    s = floats("the slopes of y", y.diff(dim=0) / t.diff()[:, None])
    c = s.diff(dim=0, prepend=torch.zeros_like(s[:1]))
    hidden = linear_with(theta.expand(len(c), -1), -t[:-1])
    return nn.Sequential(hidden, nn.ReLU(), linear_with(c.mT, y[0]))


def _direction(x: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """The direction of the largest smallest gap, as a share of the range."""
    n, d = (count, x.shape[1]) if x.shape[1] > 1 else (0, 1)
    random = torch.randn(n, d, **source(generator, x.device), dtype=x.dtype)
    candidates = torch.cat([torch.eye(d).to(x), nn.functional.normalize(random.to(x.device))])
    best, share = candidates[0], -1.0
    for theta in candidates:
        t = (x @ theta).sort().values
        found = float(t.diff().min() / (t[-1] - t[0]).clamp(min=torch.finfo(x.dtype).tiny))
        if found > share:
            best, share = theta, found
    if share <= torch.finfo(x.dtype).eps:
        raise ValueError("x must be points that differ, got two that no direction tells apart")
    return best
