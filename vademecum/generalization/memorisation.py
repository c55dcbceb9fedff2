r"""A network of two layers and $2 n + d$ weights that fits any labels of n points.

Zhang et al.: for a direction $a$ along which no two of the points meet, $t_i = \langle a, x_i
\rangle$ with $t_1 < \dots < t_n$, the network

$$c(x) = \sum_{j = 1}^n w_j\, \bigl(\langle a, x \rangle - b_j\bigr)_+$$

with one threshold before each point, $b_1 < t_1 \le b_2 < t_2 \le \dots$, takes the values $y$ if
$A w = y$ for $A_{ij} = (t_i - b_j)_+$, a triangular matrix whose diagonal is positive.

Thresholds are set at the points themselves, $b_{j + 1} = t_j$. Then the sums $S_i = w_1 + \dots +
w_i$ are the slopes between neighbours, $S_i = (y_i - y_{i - 1}) / (t_i - t_{i - 1})$, and the
triangular system is solved by differences of these: errors do not pile up, as they do with
thresholds in the middle, where a steep piece goes on beyond its point. Sorting is all it costs.

The network is evaluated the same way: the threshold below $\langle a, x \rangle$ is found by
bisection, and the line from there is followed, which is what the sum over all n units amounts to,
for $d + \log n$ operations in the place of $d + n$. Rounding of $\langle a, x \rangle$ is magnified
by the steepest slope, some $n^2$ for random points, therefore all is in double precision and the
direction is the best of a few random ones. The claim is `random_labels`.

References:
    Zhang, Bengio, Hardt, Recht and Vinyals, Understanding deep learning requires rethinking
    generalization, ICLR, 2017, theorem 1.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import floats, whole
from vademecum.randomness import source

__all__ = ["memorising_network"]

_MISS = 1e-3  # of the largest label: what the fit of a label may be off by
_ROWS = 2**22  # entries of points that are made double at once


class Ramps(nn.Module):
    r"""The network $\sum_j w_j (\langle a, x \rangle - b_j)_+$, by bisection among the thresholds.

    Args:
        direction: The $a$, (d,).
        thresholds: The $b$, (n,), in any order.
        weights: The $w$, (n,) or (n, k).
    """

    def __init__(self, direction: Tensor, thresholds: Tensor, weights: Tensor):
        super().__init__()
        self.direction = nn.Parameter(direction)
        self.thresholds = nn.Parameter(thresholds)
        self.weights = nn.Parameter(weights)

    def forward(self, x: Float[Tensor, " *batch d"]) -> Float[Tensor, " *outputs"]:
        """The sum of all ramps."""
        t = x.to(self.direction.dtype) @ self.direction
        b, order = self.thresholds.sort()
        slopes = self.weights[order].cumsum(0)
        gaps = b.diff()
        if vector := slopes.ndim > 1:
            gaps = gaps[:, None]
        heights = torch.cat([torch.zeros_like(slopes[:1]), (slopes[:-1] * gaps).cumsum(0)])
        j = torch.searchsorted(b.detach(), t.detach().contiguous())  # how many are below t
        last = (j - 1).clamp(min=0)
        beyond = torch.where(j > 0, t - b[last], 0.0)
        return heights[last] + slopes[last] * (beyond[..., None] if vector else beyond)

    def extra_repr(self) -> str:
        return f"d={len(self.direction)}, units={len(self.thresholds)}"


@torch.no_grad()
def memorising_network(
    x: Float[Tensor, " n d"],
    y: Shaped[Tensor, " n *k"],
    *,
    directions: int = 8,
    generator: torch.Generator | None = None,
) -> nn.Module:
    r"""A ReLU network with one hidden layer and $2 n + d$ weights that takes each $x_i$ to $y_i$.

    Args:
        x: Points, no two of them equal.
        y: Their labels, anything at all: numbers, or vectors of k numbers, one a row.
        directions: How many random directions to try; the one with the gentlest slopes is taken.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        A module with the parameters `direction` (d), `thresholds` (n) and `weights` (n, or n x k),
        in double precision; inputs (batch, d) of any floating dtype give outputs like y's rows.

    Raises:
        ValueError: If two points are equal, which are named, or so close that their labels are not
            told apart in double precision.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> net = memorising_network(x, torch.tensor([0, 1, 1, 0]))  # XOR
        >>> net(x).round().abs().tolist(), sum(p.numel() for p in net.parameters())  # 2 x 4 + 2
        ([0.0, 1.0, 1.0, 0.0], 10)
    """
    x, targets = _checked(x, y)
    A = _candidates(x.shape[1], whole("directions", directions, low=1), generator, x.device)
    T, places = _project(x, A).T.contiguous().sort()
    best = min(range(len(T)), key=lambda i: _steepest(T[i], targets[places[i]]))
    t, order = T[best], places[best]
    _refuse_equal(x, t, order)
    net = _through(A[:, best], t, targets[order])
    missed = (net(x[order]) - targets[order]).abs()
    if not missed.max() <= _MISS * targets.abs().max():
        i = int(_columns(missed).amax(1).nan_to_num(nan=torch.inf).argmax())
        raise ValueError(
            "x must be points that double precision tells apart along a line, got row"
            f" {int(order[i])} too close to another one with another label"
        )
    return net


def _checked(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x = floats("x", x, ndim=2).detach()
    if not isinstance(y, Tensor) or y.ndim not in (1, 2) or len(y) != len(x) or not y.numel():
        given = f"shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"y must be a tensor of {len(x)} rows, got {given}")
    if y.device != x.device:
        raise ValueError(f"y must be on {x.device} as x is, got {y.device}")
    if x.is_complex() or y.is_complex():
        raise ValueError(f"x and y must be real, got {x.dtype} and {y.dtype}")
    return x, floats("y", y.detach().double())


def _candidates(
    d: int, count: int, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Random unit vectors, a column each; on a line there is one."""
    if d == 1:
        return torch.ones(1, 1, dtype=torch.float64, device=device)
    drawn = torch.randn(d, count, dtype=torch.float64, **source(generator, device))
    return F.normalize(drawn, dim=0).to(device)


def _project(x: Tensor, A: Tensor) -> Tensor:
    """The products with directions in double precision, with a few rows made double at once."""
    rows = max(1, _ROWS // x.shape[1])
    return torch.cat([part.double() @ A for part in x.split(rows)])


def _steepest(t: Tensor, y: Tensor) -> float:
    """The steepest slope between neighbours, if the projections filled an interval of length 1."""
    if len(t) < 2:
        return 0.0
    slopes = _columns(y).diff(dim=0).abs().amax(1) / t.diff()
    return float(slopes.nan_to_num(nan=torch.inf).max() * (t[-1] - t[0]))


def _columns(y: Tensor) -> Tensor:
    return y if y.ndim > 1 else y[:, None]


def _through(a: Tensor, t: Tensor, y: Tensor) -> Ramps:
    """The network through points in the order of their projections."""
    span = float(t[-1] - t[0]) or 1.0
    b = torch.cat([t[:1] - span, t[:-1]])
    steps = torch.cat([_columns(y)[:1], _columns(y).diff(dim=0)]) / (t - b)[:, None]
    weights = steps.diff(dim=0, prepend=torch.zeros_like(steps[:1]))
    return Ramps(a.clone(), b, weights.view_as(y))


def _refuse_equal(x: Tensor, t: Tensor, order: Tensor) -> None:
    """Name two equal points: their projections are neighbours up to rounding."""
    rounding = x.shape[1] * torch.finfo(torch.float64).eps * float(t.abs().max())
    close = t.diff() <= rounding
    near = torch.cat([close, close[:0].new_zeros(1)]) | torch.cat([close.new_zeros(1), close])
    rows = order[near]
    if not len(rows):
        return
    _, which, counts = x[rows].unique(dim=0, return_inverse=True, return_counts=True)
    if int(counts.max()) > 1:
        i, j = sorted(rows[which == counts.argmax()].tolist())[:2]
        raise ValueError(f"x must be points that differ, got rows {i} and {j} that are equal")
