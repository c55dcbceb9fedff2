r"""A Gaussian process as it stands, prior or conditioned: its mean and covariance at inputs.

With $A = L L^\top$ and $V = L^{-1} k(x)$ the covariance is $k(x, x') - V^\top V'$. Beyond the
memory allowed, with approximate solutions $s \approx A^{-1} k(x)$ and their residuals $r = k(x) - A
s$, the form $k(x)^\top s + s^\top r \le k(x)^\top A^{-1} k(x)$ is off by the square of the residual
only, and variances are never too small by it. What rounding makes negative is 0.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.kernels._covariance import between, covariance, row_portions, variances
from vademecum.kernels._evidence import DENSE
from vademecum.kernels._factor import Factor
from vademecum.kernels._iterative import System

__all__ = ["Process", "check_options", "draws", "fits", "units"]

_HELD = 12  # blocks of the size of the right-hand sides while conjugate gradients run


def fits(x: Tensor, memory: int | None) -> bool:
    """Whether the matrix of the inputs, and what is made of it, keep to the memory."""
    return memory is None or DENSE * len(x) ** 2 * x.element_size() <= memory


def check_options(estimator: Any) -> None:
    """See to it that the numbers an estimator was given are in range."""
    if estimator.noise is not None:
        number("noise", estimator.noise, low=0)
    whole("restarts", estimator.restarts, low=0)
    whole("max_iter", estimator.max_iter, low=1)
    number("tol", estimator.tol, above=0)
    if estimator.memory is not None:
        whole("memory", estimator.memory, low=1)


def units(y: Float[Tensor, " n t"], normalize: bool) -> tuple[Tensor, Tensor]:
    """What is subtracted from each target, and what it is divided by."""
    if not normalize:
        return torch.zeros_like(y[0]), torch.ones_like(y[0])
    scale = y.double().std(0, correction=0).to(y)
    return y.double().mean(0).to(y), torch.where(scale > 0, scale, torch.ones_like(scale))


def draws(K: Float[Tensor, " m m *t"], normals: Float[Tensor, " m *t s"]) -> Tensor:
    """Normal vectors with the covariance K, for each target; what rounding made negative is 0."""
    several = K.ndim == 3
    K, normals = (K.movedim(-1, 0), normals.movedim(1, 0)) if several else (K, normals)
    lengths, directions = torch.linalg.eigh(K)
    drawn = (directions * lengths.clamp(min=0).sqrt()[..., None, :]) @ normals
    return drawn.movedim(0, 1) if several else drawn


class Process(NamedTuple):
    """A process of mean zero, conditioned if there are coefficients."""

    kernel: Any
    x: Tensor | None = None
    alpha: Float[Tensor, " n t"] | None = None
    factor: Factor | None = None
    system: System | None = None
    tol: float = 1e-4

    def moments(
        self, x: Tensor, *, variance: bool, memory: int | None
    ) -> tuple[Float[Tensor, " m t"], Float[Tensor, " m"] | None]:
        """The mean, and the variances if they are asked for, in portions of inputs."""
        prior = variances(self.kernel, x) if variance else None
        if self.x is None or self.alpha is None:
            return x.new_zeros(len(x), 1), prior
        means, spreads = [], []
        solving = variance and self.system is not None
        share, held = (memory and memory // 4, _HELD) if solving else (memory, 3)
        for rows in row_portions(len(x), len(self.x), x, share, held=held):
            k = between(self.kernel, x[rows], self.x)
            means.append(k @ self.alpha)
            if prior is not None:
                left, right = self._halves(k)
                spreads.append(prior[rows] - (left * right).sum(0))
        spread = torch.cat(spreads).clamp(min=0) if spreads else None
        return torch.cat(means), spread

    def covariances(self, x: Tensor) -> tuple[Float[Tensor, " m t"], Float[Tensor, " m m"]]:
        """The mean and the covariance matrix, symmetric."""
        K = covariance(self.kernel, x)
        if self.x is None or self.alpha is None:
            return torch.zeros_like(K[:, :1]), K
        k = between(self.kernel, x, self.x)
        left, right = self._halves(k)
        K = K - left.T @ right
        K = (K + K.T) / 2
        K.diagonal().clamp_(min=0)
        return k @ self.alpha, K

    def _halves(self, k: Float[Tensor, " m n"]) -> tuple[Tensor, Tensor]:
        """Blocks whose products of columns are what the data explain of the covariances."""
        if self.factor is not None:
            V = self.factor.half(k.T)
            return V, V
        assert self.system is not None
        s = self.system.solve(k.T.contiguous(), tol=self.tol, max_iter=None, progress=False).x
        return s, 2 * k.T - self.system.product(s)
