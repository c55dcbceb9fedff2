r"""What weight decay and early stopping leave of a minimum, direction by direction of the Hessian.

Near a minimum $\theta^*$ a loss is $E(\theta^*) + \frac12 (\theta - \theta^*)^\top H (\theta -
\theta^*)$ up to terms of the third order, with $H = Q \Lambda Q^\top \succeq 0$. The minimum of $E
+ \frac\mu2 \|\theta\|^2$ and the iterates of $\theta_{t + 1} = \theta_t - \eta \nabla E(\theta_t)$
are then

$$\theta_\mu = Q \operatorname{diag}\Big(\frac{\lambda_i}{\lambda_i + \mu}\Big) Q^\top \theta^*,
\qquad \theta_t = Q\, \big[D^t\, Q^\top \theta_0 + (I - D^t)\, Q^\top \theta^*\big], \quad D = I -
\eta \Lambda.$$

From $\theta_0 = 0$ both shrink each direction by a factor of its own, and where $\lambda_i \ll
\mu$ and $\eta \lambda_i \ll 1$ the factors agree if $t = 1 / (\eta \mu)$. How much decay is best
the noise tells: of ridge regression with the loss $\frac12 \|X w - y\|^2$, noise of variance
$\sigma^2$ and weights of variance $u^2$, the expected error is least at $\mu = \sigma^2 / u^2$.

Exact up to rounding for quadratics, except for the equivalence of $t$ and $\mu$. The claims are
`spectral_shrinkage`, `gd_closed_form`, `early_stopping_l2` and `optimal_weight_decay`.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import floats, number, symmetric, whole
from vademecum.results import one_line

__all__ = [
    "Shrinkage",
    "equivalent_stopping_time",
    "gd_closed_form",
    "optimal_weight_decay",
    "spectral_shrinkage",
]


class Shrinkage(NamedTuple):
    """What weight decay makes of the minimum of a quadratic.

    Example:
        >>> H = torch.diag(torch.tensor([1.0, 3.0]))
        >>> found = spectral_shrinkage(H, torch.ones(2), decay=1.0)
        >>> found.factors, found.factors.sum()  # of two directions 5/4 are alive
        (tensor([0.5000, 0.7500]), tensor(1.2500))
    """

    theta: Float[Tensor, " d"]
    """The minimum of the quadratic with the penalty."""
    factors: Float[Tensor, " d"]
    r"""What is left of each direction, $\lambda_i / (\lambda_i + \mu)$, flattest first."""
    eigenvalues: Float[Tensor, " d"]
    r"""The curvatures $\lambda_i$ of the directions, increasing."""
    directions: Float[Tensor, " d d"]
    """The directions, one in each column: the eigenvectors $Q$."""

    __repr__ = one_line


def spectral_shrinkage(
    H: Float[Tensor, " d d"], minimum: Float[Tensor, " d"], *, decay: float
) -> Shrinkage:
    r"""What weight decay makes of the minimum of a quadratic, direction by direction.

    It is the minimum of $\frac12 (\theta - \theta^*)^\top H (\theta - \theta^*) + \frac\mu2
    \|\theta\|^2$.

    Args:
        H: The Hessian at the minimum of the loss, symmetric and positive semidefinite.
        minimum: The minimum $\theta^*$ of the loss by itself.
        decay: The weight decay $\mu > 0$.

    Raises:
        ValueError: If the Hessian is not symmetric, or has an eigenvalue below zero.

    Example:
        >>> H = torch.tensor([[2.0, 1.0], [1.0, 2.0]])  # 3 along (1, 1), and 1 along (1, -1)
        >>> spectral_shrinkage(H, torch.tensor([2.0, 0.0]), decay=1.0).theta
        tensor([1.2500, 0.2500])
    """
    number("decay", decay, above=0)
    eigenvalues, Q = _spectrum(H, minimum)
    rounding = len(minimum) * torch.finfo(H.dtype).eps * eigenvalues.abs().max()
    if eigenvalues[0] < -rounding:
        raise ValueError(
            f"H must be positive semidefinite, got the eigenvalue {eigenvalues[0].item():.3g}"
        )
    eigenvalues = eigenvalues.clamp(min=0)
    factors = eigenvalues / (eigenvalues + decay)
    return Shrinkage(Q @ (factors * (Q.T @ minimum)), factors, eigenvalues, Q)


def gd_closed_form(
    H: Float[Tensor, " d d"],
    minimum: Float[Tensor, " d"],
    t: int | Int[Tensor, " *times"],
    *,
    eta: float,
    start: Float[Tensor, " d"] | None = None,
) -> Float[Tensor, " *times d"]:
    r"""Where gradient descent on a quadratic is after $t$ steps, without making them.

    Args:
        H: The Hessian, symmetric; of any sign, so that descent may also diverge.
        minimum: The stationary point $\theta^*$.
        t: How many steps, or a tensor of such numbers.
        eta: The step size $\eta > 0$.
        start: Where it starts; the origin by default.

    Returns:
        The iterate $\theta_t$, or one for each entry of `t`, along the last axis.

    Example:
        >>> H, minimum = torch.tensor([[1.0]]), torch.tensor([8.0])
        >>> gd_closed_form(H, minimum, torch.arange(4), eta=0.5)[:, 0]  # halfway there each time
        tensor([0., 4., 6., 7.])
    """
    number("eta", eta, above=0)
    eigenvalues, Q = _spectrum(H, minimum)
    if start is None:
        start = torch.zeros_like(minimum)
    elif floats("start", start).shape != minimum.shape or start.dtype != H.dtype:
        raise ValueError(
            f"start must be like minimum, {H.dtype} of shape {tuple(minimum.shape)}, got"
            f" {start.dtype} of shape {tuple(start.shape)}"
        )
    kept = (1 - eta * eigenvalues) ** _counts(t).to(H)[..., None]
    return (kept * (start @ Q) + (1 - kept) * (minimum @ Q)) @ Q.T


def equivalent_stopping_time(decay: float, *, eta: float) -> float:
    r"""How many steps of gradient descent from 0 shrink as a weight decay does: $1 / (\eta \mu)$.

    It is an approximation, for directions with $\lambda \ll \mu$ and $\eta \lambda \ll 1$: there
    descent leaves $1 - (1 - \eta \lambda)^t \approx \eta \lambda t$ and decay $\lambda / (\lambda
    + \mu) \approx \lambda / \mu$. At $\lambda = \mu$ it leaves 0.63 and decay 0.5. Since the
    relation is mutual, the decay that corresponds to $t$ steps is `equivalent_stopping_time(t,
    eta=eta)`.

    Args:
        decay: The weight decay $\mu > 0$.
        eta: The step size $\eta > 0$.

    Example:
        >>> equivalent_stopping_time(0.5, eta=0.02)
        100.0
    """
    return 1 / (number("decay", decay, above=0) * number("eta", eta, above=0))


def optimal_weight_decay(
    noise_variance: float, weight_variance: float, *, n: int | None = None
) -> float:
    r"""The weight decay of linear regression with the least expected error, $\sigma^2 / u^2$.

    It is that of the loss $\frac12 \|X w - y\|^2 + \frac\mu2 \|w\|^2$ on average over teachers
    with uncorrelated weights of mean 0, for any inputs $X$: the inverse of the ratio of signal and
    noise. Of the mean $\frac1{2n} \|X w - y\|^2$ over n examples it is $\sigma^2 / (n u^2)$, and of
    `nn.MSELoss`, which has no $\frac12$, twice that.

    Args:
        noise_variance: The variance $\sigma^2$ of the noise of targets.
        weight_variance: The variance $u^2 > 0$ of each of the teacher's weights.
        n: The number of examples where the loss is their mean; None where it is their sum.

    Example:
        >>> optimal_weight_decay(0.5, 2.0), optimal_weight_decay(0.5, 2.0, n=20)
        (0.25, 0.0125)
    """
    noise = number("noise_variance", noise_variance, low=0)
    signal = number("weight_variance", weight_variance, above=0)
    return noise / signal / (1 if n is None else whole("n", n, low=1))


def _spectrum(H: Tensor, minimum: Tensor) -> tuple[Tensor, Tensor]:
    if symmetric("H", H).ndim != 2:
        raise ValueError(f"H must have 2 axes, got shape {tuple(H.shape)}")
    if floats("minimum", minimum, ndim=1, width=len(H)).dtype != H.dtype:
        raise ValueError(f"minimum must be of the dtype of H, {H.dtype}, got {minimum.dtype}")
    if torch.finfo(H.dtype).bits < 32:
        raise ValueError(f"H must be in single or double precision, got {H.dtype}")
    eigenvalues, Q = torch.linalg.eigh(H)
    return eigenvalues, Q


def _counts(t: Any) -> Tensor:
    if not isinstance(t, Tensor):
        return torch.tensor(whole("t", t, low=0))
    if t.is_floating_point() or t.is_complex() or t.dtype == torch.bool:
        raise ValueError(f"t must be an integer, or a tensor of such, got {t.dtype}")
    if t.numel() and t.min() < 0:
        raise ValueError(f"t must be >= 0, got {t.min().item()}")
    return t
