r"""Trace and diagonal of an operator from its products with random vectors.

For a random $\omega$ with $\mathbb{E}[\omega \omega^H] = I$, Hutchinson's $\omega^H A \omega$ has
the mean $\operatorname{tr} A$; with random signs and real symmetric $A$ its variance is
$2 \sum_{i \ne j} A_{ij}^2$, which $m$ probes divide by $m$. Splitting off a subspace,

$$\operatorname{tr} A = \operatorname{tr}(Q^H A Q)
+ \operatorname{tr}\big((I - Q Q^H) A (I - Q Q^H)\big),$$

leaves less to chance if $Q$ holds the large eigenvectors. **Hutch++** takes an orthonormal basis
$Q$ of $A S$ for $m / 3$ random signs $S$ and estimates the second term from $m / 3$ others.
**XTrace** uses every vector twice: with $Y = A \Omega = Q R$ for $m / 2$ Gaussian columns
$\omega_i$, the basis $Q_{(i)}$ of the columns of $Y$ other than the $i$-th is independent of
$\omega_i$, so that each

$$t_i = \operatorname{tr}(Q_{(i)}^H A Q_{(i)})
+ \frac{n - m/2 + 1}{\|x_i\|^2}\, x_i^H A x_i, \qquad
x_i = (I - Q_{(i)} Q_{(i)}^H)\, \omega_i,$$

is unbiased, and so is their mean. With $s_i$ the unit vector along column $i$ of $R^{-H}$,
$Q_{(i)} Q_{(i)}^H = Q (I - s_i s_i^H) Q^H$: all of it takes $m$ products and small matrices.

The diagonal is the mean of $\omega \odot A \omega$ over random signs. All estimates are unbiased,
and exact if $n$ products are allowed; with Hutch++ and XTrace also if $Q$ covers the rank of
$A$. The standard errors are those of the sample, for XTrace of the exchangeable $t_i$ taken as if
they were independent. The claim is `hutchinson_variance`.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from vademecum.arguments import choice, whole
from vademecum.foundations._probes import random_block, square_operator, watched
from vademecum.foundations.operators import LinearOperator
from vademecum.results import one_line

__all__ = ["ProbeEstimate", "diagonal", "mean_and_error", "trace"]


class ProbeEstimate(NamedTuple):
    """What random probes say.

    Example:
        >>> trace(torch.eye(2))
        ProbeEstimate(value=tensor(2.), standard_error=tensor(0.), applications=2)
    """

    value: Inexact[Tensor, " *n"]
    """The estimate."""
    standard_error: Float[Tensor, " *n"]
    """Its standard error over the probes; 0 where it is exact."""
    applications: int
    """The number of vectors that the operator was applied to."""

    __repr__ = one_line


def trace(
    op: Any,
    *,
    applications: int = 64,
    method: str = "xtrace",
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> ProbeEstimate:
    r"""The trace of a square operator, estimated without bias.

    Args:
        op: The operator, or anything that `aslinearoperator` takes.
        applications: The most vectors to apply it to, in one or two blocks. From $n$ on, the
            trace is computed as it stands.
        method: "xtrace", "hutch++", or "hutchinson". The first two win where the spectrum decays,
            and lose nothing much where it does not.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error. Products are then
            taken sixteen at a time.

    Raises:
        ValueError: If the operator is not square, gives numbers that are not finite, or, unless the
            method is "hutchinson" or all of it is computed, is in half precision.

    References:
        Hutchinson, A stochastic estimator of the trace of the influence matrix for Laplacian
        smoothing splines, Communications in Statistics 19, 1990. Meyer, Musco, Musco and Woodruff,
        Hutch++: optimal stochastic trace estimation, SOSA, 2021. Epperly, Tropp and Webber, XTrace:
        making the most of every sample in stochastic trace estimation, SIAM Journal on Matrix
        Analysis and Applications 45, 2024.

    Example:
        >>> ones = torch.ones(1000, 1)  # of rank one, so that two products would do
        >>> A = LinearOperator((1000, 1000), lambda x: ones @ (ones.T @ x))
        >>> trace(A, applications=4).value.round()
        tensor(1000.)
    """
    op = square_operator("op", op)
    estimator, least = _METHODS[choice("method", method, tuple(_METHODS))]
    whole("applications", applications, low=min(least, op.shape[0]))
    with watched(op, min(applications, op.shape[0]), progress=progress) as op:
        if applications >= op.shape[0]:
            value = op.dense().detach().diagonal().sum()
            return ProbeEstimate(value, torch.zeros_like(value.abs()), op.shape[0])
        op = square_operator("op", op, half=method == "hutchinson")
        return estimator(op, applications, generator)


def diagonal(
    op: Any,
    *,
    applications: int = 64,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> ProbeEstimate:
    r"""The diagonal of a square operator, estimated without bias, entry by entry.

    Args:
        op: The operator, or anything that `aslinearoperator` takes.
        applications: The number of vectors to apply it to, in one block. From $n$ on, the diagonal
            is computed as it stands.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error. Products are then
            taken sixteen at a time.

    References:
        Bekas, Kokiopoulou and Saad, An estimator for the diagonal of a matrix, Applied Numerical
        Mathematics 57, 2007.

    Example:
        >>> diagonal(torch.diag(torch.tensor([1.0, 2.0, 3.0])), applications=2).value
        tensor([1., 2., 3.])
    """
    op = square_operator("op", op)
    whole("applications", applications, low=min(2, op.shape[0]))
    with watched(op, min(applications, op.shape[0]), progress=progress) as op:
        if applications >= op.shape[0]:
            value = op.dense().detach().diagonal().clone()
            return ProbeEstimate(value, torch.zeros_like(value.abs()), op.shape[0])
        omega = random_block(op, applications, generator, signs=True)
        return _mean(omega * _apply(op, omega), applications)


def _mean(samples: Tensor, applications: int, shift: Tensor | float = 0.0) -> ProbeEstimate:
    mean, error = mean_and_error(samples)
    return ProbeEstimate(mean + shift, error, applications)


def mean_and_error(samples: Inexact[Tensor, " ... m"]) -> tuple[Tensor, Tensor]:
    """Mean and standard error over the last axis, of numbers whose squares may overflow.

    Example:
        >>> mean_and_error(torch.tensor([1e30, 3e30]))
        (tensor(2.0000e+30), tensor(1.0000e+30))
    """
    scale = samples.abs().amax(-1, keepdim=True)
    scale = torch.where(scale > 0, scale, 1)
    error = scale[..., 0] * (samples / scale).std(-1) / samples.shape[-1] ** 0.5
    return samples.mean(-1), error


def _apply(op: LinearOperator, x: Tensor) -> Tensor:
    y = (op @ x).detach()
    if not torch.isfinite(y).all():
        raise ValueError("op must return finite numbers, got others")
    return y


def _inner(x: Tensor, y: Tensor) -> Tensor:
    """The inner products of columns."""
    return (x.conj() * y).sum(0)


def _hutchinson(op: LinearOperator, m: int, generator: torch.Generator | None) -> ProbeEstimate:
    omega = random_block(op, m, generator, signs=True)
    return _mean(_inner(omega, _apply(op, omega)), m)


def _hutch_plus_plus(
    op: LinearOperator, applications: int, generator: torch.Generator | None
) -> ProbeEstimate:
    m = applications // 3
    S, G = random_block(op, 2 * m, generator, signs=True).split(m, 1)
    Q = torch.linalg.qr(_apply(op, S)).Q
    G = G - Q @ (Q.mH @ G)
    AQ, AG = _apply(op, torch.cat([Q, G], 1)).split(m, 1)
    return _mean(_inner(G, AG), 3 * m, shift=_inner(Q, AQ).sum())


def _xtrace(
    op: LinearOperator, applications: int, generator: torch.Generator | None
) -> ProbeEstimate:
    n, m = op.shape[0], applications // 2
    omega = random_block(op, m, generator)
    Q, R = torch.linalg.qr(_apply(op, omega))
    Z = _apply(op, Q)
    H, W = Q.mH @ Z, Q.mH @ omega
    S = _left_out(R)
    G = W - S * _inner(S, W)  # x = omega - Q G
    form = _inner(W, R) - _inner(Z.mH @ omega, G) - _inner(G, R) + _inner(G, H @ G)
    norms = omega.norm(dim=0) ** 2 - G.norm(dim=0) ** 2
    return _mean(H.trace() - _inner(S, H @ S) + (n - m + 1) / norms * form, 2 * m)


def _left_out(R: Tensor) -> Tensor:
    """In column i, the unit vector that is orthogonal to all columns of R but the i-th.

    These are the normalised columns of the inverse adjoint. Where R is singular, singular values
    put at the rounding error give vectors that are orthogonal up to that.
    """
    U, sigma, Vh = torch.linalg.svd(R)
    sigma = sigma / torch.where(sigma[0] > 0, sigma[0], 1)
    S = U @ (Vh / sigma.clamp(min=torch.finfo(sigma.dtype).eps)[:, None])
    return S / S.norm(dim=0)


_METHODS = {
    "xtrace": (_xtrace, 4),
    "hutch++": (_hutch_plus_plus, 6),
    "hutchinson": (_hutchinson, 2),
}
