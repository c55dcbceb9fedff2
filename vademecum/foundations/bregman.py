r"""The Bregman divergence: how far a function rises above its tangent.

$$D_f(y, x) = f(y) - f(x) - \langle \nabla f(x), y - x \rangle$$

is never negative exactly if the differentiable $f$ is convex (`convexity_first_order`), and at
least $\frac\mu2 \|y - x\|^2$ exactly if it is $\mu$-strongly convex (`strong_convexity`). It is
evaluated as it stands, so that rounding is relative to $|f|$, not to the divergence.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats
from vademecum.foundations.steepest import gradient_of, rows_of

__all__ = ["bregman_divergence"]


def bregman_divergence(
    f: Callable[[Tensor], Tensor], y: Float[Tensor, " n d"], x: Float[Tensor, " n d"]
) -> Float[Tensor, " n"]:
    r"""The divergence $D_f(y, x) = f(y) - f(x) - \langle \nabla f(x), y - x \rangle$, row by row.

    The squared norm gives the squared distance, the negative entropy the Kullback-Leibler
    divergence. In general it is not symmetric. It can be differentiated in y and in x.

    Args:
        f: A differentiable function of points (n, d) to numbers (n,), row by row.
        y: Where f is evaluated.
        x: Where the tangent touches.

    References:
        Bregman, The relaxation method of finding the common point of convex sets, USSR
        Computational Mathematics and Mathematical Physics, 1967.

    Example:
        >>> y, x = torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2)
        >>> bregman_divergence(lambda x: (x**2).sum(1), y, x)
        tensor([25.])
    """
    if floats("x", x, ndim=2).shape != floats("y", y, ndim=2).shape:
        raise ValueError(f"y must have the shape of x, {tuple(x.shape)}, got {tuple(y.shape)}")
    values, slope = rows_of(f), gradient_of(f)(x)
    slope = slope if x.requires_grad else slope.detach()
    rise = (values(y) - values(x))[:, 0]
    return rise - (slope * (y - x)).sum(1)
