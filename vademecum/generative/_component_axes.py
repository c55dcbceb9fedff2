r"""The components of a Gaussian mixture: their covariances along their own axes, and who is whose.

$\Sigma_k = U_k \Lambda_k U_k^\top$ by one symmetric eigenproblem in double precision; none where
covariances are numbers or diagonals. Exact up to rounding.
"""

from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import floats, symmetric

__all__ = ["labels", "spectrum"]


def spectrum(
    means: Tensor, shape: tuple[int, ...], covariances: Any
) -> tuple[Tensor, Tensor | None]:
    """The variances along the axes of every component, and these axes where they are turned."""
    k, d = means.shape
    given = floats("covariances", covariances)
    if given.shape == (k,):
        spread, turn = given[:, None].expand(k, d), None
    elif given.shape in ((k, *shape), (k, d)):
        spread, turn = given.reshape(k, d), None
    elif given.shape == (k, d, d):
        spread, turn = torch.linalg.eigh(symmetric("covariances", given).double())
    else:
        raise ValueError(
            f"covariances must be ({k},), ({k}, {d}) or ({k}, {d}, {d}) for these means, got"
            f" {tuple(given.shape)}"
        )
    floor = 0.0 if turn is None else d * torch.finfo(given.dtype).eps * spread.amax(1).clamp(min=0)
    if not (spread.amin(1) > floor).all():
        raise ValueError(
            "covariances must be positive definite, got an eigenvalue of"
            f" {spread.amin().item():.3g} in component {int(spread.amin(1).argmin())}"
        )
    return spread.to(means).contiguous(), turn


def labels(context: Tensor, n: int, k: int) -> Tensor:
    """The components that examples are said to come from, -1 where that is not known."""
    if context.shape != (n,) or context.is_floating_point():
        raise ValueError(
            f"context must be {n} integers, one for each example, got {context.dtype} of shape"
            f" {tuple(context.shape)}"
        )
    if context.device.type == "cpu" and len(context) and int(context.max()) >= k:
        raise ValueError(f"context must be below {k}, the components, got {int(context.max())}")
    return context
