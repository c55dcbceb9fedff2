r"""What rounding did to the solution of $(K + D) \alpha = Y$, measured and not bounded.

With the residual $r = Y - (K + D) \alpha$ taken in double precision the coefficients are off by
$\delta = (K + D)^{-1} r$, and the prediction $f(x) = k(x)^\top \alpha$ by $k(x)^\top \delta$, which
is looked at at inputs and at midpoints of inputs. The decomposition that gave $\alpha$ makes
$\delta$ too small where it is bad, so that $r$ itself is compared with $f$ as well; and since
$|k(x)^\top \delta| \le \|r\| \sqrt{k(x, x) / \min D}$, often it is enough. What jitter did
counts. From one per cent on there is a warning that names an estimate of the condition number. A
function that is no `Kernel` is asked in the precision of the inputs: its own rounding is not seen.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.estimators import warn_outside
from vademecum.kernels._covariance import between, row_portions
from vademecum.kernels._factor import Factor
from vademecum.kernels._kernel import Kernel

__all__ = ["Rounding", "Wide", "rough", "rounding"]

_PROBES = 256  # inputs, and as many midpoints, where predictions are looked at
_TOLERATED = 0.01  # share of the answer that rounding may be, without a warning


def rough(kernel: Any, noise: float, x: Tensor) -> bool:
    r"""Whether rounding of a matrix in less than double precision may reach the noise in it.

    Errors of $\varepsilon \bar k$ in all entries move eigenvalues by some $\varepsilon \sqrt n\,
    \bar k$, where $\bar k$ is the mean variance; the least eigenvalues are those of the noise.
    """
    if x.dtype == torch.float64 or not isinstance(kernel, Kernel):
        return False
    size = float(kernel.diagonal(x).double().mean()) * len(x) ** 0.5
    return torch.finfo(x.dtype).eps * size > _TOLERATED * noise**2


class Rounding(NamedTuple):
    """How well the equations were solved."""

    residual: float
    r"""The largest $\|r\| / \|y\|$ of a target."""
    share: float
    """The share of the predictions that rounding is."""


class Wide(NamedTuple):
    """What the kernel says in double precision."""

    product: Float[Tensor, " n t"]
    """The product of its matrix with the coefficients."""
    probes: Float[Tensor, " m n"]
    """Its rows where predictions are looked at."""

    @classmethod
    def of(
        cls,
        kernel: Any,
        x: Tensor,
        alpha: Float[Tensor, " n t"],
        K: Tensor | None = None,
        *,
        memory: int | None = None,
    ) -> "Wide":
        """For a kernel at inputs, and at midpoints of neighbours in the order given.

        Where its matrix in double precision is known, it is not computed again; elsewhere portions
        keep to a quarter of the memory, beside the decomposition.
        """
        wide = x.double() if isinstance(kernel, Kernel) else x
        if K is not None and K.dtype == torch.float64:
            parts = [K @ alpha]
        else:
            parts = [
                between(kernel, wide[rows], wide).double() @ alpha.double()
                for rows in row_portions(len(x), len(x), wide, memory and memory // 4)
            ]
        few = _PROBES if memory is None else memory // (4 * 2 * 3 * 8 * len(x))  # 3 matrices each
        few = max(1, min(_PROBES, few))
        some = wide[:: max(1, len(x) // few)][:few]
        points = torch.cat([some, (some + some.roll(1, 0)) / 2])
        return cls(torch.cat(parts), between(kernel, points, wide).double())


def rounding(
    factor: Factor,
    alpha: Float[Tensor, " n t"],
    y: Float[Tensor, " n t"],
    *,
    wide: Wide,
    diagonal: float | Tensor,
    matrix: Callable[[], Tensor],
    name: str,
) -> Rounding:
    """Measure what rounding did to coefficients, and warn if that is much.

    Args:
        factor: The decomposition they come from.
        alpha: The coefficients.
        y: The targets.
        wide: What the kernel says in double precision.
        diagonal: What was added to the diagonal of its matrix.
        matrix: Gives the matrix, for its condition number.
        name: What the user could give more of.
    """
    added = torch.as_tensor(diagonal, dtype=torch.float64).to(wide.product)
    residual = y.double() - wide.product - added.expand(len(y))[:, None] * alpha
    norms = residual.norm(dim=0) / y.double().norm(dim=0).clamp(min=torch.finfo(y.dtype).tiny)
    size = float(wide.product.norm())
    share = float(residual.norm()) / size if size > 0 else 0.0
    reach = float(wide.probes.abs().max()) * len(y)
    if share * reach**0.5 >= _TOLERATED * float(added.min()) ** 0.5 and size > 0:
        moved = wide.probes @ factor.solve(residual.to(y.dtype)).double()
        values = wide.probes @ alpha.double()
        share = max(share, float(moved.norm() / values.norm()) if values.any() else 0.0)
    if share >= _TOLERATED:
        K = matrix().clone()
        K.diagonal().add_((added + factor.jitter).to(K))
        better = "" if y.dtype == torch.float64 else ", or double precision"
        warn_outside(
            f"rounding in {y.dtype} is about {share:.1%} of the predictions: the matrix of"
            f" {len(y)} inputs has an estimated condition number of {factor.condition(K):.2g};"
            f" take more {name}{better}",
            RuntimeWarning,
        )
    return Rounding(float(norms.max()), share)
