r"""Networks by one least-squares problem: fixed features and a fitted read-out.

With hidden units that stay as they are, $\psi_i(x) = \phi(w_i^\top x + b_i)$, the network
$F(x) = v_0 + \sum_i v_i \psi_i(x)$ is linear in $v$, so that

$$v \in \operatorname*{argmin}_v \sum_j \Big(F(x_j) - y_j\Big)^2 + \alpha \sum_{i \ge 1} v_i^2$$

is linear or ridge regression. Random features draw

$$w_i \sim \mathcal N\Big(0, \tfrac{s^2}{\tau^2} I\Big), \qquad b_i = -w_i^\top x_{j(i)}$$

with $\tau^2$ the mean squared distance of the points to their mean and $j(i)$ a random point: each
unit is centred at a data point, and bends $s$ times over the data. ReLU is indifferent to $s$.

The read-out is optimal up to rounding, and among several the one of least norm; the features are
as good as chance. The claims are `universal_approximation` and `dimension_lifting`.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.approximation.pwl import linear_with
from vademecum.arguments import floats, number, whole
from vademecum.linear.least_squares import LinearRegression
from vademecum.linear.ridge import RidgeRegression
from vademecum.models import ModelState
from vademecum.randomness import source

__all__ = ["fit_readout", "random_feature_fit"]


@torch.no_grad()
def fit_readout(
    features: nn.Module,
    x: Float[Tensor, " n *shape"],
    y: Float[Tensor, " n *t"],
    *,
    alpha: float = 0.0,
) -> nn.Linear:
    r"""The linear layer on top of given features that fits the targets best.

    Args:
        features: Any module that maps the examples to rows of numbers; taken in evaluation, left as
            it is.
        x: The examples.
        y: Their targets: numbers, or vectors, one a row.
        alpha: The penalty on the squared weights; the bias is free. With 0 it is least squares.

    Returns:
        The layer; put it behind the features with `nn.Sequential`. A feature that is within
        rounding of zero at all examples, next to the others, has the weight 0.

    Example:
        >>> x = torch.tensor([[-1.0], [0.0], [2.0]])
        >>> layer = fit_readout(nn.ReLU(), x, torch.tensor([3.0, 3.0, 4.0]))  # 3 + max(x, 0) / 2
        >>> layer.weight.item(), layer.bias.item()
        (0.5, 3.0)
    """
    x, y = floats("x", x), floats("y", y)
    if y.ndim not in (1, 2) or len(y) != len(x):
        raise ValueError(f"y must have {len(x)} rows, got shape {tuple(y.shape)}")
    columns = floats("features(x)", ModelState(features).run(features, x.clone()), ndim=2)
    size = columns.abs().amax(0)  # a unit that bends at the outermost point gives rounding alone
    least = max(columns.shape) * torch.finfo(columns.dtype).eps * size.max()
    columns = torch.where(size > least, columns, 0.0)
    if number("alpha", alpha, low=0, high=torch.finfo(x.dtype).max) == 0:
        fit = LinearRegression().fit(columns, y.reshape(len(y), -1))
    else:
        fit = RidgeRegression(alphas=alpha).fit(columns, y.reshape(len(y), -1))
    return linear_with(fit.coef_, torch.as_tensor(fit.intercept_))


@torch.no_grad()
def random_feature_fit(
    x: Float[Tensor, " n d"],
    y: Float[Tensor, " n *t"],
    m: int,
    *,
    activation: nn.Module | None = None,
    scale: float = 3.0,
    alpha: float = 0.0,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    r"""A network with $m$ random hidden units and the best read-out for them.

    Args:
        x: The examples.
        y: Their targets: numbers, or vectors, one a row.
        m: The number of hidden units.
        activation: The activation; ReLU without one.
        scale: How strongly units bend over the data, $s$; of no effect for ReLU.
        alpha: The ridge penalty of the read-out; with 0 it is least squares of least norm.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        A network of inputs (batch, d) with outputs (batch, 1) or (batch, t).

    References:
        Rahimi and Recht, Weighted sums of random kitchen sinks: replacing minimization with
        randomization in learning, NeurIPS, 2008.

    Example:
        >>> x = torch.linspace(-1, 1, 50)[:, None]
        >>> net = random_feature_fit(x, x[:, 0].abs(), 400)
        >>> bool((net(x) - x.abs()).abs().max() < 0.01)
        True
    """
    x, y = floats("x", x, ndim=2), floats("y", y)
    if (x.dtype, x.device) != (y.dtype, y.device):
        raise ValueError(f"y must be {x.dtype} on {x.device} as x is, got {y.dtype} on {y.device}")
    whole("m", m, low=1)
    tau = (x - x.mean(0)).square().sum(1).mean().sqrt()
    if tau == 0:
        raise ValueError("x must have points that differ, got the same point throughout")
    draw = source(generator, x.device)
    w = torch.randn(m, x.shape[1], **draw, dtype=x.dtype).to(x.device)
    j = torch.randint(len(x), (m,), **draw).to(x.device)
    w = w * (number("scale", scale, above=0, high=torch.finfo(x.dtype).max) / tau)
    hidden = linear_with(w, -(w * x[j]).sum(1))
    features = nn.Sequential(hidden, nn.ReLU() if activation is None else activation)
    return features.append(fit_readout(features, x, y, alpha=alpha))
