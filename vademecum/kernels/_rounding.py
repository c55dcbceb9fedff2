r"""What rounding did to the solution of $(K + D) \alpha = Y$, measured and not bounded.

With the residual $r = Y - (K + D) \alpha$ taken in double precision the prediction $f = \sum_i
\alpha_i k(\cdot, x_i)$ is off by $\sqrt{r^\top (K + D)^{-1} r}$ in the norm of the kernel (of $k$
plus noise), where it is itself $\sqrt{Y^\top \alpha}$ long. From one per cent on there is a
warning that names an estimate of the condition number. A function that is no `Kernel` is asked in
the precision of the inputs, so that its own rounding is not seen.
"""

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.kernels._covariance import between, row_portions
from vademecum.kernels._factor import Factor
from vademecum.kernels._kernel import Kernel

__all__ = ["Rounding", "rounding", "wide_product"]

_TOLERATED = 0.01  # share of the answer that rounding may be, without a warning


class Rounding(NamedTuple):
    """How well the equations were solved."""

    residual: float
    r"""The largest $\|r\| / \|y\|$ of a target."""
    share: float
    """The share of the answer that rounding is, in the norm of the kernel."""


def wide_product(kernel: Any, x: Tensor, alpha: Float[Tensor, " n t"]) -> Float[Tensor, " n t"]:
    """The product of the kernel's matrix with coefficients, in double precision."""
    wide = x.double() if isinstance(kernel, Kernel) else x
    parts = [
        between(kernel, wide[rows], wide).double() @ alpha.double()
        for rows in row_portions(len(x), len(x), wide, None)
    ]
    return torch.cat(parts)


def rounding(
    factor: Factor,
    alpha: Float[Tensor, " n t"],
    y: Float[Tensor, " n t"],
    *,
    product: Float[Tensor, " n t"],
    diagonal: float | Tensor,
    matrix: Callable[[], Tensor],
    name: str,
) -> Rounding:
    """Measure what rounding did to coefficients, and warn if that is much.

    Args:
        factor: The decomposition they come from.
        alpha: The coefficients.
        y: The targets.
        product: The product of the matrix with them, in double precision.
        diagonal: What was added to its diagonal.
        matrix: Gives the matrix, for its condition number.
        name: What the user could give more of.
    """
    added = torch.as_tensor(diagonal, dtype=torch.float64).to(product) + factor.jitter
    residual = y.double() - product - added.expand(len(y))[:, None] * alpha
    norms = residual.norm(dim=0) / y.double().norm(dim=0).clamp(min=torch.finfo(y.dtype).tiny)
    wrong = float(factor.half(residual.to(y.dtype)).double().square().sum())
    right = float((y.double() * alpha).sum())
    share = math.sqrt(wrong / right) if right > 0 else 0.0
    if share >= _TOLERATED:
        K = matrix().clone()
        K.diagonal().add_(added.to(K))
        _warn(
            f"rounding in {y.dtype} is about {share:.1%} of the predictions: the matrix of"
            f" {len(y)} inputs has an estimated condition number of {factor.condition(K):.2g};"
            f" take more {name}, or double precision"
        )
    return Rounding(float(norms.max()), share)


def _warn(message: str) -> None:
    """Warn at the line outside of this library that asked for the work."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("vademecum."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level + 1)
