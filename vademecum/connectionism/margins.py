r"""Margins: how far labelled points are from a hyperplane, on the right side.

The hyperplane $\{x : \langle x, w \rangle + b = 0\}$, $w \ne 0$, has the signed distance
$\frac{\langle x, w \rangle + b}{\|w\|}$ to a point $x$. The geometric margin of a sample is

$$\gamma[w, b](S) = \min_{(x, y) \in S} \frac{y (\langle x, w \rangle + b)}{\|w\|},$$

positive exactly if every point is on its side. With $\tilde x = (x, 1)$ and $\tilde w = (w, b)$ the
bias is a weight like the others. Novikov: through the origin the perceptron makes at most
$R^2 / \gamma^2$ updates from zero, with $R = \max \|x\|$ and $\gamma$ the margin of any separator.

All of this is evaluated as it stands, up to rounding; the largest margin comes from
`vademecum.connectionism.nearest_point` with a certificate of its accuracy.
"""

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from vademecum.arguments import floats, number, signs
from vademecum.arrays import power_of_two
from vademecum.connectionism.convex_hulls import nearest_point

__all__ = ["augment", "margin", "novikov_bound", "signed_distance"]


def augment(x: Shaped[Tensor, " *n d"], constant: float = 1.0) -> Shaped[Tensor, " *n d+1"]:
    r"""Append a constant coordinate, whose weight is the bias: $\tilde x = (x, 1)$.

    Args:
        x: Points, in the last axis.
        constant: The coordinate; -1 if the unit is written with a threshold,
            $\langle x, w \rangle - b$.

    Raises:
        ValueError: If `x` is a scalar, or its dtype cannot hold the constant.

    Example:
        >>> augment(torch.tensor([[2, 3]]))
        tensor([[2, 3, 1]])
    """
    if x.ndim == 0:
        raise ValueError("x must have at least one axis, got a scalar")
    if not x.is_floating_point() and torch.tensor(constant).to(x.dtype).item() != constant:
        raise ValueError(f"constant must be of the dtype of x, {x.dtype}, got {constant}")
    return torch.cat([x, torch.full_like(x[..., :1], constant)], -1)


def signed_distance(
    w: Float[Tensor, " d"], b: float | Float[Tensor, ""], x: Float[Tensor, " *n d"]
) -> Float[Tensor, " *n"]:
    r"""The signed distance $\frac{\langle x, w \rangle + b}{\|w\|}$ of points to a hyperplane.

    Example:
        >>> signed_distance(torch.tensor([3.0, 4.0]), 5.0, torch.zeros(2))
        tensor(1.)

    Raises:
        ValueError: If `w` is zero, since that is no hyperplane.
    """
    b = number("b", b.item() if isinstance(b, Tensor) else b)
    scale = power_of_two(floats("w", w, ndim=1))  # the same hyperplane for w and b divided by it
    w, b = w / scale, b / scale
    norm = torch.linalg.vector_norm(w)
    if norm == 0:
        raise ValueError("w must not be zero: it is the normal of a hyperplane")
    return (floats("x", x, width=len(w)) @ w + b) / norm


def margin(
    w: Float[Tensor, " d"],
    b: float | Float[Tensor, ""],
    x: Float[Tensor, " n d"],
    y: Shaped[Tensor, " n"],
) -> Float[Tensor, ""]:
    r"""The geometric margin $\min_i y_i (\langle x_i, w \rangle + b) / \|w\|$ of a sample.

    Args:
        w: The normal of the hyperplane.
        b: The bias; 0 for a hyperplane through the origin.
        x: The points.
        y: Their labels, -1 or +1.

    Example:
        >>> x = torch.tensor([[1.0, 1.0], [-1.0, 0.0]])
        >>> margin(torch.tensor([3.0, 4.0]), 0.0, x, torch.tensor([1, -1]))
        tensor(0.6000)
    """
    y = signs("y", y, ndim=1, width=len(floats("x", x, ndim=2)))
    return (y * signed_distance(w, b, x)).min()


def novikov_bound(
    x: Float[Tensor, " n d"],
    y: Shaped[Tensor, " n"],
    *,
    theta: Float[Tensor, " d"] | None = None,
) -> float:
    r"""Novikov's bound $R^2 / \gamma^2$ on the updates of a perceptron that starts at zero.

    The hyperplane passes through the origin; for a unit with a bias give `augment(x)`.

    Args:
        x: The examples; $R$ is the largest of their norms.
        y: Their labels, -1 or +1.
        theta: A separator, whose margin $\gamma$ is taken; without one, the largest margin.

    Returns:
        The bound; infinity if the separator does not separate, or if nothing does.

    References:
        Novikoff, On convergence proofs for perceptrons, Symposium on the Mathematical Theory of
        Automata, 1962.

    Example:
        >>> novikov_bound(torch.eye(3), torch.tensor([1, -1, 1]))
        3.0...
    """
    z = signs("y", y, ndim=1, width=len(floats("x", x, ndim=2)))[:, None] * x.double()
    z = z / power_of_two(z)
    if theta is None:
        theta = nearest_point(z).point
        if theta.norm() == 0:
            return math.inf
    gamma = float(margin(theta.double(), 0.0, z, torch.ones_like(y)))
    return float(z.square().sum(1).max()) / gamma**2 if gamma > 0 else math.inf
