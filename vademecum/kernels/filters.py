r"""What part of a target is learned: a function of the eigenvalues $\lambda$ of the kernel matrix.

With $K = \sum_i \lambda_i u_i u_i^\top$ each method that learns $y$ from $f = 0$ with squared loss
$\frac12 \|f - y\|^2$ arrives at $f = \sum_i \varphi(\lambda_i)\, u_i u_i^\top y$:

| method | $\varphi(\lambda)$ |
|---|---|
| gradient flow $\dot f = K (y - f)$ for a time t | $1 - e^{-\lambda t}$ |
| gradient descent, T steps of size $\eta$ | $1 - (1 - \eta \lambda)^T$ |
| ridge $\alpha$ | $\lambda / (\lambda + \alpha)$ |

For the *mean* squared error over n examples $\frac{1}{2n} \|f - y\|^2$ take $t / n$, $\eta / n$ and
$n \alpha$. Without a limit ($t = \infty$, $\alpha = 0$) all is learned that the kernel can express:
$\varphi = 1$ where $\lambda > 0$. Exact to rounding, also for tiny $\lambda t$. Checked by the
claim `kernels.ridgeless_limit_of_flow`.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number, whole

__all__ = ["spectral_filter"]


def spectral_filter(
    eigenvalues: Float[Tensor, " *n"],
    *,
    t: float | Tensor | None = None,
    alpha: float | Tensor | None = None,
    eta: float | None = None,
    T: int | None = None,
) -> Float[Tensor, " *m"]:
    r"""The share $\varphi(\lambda)$ of each eigendirection of the target that has been learned.

    Args:
        eigenvalues: Those of the kernel matrix, at least 0; what rounding put below counts as 0.
        t: The time of gradient flow, up to `math.inf`; a tensor broadcasts with the eigenvalues.
        alpha: The ridge, at least 0; a tensor broadcasts with the eigenvalues.
        eta: The step size of gradient descent, with `T`. Beyond $2 / \lambda$ it diverges.
        T: The number of its steps.

    Raises:
        ValueError: If not exactly one method is given, or an eigenvalue is negative.

    Example:
        >>> eigenvalues = torch.tensor([0.0, 1.0, 3.0])
        >>> spectral_filter(eigenvalues, alpha=1.0), spectral_filter(eigenvalues, t=math.inf)
        (tensor([0.0000, 0.5000, 0.7500]), tensor([0., 1., 1.]))
        >>> spectral_filter(eigenvalues, eta=0.5, T=2)
        tensor([0.0000, 0.7500, 0.7500])
    """
    lam = _spectrum(eigenvalues)
    given = [t is not None, alpha is not None, eta is not None or T is not None]
    if sum(given) != 1:
        raise ValueError(f"one of t, alpha, or eta with T must be given, got {sum(given)} of them")
    if t is not None:
        t = _at_least_0("t", t, lam, infinite=True)
        return torch.where(lam > 0, -torch.expm1(-lam * t), 0)
    if alpha is not None:
        alpha = _at_least_0("alpha", alpha, lam)
        return torch.where(lam > 0, lam / (lam + alpha), 0)
    if eta is None or T is None:
        raise ValueError("eta and T must be given together, got only one of them")
    return _steps(lam, number("eta", eta, above=0), whole("T", T, low=0))


def _steps(lam: Tensor, eta: float, T: int) -> Tensor:
    left = 1 - eta * lam
    small = eta * lam < 0.5  # else the power loses no digits
    power = torch.where(small, 0, left) ** T
    found = torch.where(
        small, -torch.expm1(T * torch.log1p(-eta * lam.clamp(max=0.5 / eta))), 1 - power
    )
    if not bool(torch.isfinite(found).all()):
        raise ValueError(
            f"eta must be at most 2 / {lam.max().item():.4g}, or {T} steps of descent leave the"
            f" range of {lam.dtype}, got {eta}"
        )
    return found


def _spectrum(eigenvalues: Tensor) -> Tensor:
    lam = floats("eigenvalues", eigenvalues)
    if lam.is_complex():
        raise ValueError(f"eigenvalues must be real, got {lam.dtype}")
    least, most = (m.item() for m in torch.aminmax(lam))
    if least < -100 * lam.numel() * torch.finfo(lam.dtype).eps * max(most, -least * 1e-6):
        raise ValueError(f"eigenvalues must be >= 0, got {least:.6g}")
    return lam.clamp(min=0)


def _at_least_0(
    name: str, value: float | Tensor, like: Tensor, *, infinite: bool = False
) -> float | Tensor:
    if not isinstance(value, Tensor):
        return number(name, value, low=0, infinite=infinite)
    least = float(value.amin()) if value.numel() else math.nan
    if not least >= 0 or (not infinite and not bool(torch.isfinite(value).all())):
        raise ValueError(f"{name} must be >= 0{'' if infinite else ' and finite'}, got {least}")
    return value.to(like)
