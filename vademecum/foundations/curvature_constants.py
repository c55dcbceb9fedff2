r"""Lipschitz, smoothness and strong-convexity constants on a region, with their witnesses.

For a map $g$ on a convex region $S$ the Lipschitz constant is the largest difference quotient,

$$\operatorname{Lip}(g) = \sup_{x \ne y \in S} \frac{\|g(x) - g(y)\|}{\|x - y\|}
= \sup_{x \in S} \|Dg(x)\| \quad\text{(if $g$ is differentiable)},$$

the smoothness constant of $f : S \to \mathbb R$ is $L = \operatorname{Lip}(\nabla f)$, and its
constant of strong convexity is the least curvature,

$$\mu = \inf_{x \ne y \in S} \frac{\langle \nabla f(x) - \nabla f(y), x - y \rangle}{\|x - y\|^2}
= \inf_{x \in S} \lambda_{\min}(\nabla^2 f(x)),$$

negative where $f$ is not convex. All three are searched by halving random pairs and by climbing the
Hessian or Jacobian (`vademecum.foundations.steepest`).

Each result is attained at the witness. So it bounds the constant from **one side only**: `value` is
at most $\operatorname{Lip}$ or $L$, and at least $\mu$. For quadratic functions of up to 1024
variables it is exact up to rounding. The claims are `lipschitz_continuity`, `strong_convexity`,
`strong_convexity_curvature`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.foundations.regions import Region
from vademecum.foundations.steepest import DifferenceQuotient, gradient_of, rows_of, steepest

__all__ = ["lipschitz_constant", "smoothness_constant", "strong_convexity_constant"]


def lipschitz_constant(
    f: Callable[[Tensor], Tensor],
    region: Region,
    *,
    pairs: int = 512,
    starts: int = 16,
    steps: int = 40,
    generator: torch.Generator | None = None,
) -> DifferenceQuotient:
    r"""A lower bound on the Lipschitz constant of a map on a region, in Euclidean norms.

    Args:
        f: A map of points (n, d) to numbers (n,) or vectors (n, ...), row by row.
        region: Where to look: a `Box`, a `Ball`, or any convex set that samples and projects.
        pairs: The number of random pairs, each of which is halved twenty times.
        starts: The number of places from which $\|Df(x)\|$ is climbed.
        steps: The number of steps of each climb.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        The steepest difference quotient that was found, with its witness.

    Raises:
        ValueError: If f is not finite on the region, or mixes rows.

    Example:
        >>> from vademecum.foundations import Box
        >>> box = Box(-torch.ones(2), torch.ones(2))
        >>> round(lipschitz_constant(lambda x: x @ torch.tensor([3.0, 4.0]), box).value, 4)
        5.0
    """
    return steepest(rows_of(f), region, pairs, starts, steps, generator)


def smoothness_constant(
    f: Callable[[Tensor], Tensor],
    region: Region,
    *,
    pairs: int = 512,
    starts: int = 16,
    steps: int = 40,
    generator: torch.Generator | None = None,
) -> DifferenceQuotient:
    r"""A lower bound on $L = \operatorname{Lip}(\nabla f)$: how fast the gradient can turn.

    Gradient descent with a step below $2 / L$ does not diverge on a function that is $L$-smooth.

    Args:
        f: A differentiable function of points (n, d) to numbers (n,), row by row.
        region: Where to look.
        pairs: The number of random pairs, each of which is halved twenty times.
        starts: The number of places from which $\|\nabla^2 f(x)\|$ is climbed.
        steps: The number of steps of each climb.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        The largest $\|\nabla f(x) - \nabla f(y)\| / \|x - y\|$ that was found, with its witness.

    Raises:
        ValueError: If f has no gradient, is not finite on the region, or mixes rows.

    References:
        Nesterov, Lectures on convex optimization, Springer, 2018.

    Example:
        >>> from vademecum.foundations import Box
        >>> box = Box(-torch.ones(2), torch.ones(2))
        >>> smoothness_constant(lambda x: x[:, 0] ** 2 - 3 * x[:, 1] ** 2, box).value
        6.0
    """
    return steepest(gradient_of(f), region, pairs, starts, steps, generator)


def strong_convexity_constant(
    f: Callable[[Tensor], Tensor],
    region: Region,
    *,
    pairs: int = 512,
    starts: int = 16,
    steps: int = 40,
    generator: torch.Generator | None = None,
) -> DifferenceQuotient:
    r"""An upper bound on the $\mu$ of strong convexity: the least curvature on the region.

    Args:
        f: A differentiable function of points (n, d) to numbers (n,), row by row.
        region: Where to look.
        pairs: The number of random pairs, each of which is halved twenty times.
        starts: The number of places from which $-\lambda_{\min}(\nabla^2 f(x))$ is climbed.
        steps: The number of steps of each climb.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        The least $\langle \nabla f(x) - \nabla f(y), x - y \rangle / \|x - y\|^2$ that was found,
        with its witness; a negative one proves that f is not convex.

    Raises:
        ValueError: If f has no gradient, is not finite on the region, or mixes rows.

    Example:
        >>> from vademecum.foundations import Box
        >>> box = Box(-torch.ones(2), torch.ones(2))
        >>> strong_convexity_constant(lambda x: x[:, 0] ** 2 + 3 * x[:, 1] ** 2, box).value
        2.0
    """
    found = steepest(gradient_of(f), region, pairs, starts, steps, generator, bend=True)
    return found._replace(value=-found.value)
