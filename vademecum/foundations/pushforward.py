r"""The density of a transformed variable, by automatic differentiation.

If $f$ is a diffeomorphism and $x = f(z)$ with $z \sim p_Z$, the law of $x$ is the pushforward of
$p_Z$ under $f$, and

$$\log p_X(f(z)) = \log p_Z(z) - \log |\det \partial f(z)|.$$

The Jacobian is exact (reverse mode, vectorised over points) and costs $d$ backward passes; the
determinant is taken by an LU decomposition. That $f$ is one-to-one is not checked.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats
from vademecum.results import one_line

__all__ = ["Pushforward", "pushforward_density"]


class Pushforward(NamedTuple):
    """Images of points under a map, and the logarithm of the transformed density there.

    Example:
        >>> double = pushforward_density(lambda z: 0 * z[..., 0], lambda z: 2 * z, torch.ones(1, 1))
        >>> double.x, double.log_density.exp()  # the uniform law on (0, 2)
        (tensor([[2.]]), tensor([0.5000]))
    """

    x: Float[Tensor, " n d"]
    """The images $f(z)$."""
    log_density: Float[Tensor, " n"]
    r"""The logarithm $\log p_X$ of the density there."""

    __repr__ = one_line


def pushforward_density(
    log_density: Callable[[Tensor], Tensor],
    f: Callable[[Tensor], Tensor],
    z: Float[Tensor, " n d"],
) -> Pushforward:
    r"""The density of $x = f(z)$ at the images of given points.

    Args:
        log_density: $\log p_Z$, which takes n points at once.
        f: The map from $\mathbb R^d$ to $\mathbb R^d$, one-to-one; it is called with one point, of
            shape `(d,)`.
        z: Points at which to evaluate; for a density at given $x$ hand in $f^{-1}(x)$.

    Returns:
        The images $x = f(z)$ and $\log p_X$ there, differentiable by `z` and all that `f` uses.

    Raises:
        ValueError: If the shapes do not fit, or the Jacobian is singular or not finite somewhere.

    References:
        Rezende and Mohamed, Variational inference with normalizing flows, ICML, 2015.

    Example:
        >>> normal = torch.distributions.Normal(0.0, 1.0)
        >>> z = torch.tensor([[0.0], [1.0]])
        >>> x, log_p = pushforward_density(lambda z: normal.log_prob(z)[:, 0], torch.exp, z)
        >>> torch.allclose(log_p, torch.distributions.LogNormal(0.0, 1.0).log_prob(x)[:, 0])
        True
    """
    n, d = floats("z", z, ndim=2).shape

    def image(point: Tensor) -> tuple[Tensor, Tensor]:
        x = f(point)
        if x.shape != (d,):
            raise ValueError(f"f must map shape ({d},) to itself, got shape {tuple(x.shape)}")
        return x, x

    jacobian, x = torch.func.vmap(torch.func.jacrev(image, has_aux=True))(z)
    log_p = log_density(z)
    if log_p.shape != (n,):
        raise ValueError(f"log_density must give shape ({n},), got shape {tuple(log_p.shape)}")
    log_det = torch.linalg.slogdet(jacobian).logabsdet
    if not log_det.isfinite().all():
        row = int((~log_det.isfinite()).nonzero()[0])
        raise ValueError(
            f"f must have an invertible Jacobian, got log |det| {log_det[row].item()} at row {row}"
        )
    return Pushforward(x, log_p - log_det)
