r"""Kernels of the distance $r = \sqrt{\sum_m (x_m - x_m')^2 / \ell_m^2}$, in lengthscales $\ell$.

| kernel | $k(r)$ | $-k'(r) / r$ |
|---|---|---|
| RBF, Matern of order $\infty$ | $e^{-r^2/2}$ | $e^{-r^2/2}$ |
| Matern of order 1/2 | $e^{-r}$ | $e^{-r} / r$ |
| of order 3/2, $s = \sqrt 3\, r$ | $(1 + s)\, e^{-s}$ | $3\, e^{-s}$ |
| of order 5/2, $s = \sqrt 5\, r$ | $(1 + s + s^2/3)\, e^{-s}$ | $\frac53 (1 + s)\, e^{-s}$ |

With $\gamma = 1 / 2 \ell^2$ the first is $e^{-\gamma \|x - x'\|^2}$. Since $\partial r / \partial
\log \ell_m = -(x_m - x_m')^2 / \ell_m^2 r$, a matrix $W$ of weights needs for its gradients only
$M_{ij} = -W_{ij} k'(r_{ij}) / r_{ij}$ and

$$\sum_{ij} M_{ij} (a_{im} - a_{jm})^2 = \sum_i a_{im}^2 \sum_j (M + M^\top)_{ij}
- 2 \sum_{ij} a_{im} M_{ij} a_{jm}, \qquad a_{im} = x_{im} / \ell_m$$

(or the left side as it stands, where the right one would round too much).

Values are right to $10^{-6}$ in single and $10^{-11}$ in double precision, however far from the
origin the inputs are and however far apart. Checked by the claim `kernels.rbf_kernel`.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from vademecum.kernels._kernel import Kernel, positive, shown
from vademecum.kernels._pairs import FAR, Differences, by_tiles, centred, weighted_squares

__all__ = ["MaternKernel", "RBFKernel"]

_ORDERS = (0.5, 1.5, 2.5, math.inf)


class _Radial(Kernel):
    """A kernel of the distance in lengthscales, one for all features or one for each."""

    lengthscale: float | Tensor

    def _lengthscale(self, value: Any) -> None:
        self.lengthscale = positive("lengthscale", value, vector=True)

    def hyperparameters(self) -> dict[str, float | Tensor]:
        return {"lengthscale": self.lengthscale}

    def _matrix(self, x1: Tensor, x2: Tensor | None) -> Tensor:
        ell = self._fitting(x1)
        inputs = (x1,) if x2 is None else (x1, x2)
        if torch.is_grad_enabled() and any(_requires_grad(t) for t in (*inputs, ell)):
            mode = "donot_use_mm_for_euclid_dist"
            scaled = [a / ell for a in centred(*inputs)]
            r = torch.cdist(scaled[0], scaled[-1], compute_mode=mode)
            return self._smooth(r.clamp(max=FAR**0.5))
        return self._by_tiles(x1, x2, ell, self._shape_)

    @torch.no_grad()
    def _by_tiles(
        self, x1: Tensor, x2: Tensor | None, ell: float | Tensor, shape: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """A function of the squared distances, which may overwrite them."""
        cusp = self._cusp()
        pairs = Differences.of(x1, x2, ell, cusp=cusp)

        def entries(rows: slice, columns: slice, target: Tensor) -> None:
            pairs.entries(rows, columns, target, cusp=cusp)
            if x2 is None and rows.start == columns.start:
                target.diagonal().zero_()
            made = shape(target)
            if made is not target:
                target.copy_(made)

        n2 = len(x1 if x2 is None else x2)
        return by_tiles(len(x1), n2, entries, symmetric=x2 is None, like=x1)

    def _diagonal(self, x: Tensor) -> Tensor:
        self._fitting(x)
        return x.new_ones(len(x))

    @torch.no_grad()
    def _weighted_gradients(self, x: Tensor, weights: Tensor) -> dict[str, Tensor]:
        ell = self._fitting(x)
        if not (isinstance(ell, Tensor) and ell.ndim == 1):
            slopes = self._by_tiles(x, None, ell, self._slope_times_square)
            return {"lengthscale": torch.dot(weights.flatten(), slopes.flatten())}
        M = self._by_tiles(x, None, ell, self._slope).mul_(weights)
        return {"lengthscale": weighted_squares(M, x, ell)}

    def _fitting(self, x: Tensor) -> float | Tensor:
        """The lengthscale, as a number or a tensor like the inputs."""
        if x.ndim != 2:
            raise ValueError(f"x1 must have 2 axes, inputs and features, got {tuple(x.shape)}")
        ell = self.lengthscale
        if not isinstance(ell, Tensor):
            return ell
        if ell.ndim == 1 and len(ell) != x.shape[1]:
            raise ValueError(
                f"lengthscale must have one entry for each of {x.shape[1]} features, got {len(ell)}"
            )
        return ell.to(x)

    def _slope_times_square(self, r2: Tensor) -> Tensor:
        return self._slope(r2) * r2

    @abstractmethod
    def _cusp(self) -> bool:
        """Whether the kernel depends on r near 0, not only on its square."""

    @abstractmethod
    def _shape_(self, r2: Tensor) -> Tensor:
        """The kernel, from squared distances which it may overwrite."""

    @abstractmethod
    def _slope(self, r2: Tensor) -> Tensor:
        """The function -k'(r) / r, from squared distances."""

    @abstractmethod
    def _smooth(self, r: Tensor) -> Tensor:
        """The kernel, from distances through which one can differentiate."""


@final
class RBFKernel(_Radial):
    r"""The Gaussian kernel $e^{-\|x - x'\|^2 / 2 \ell^2}$ (radial basis function).

    Args:
        lengthscale: The distance $\ell$ over which values stay alike; a number, or a vector with
            one for each feature. For $e^{-\gamma \|x - x'\|^2}$ take $(2 \gamma)^{-1/2}$.

    Example:
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> RBFKernel(lengthscale=1.0)(x).log()
        tensor([[ 0., -2.],
                [-2.,  0.]])
    """

    def __init__(self, *, lengthscale: float | Tensor = 1.0):
        self._lengthscale(lengthscale)

    def _at(self, values: dict[str, float | Tensor]) -> Kernel:
        return RBFKernel(lengthscale=values["lengthscale"])

    def _cusp(self) -> bool:
        return False

    def _shape_(self, r2: Tensor) -> Tensor:
        return r2.mul_(-0.5).exp_()

    def _slope(self, r2: Tensor) -> Tensor:
        return (-0.5 * r2).exp_()

    def _smooth(self, r: Tensor) -> Tensor:
        return (-0.5 * r.square()).exp()


@final
class MaternKernel(_Radial):
    r"""The Matern kernel, whose functions have less than $\nu$ derivatives (in the mean square).

    Args:
        nu: The order: 0.5, 1.5, 2.5, or `math.inf` for the Gaussian kernel.
        lengthscale: The distance over which values stay alike; a number, or one for each feature.

    Example:
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> MaternKernel(nu=0.5, lengthscale=1.0)(x).log()
        tensor([[ 0., -2.],
                [-2.,  0.]])
    """

    def __init__(self, *, nu: float = 2.5, lengthscale: float | Tensor = 1.0):
        if isinstance(nu, bool) or nu not in _ORDERS:
            raise ValueError(f"nu must be 0.5, 1.5, 2.5 or inf, got {nu!r}")
        self.nu = float(nu)
        self._lengthscale(lengthscale)

    def _at(self, values: dict[str, float | Tensor]) -> Kernel:
        return MaternKernel(nu=self.nu, lengthscale=values["lengthscale"])

    def _cusp(self) -> bool:
        return self.nu == 0.5

    def _shape_(self, r2: Tensor) -> Tensor:
        if self.nu == math.inf:
            return r2.mul_(-0.5).exp_()
        s = r2.mul_(2 * self.nu).sqrt_()
        decay = torch.exp(-s)
        if self.nu == 0.5:
            return decay
        if self.nu == 1.5:
            return s.add_(1).mul_(decay)
        return torch.addcmul(s, s, s, value=1 / 3).add_(1).mul_(decay)

    def _slope(self, r2: Tensor) -> Tensor:
        if self.nu == math.inf:
            return (-0.5 * r2).exp_()
        s = (2 * self.nu * r2).sqrt_()
        decay = torch.exp(-s)
        if self.nu == 0.5:
            return torch.where(s > 0, decay / s, 0)  # times squared differences, which are 0 there
        if self.nu == 1.5:
            return decay.mul_(3)
        return s.add_(1).mul_(decay).mul_(5 / 3)

    def _smooth(self, r: Tensor) -> Tensor:
        if self.nu == math.inf:
            return (-0.5 * r.square()).exp()
        s = math.sqrt(2 * self.nu) * r
        factor = {0.5: 1.0, 1.5: 1 + s, 2.5: 1 + s + s.square() / 3}[self.nu]
        return factor * (-s).exp()

    def __repr__(self) -> str:
        return f"MaternKernel(nu={self.nu}, lengthscale={shown(self.lengthscale)})"


def _requires_grad(value: float | Tensor) -> bool:
    return isinstance(value, Tensor) and value.requires_grad
