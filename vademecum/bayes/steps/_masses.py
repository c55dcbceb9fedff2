r"""The mass matrix $M$ of a momentum $y \sim \mathcal N(0, M)$, held by its inverse.

The best mass is the inverse covariance of the target, so what chains adapt, and what the dynamics
need, is $M^{-1}$: as a number, a diagonal, or a matrix with its factor $L L^\top = M^{-1}$.
Then $L^{-\top} \epsilon$ has the covariance $M$, and $L \epsilon$ the covariance $M^{-1}$.
"""

from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import floats, number, symmetric
from vademecum.randomness import source

__all__ = ["Mass", "as_mass", "moved", "normal"]


def normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers in the shape, dtype and place of a tensor."""
    drawn = torch.randn(like.shape, dtype=like.dtype, **source(generator, like.device))
    return drawn.to(like.device)


class Mass:
    """A mass matrix, given by its inverse: a number, a diagonal (P,), or a matrix (P, P)."""

    def __init__(self, inverse: float | Tensor):
        self.inverse = inverse
        self.dense = isinstance(inverse, Tensor) and inverse.ndim == 2
        if self.dense:
            self._root = torch.linalg.cholesky(inverse)
        else:
            self._root = inverse**0.5

    @property
    def matrix(self) -> float | Tensor:
        """The mass itself, in the form of its inverse."""
        if self.dense:
            return torch.cholesky_inverse(self._root)
        return 1 / self.inverse

    def velocity(self, momentum: Tensor) -> Tensor:
        """The momentum over the mass."""
        if self.dense:
            return momentum @ self.inverse
        return momentum if _is_one(self.inverse) else momentum * self.inverse

    def drift(self, theta: Tensor, momentum: Tensor, eta: float | Tensor) -> Tensor:
        """Positions after a time with these momenta."""
        if isinstance(self.inverse, Tensor) and not self.dense and not isinstance(eta, Tensor):
            return torch.addcmul(theta, momentum, self.inverse, value=eta)
        return moved(theta, self.velocity(momentum), eta)

    def kinetic(self, momentum: Tensor) -> Tensor:
        r"""The kinetic energy $\frac12 y^\top M^{-1} y$ of each row."""
        return 0.5 * (momentum * self.velocity(momentum)).sum(-1)

    def squared(self, displacement: Tensor) -> Tensor:
        r"""The form $d^\top M d$ of each row."""
        if self.dense:
            white = torch.linalg.solve_triangular(self._root, displacement.mT, upper=False)
            return white.square().sum(0)
        return displacement.square().div(self.inverse).sum(-1)

    def momentum(self, like: Tensor, generator: torch.Generator | None) -> Tensor:
        """A momentum for each row, of covariance M."""
        drawn = normal(like, generator)
        if self.dense:
            return torch.linalg.solve_triangular(self._root.mT, drawn.mT, upper=True).mT
        return drawn if _is_one(self._root) else drawn / self._root

    def noise(self, like: Tensor, generator: torch.Generator | None) -> Tensor:
        """A vector for each row whose covariance is the inverse of M."""
        drawn = normal(like, generator)
        if self.dense:
            return drawn @ self._root.mT
        return drawn if _is_one(self._root) else drawn * self._root


def moved(x: Tensor, along: Tensor, eta: float | Tensor) -> Tensor:
    """The sum of x and eta times a direction; eta is one number, or one for each row, (rows, 1)."""
    return x + eta * along if isinstance(eta, Tensor) else torch.add(x, along, alpha=eta)


def as_mass(mass: Any, like: Tensor) -> Mass:
    """A mass as an argument: None is 1, else a number, a diagonal, a matrix, or a `Mass`."""
    if isinstance(mass, Mass):
        return mass
    if mass is None:
        return Mass(1.0)
    if not isinstance(mass, Tensor) or mass.ndim == 0:
        value = mass.item() if isinstance(mass, Tensor) else mass
        return Mass(1 / number("mass", value, above=0))
    P = like.shape[-1]
    if mass.shape not in ((P,), (P, P)):
        raise ValueError(
            f"mass must be a number or have shape ({P},) or ({P}, {P}), got {tuple(mass.shape)}"
        )
    mass = floats("mass", mass).to(like)
    if mass.ndim == 1:
        if not bool((mass > 0).all()):
            raise ValueError(f"entries of mass must be > 0, got {mass.min().item()}")
        return Mass(1 / mass)
    factor, info = torch.linalg.cholesky_ex(symmetric("mass", mass))
    if int(info):
        raise ValueError("mass must be positive definite, and it is not")
    return Mass(torch.cholesky_inverse(factor))


def _is_one(value: float | Tensor) -> bool:
    return not isinstance(value, Tensor) and value == 1
