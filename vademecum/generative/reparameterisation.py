r"""Draws of a Gaussian as a differentiable function of its parameters.

$$z = \mu + \Sigma^{1/2} \eta, \qquad \eta \sim \mathcal N(0, I), \qquad
\Sigma^{1/2} (\Sigma^{1/2})^\top = \Sigma,$$

has the law $\mathcal N(\mu, \Sigma)$ for every root, that of Cholesky or the symmetric one; for a
diagonal covariance $z = \mu + \sigma \odot \eta$. The noise does not depend on the parameters, so
gradients pass through the draw. The draws are exact; the claims are `reparameterisation` and
`pathwise_gradient`.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from vademecum.arguments import choice, floats, symmetric, whole
from vademecum.randomness import source

__all__ = ["reparameterize"]


def reparameterize(
    mean: Float[Tensor, " *shape"],
    log_variance: Float[Tensor, " *shape"] | None = None,
    *,
    covariance: Float[Tensor, " *batch d d"] | None = None,
    root: Literal["cholesky", "symmetric"] = "cholesky",
    n: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draw from a Gaussian so that gradients reach its mean and its covariance.

    Args:
        mean: The mean $\mu$; leading axes are batches.
        log_variance: The logarithms of the variances, of the mean's shape, for independent
            coordinates.
        covariance: The covariance $\Sigma$ in their place, positive definite; or semidefinite for
            the symmetric root, which has no gradient there.
        root: Which root of the covariance multiplies the noise.
        n: How many draws, along a new first axis; one without that axis by default.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If not just one of `log_variance` and `covariance` is given, shapes do not fit,
            or the covariance has no such root.

    Example:
        >>> mean = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> z = reparameterize(mean, torch.tensor([-1000.0, -1000.0]))  # no noise is left
        >>> z.tolist(), torch.autograd.grad(z.square().sum(), mean)[0].tolist()
        ([1.0, 2.0], [2.0, 4.0])
    """
    if (log_variance is None) == (covariance is None):
        given = "both" if covariance is not None else "neither"
        raise ValueError(f"log_variance or covariance must be given, got {given}")
    if not mean.is_floating_point():
        raise ValueError(f"mean must be floating point, got {mean.dtype}")
    size = () if n is None else (whole("n", n, low=1),)
    noise = torch.randn((*size, *mean.shape), dtype=mean.dtype, **source(generator, mean.device))
    noise = noise.to(mean.device)
    if log_variance is not None:
        if log_variance.shape != mean.shape:  # or one would broadcast to the other
            raise ValueError(
                f"log_variance must have the shape of the mean, {tuple(mean.shape)}, got"
                f" {tuple(log_variance.shape)}"
            )
        return torch.addcmul(mean, (log_variance / 2).exp(), noise)
    assert covariance is not None
    if covariance.shape != (*mean.shape, *mean.shape[-1:]):
        raise ValueError(
            f"covariance must have shape {(*mean.shape, *mean.shape[-1:])}, got"
            f" {tuple(covariance.shape)}"
        )
    half = _root(covariance, choice("root", root, ("cholesky", "symmetric")))
    return mean + (half @ noise[..., None])[..., 0]


def _root(covariance: Tensor, kind: str) -> Tensor:
    symmetric("covariance", floats("covariance", covariance))
    if kind == "cholesky":
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if bool(failed.any()):
            raise ValueError("covariance must be positive definite for the root of Cholesky")
        return factor
    return _SymmetricRoot.apply(covariance)


class _SymmetricRoot(Function):
    r"""The root $R$ with $R R = \Sigma$, whose gradient $X$ solves $R X + X R = G$.

    The derivative of eigenvectors, which autograd would take, has no value where eigenvalues are
    equal; that of the root has.
    """

    @staticmethod
    def forward(ctx: Any, covariance: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(covariance)
        least, most = float(values.amin()), float(values.abs().amax())
        if least < -covariance.shape[-1] * torch.finfo(covariance.dtype).eps * most:
            raise ValueError(
                f"covariance must be positive semidefinite, got the eigenvalue {least:.3g}"
            )
        half = values.clamp(min=0).sqrt()
        ctx.save_for_backward(half, vectors)
        return (vectors * half[..., None, :]) @ vectors.mT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        half, vectors = ctx.saved_tensors
        inside = vectors.mT @ gradients[0] @ vectors
        inside = inside / (half[..., :, None] + half[..., None, :])
        found = vectors @ inside @ vectors.mT
        return (found + found.mT) / 2
