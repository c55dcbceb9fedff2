r"""Curvature matrices $G = Q \operatorname{diag}(\lambda) Q^\top$ in the coordinates of $Q$.

With a prior of scale $\sigma$ the precision of Laplace's approximation is $G + I / \sigma^2$, whose
eigenvalues are $\lambda + \sigma^{-2}$: determinants, variances and draws for any prior need no
more than $\lambda$ and products with $Q$. A Kronecker product $B \otimes A$ of a layer has $Q = Q_B
\otimes Q_A$ and is never written out:

$$(Q_B \otimes Q_A)^\top \operatorname{vec} W = \operatorname{vec}(Q_B^\top W Q_A).$$
"""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "Curvature", "DenseCurvature", "DiagonalCurvature", "LayerBlock", "LayerCurvatures",
    "factorised",
]  # fmt: skip


def factorised(M: Tensor) -> Tensor:
    """A matrix in a precision that LAPACK knows: single for half."""
    return M.float() if M.dtype in (torch.float16, torch.bfloat16) else M


def _eigh(M: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(factorised(M))
    return values.to(M), vectors.to(M)


class DiagonalCurvature:
    """A diagonal matrix."""

    def __init__(self, values: Tensor):
        self.values = values

    def into(self, v: Tensor) -> Tensor:
        """The vectors themselves."""
        return v

    def back(self, c: Tensor) -> Tensor:
        """The vectors themselves."""
        return c


class DenseCurvature:
    """A matrix that is written out."""

    def __init__(self, matrix: Tensor):
        values, self._vectors = _eigh((matrix + matrix.T) / 2)
        self.values = values.clamp(min=0)  # rounding: curvatures of likelihoods are not negative

    def into(self, v: Tensor) -> Tensor:
        """Coordinates of vectors."""
        return v @ self._vectors

    def back(self, c: Tensor) -> Tensor:
        """Vectors of coordinates."""
        return c @ self._vectors.T


class LayerBlock(NamedTuple):
    r"""The block $B \otimes A$ of a layer, and the places of its rows $(W, b)$ in the vector."""

    B: Tensor
    A: Tensor
    places: Tensor  # (out, in), or (out, in + 1) with a bias
    scale: float = 1.0


class LayerCurvatures:
    """Kronecker products, one for each layer."""

    def __init__(self, blocks: list[LayerBlock]):
        self.places = [block.places for block in blocks]
        self.bases: list[tuple[Tensor, Tensor]] = []
        values = []
        for block in blocks:
            (b, QB), (a, QA) = (_eigh(M) for M in (block.B, block.A))
            self.bases.append((QB, QA))
            values.append(block.scale * b.clamp(min=0)[:, None] * a.clamp(min=0))
        self.tables = values
        self.values = torch.cat([v.flatten() for v in values])

    def into(self, v: Tensor) -> Tensor:
        """Coordinates of vectors, layer by layer."""
        made = []
        for (QB, QA), places in zip(self.bases, self.places, strict=True):
            made.append((QB.T @ v[..., places] @ QA).flatten(-2))
        return torch.cat(made, -1)

    def back(self, c: Tensor) -> Tensor:
        """Vectors of coordinates."""
        found = torch.empty_like(c)
        sizes = [places.numel() for places in self.places]
        parts = c.split(sizes, -1)
        for (QB, QA), places, part in zip(self.bases, self.places, parts, strict=True):
            moved = QB @ part.unflatten(-1, tuple(places.shape)) @ QA.T
            found[..., places.flatten()] = moved.flatten(-2)
        return found


Curvature = DenseCurvature | DiagonalCurvature | LayerCurvatures
"""Eigenvalues `values`; `into` the eigenvectors' coordinates and `back` for vectors (..., P)."""
