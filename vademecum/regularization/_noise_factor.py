r"""The size of noise: a standard deviation, or a factor $L$ of its covariance, $\Sigma = L L^\top$.

$L = Q \operatorname{diag}(\sqrt{\lambda})$ from the eigenvectors of $\Sigma$, which may be
singular, as Cholesky's factor may not.
"""

import torch
from torch import Tensor

from vademecum.arguments import number, symmetric

__all__ = ["noise_factor"]


def noise_factor(std: float | None, covariance: Tensor | None) -> float | Tensor:
    """The standard deviation that was given, or a factor of the covariance.

    Raises:
        ValueError: If there is none or both, or it is no such thing.

    Example:
        >>> L = noise_factor(None, torch.tensor([[1.0, 1.0], [1.0, 1.0]]))
        >>> (L @ L.T).round(decimals=4)
        tensor([[1., 1.], [1., 1.]])
    """
    if (std is None) == (covariance is None):
        given = "none" if std is None else "both"
        raise ValueError(f"one of std and covariance must be given, got {given}")
    if std is not None:
        return float(number("std", std, low=0))
    covariance = symmetric("covariance", covariance)
    if covariance.ndim != 2:
        raise ValueError(f"covariance must have 2 axes, got shape {tuple(covariance.shape)}")
    wide = covariance.detach().double()
    values, Q = torch.linalg.eigh(wide)
    rounding = len(wide) * torch.finfo(covariance.dtype).eps * float(values.abs().max())
    if values[0] < -rounding:
        raise ValueError(
            f"covariance must be positive semidefinite, got the eigenvalue {values[0].item():.3g}"
        )
    return (Q * values.clamp(min=0).sqrt()).to(covariance.dtype)
