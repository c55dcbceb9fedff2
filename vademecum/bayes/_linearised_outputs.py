r"""Laws of outputs $\mathcal N(f(x), J \Sigma J^\top)$, as covariances or as their factors."""

from collections.abc import Iterable
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arrays import portions
from vademecum.bayes._curvature_blocks import (
    Curvature,
    DiagonalCurvature,
    LayerCurvatures,
    factorised,
)
from vademecum.bayes._network_curvature import along
from vademecum.gradients.network_function import Functional
from vademecum.models import count_examples, map_tensors
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["OutputLaw", "of_last_layer", "of_network"]

_PORTION = 2**28  # bytes of Jacobians at a time where there is no limit


class OutputLaw(NamedTuple):
    r"""Normal laws of outputs, $z = f + Q (s \odot \epsilon)$ with independent $\epsilon$."""

    mean: Float[Tensor, " n k"]
    """The outputs of the network as it is."""
    scale: Tensor
    """The standard deviations s along the columns of Q, (n, k); or Q diag(s) itself, (n, k, k)."""
    basis: Float[Tensor, " k k"] | None
    """The columns Q, the same for all examples; None for the unit vectors."""

    __repr__ = one_line

    @property
    def variance(self) -> Float[Tensor, " n k"]:
        """The variance of each output."""
        if self.scale.ndim == 3:
            return self.scale.square().sum(2)
        along = self.scale.square()
        return along if self.basis is None else along @ self.basis.square().T

    def covariance(self) -> Float[Tensor, " n k k"]:
        """The covariances of each example's outputs, written out."""
        if self.scale.ndim == 3:
            return self.scale @ self.scale.mT
        if self.basis is None:
            return torch.diag_embed(self.scale.square())
        root = self.basis * self.scale[:, None]
        return root @ root.mT

    def sample(
        self, draws: int, *, generator: torch.Generator | None = None
    ) -> Float[Tensor, " draws n k"]:
        """Draw outputs, independently for each example.

        Args:
            draws: How many.
            generator: Where random numbers come from; torch's global generator by default.
        """
        size = (draws, *self.mean.shape)
        drawn = torch.randn(size, dtype=self.mean.dtype, **source(generator, self.mean.device))
        drawn = drawn.to(self.mean)
        if self.scale.ndim == 3:
            return torch.einsum("nkc,snc->snk", self.scale, drawn).add_(self.mean)
        drawn *= self.scale
        return (drawn if self.basis is None else drawn @ self.basis.T).add_(self.mean)


def of_last_layer(
    parts: Iterable[tuple[Tensor, Tensor]], curvature: Curvature, variances: Tensor
) -> OutputLaw:
    """The law for features (n, d) and outputs (n, k) that come in parts."""
    means, scales, basis = [], [], None
    for phi, z in parts:
        k, d = z.shape[1], phi.shape[1]
        if isinstance(curvature, DiagonalCurvature):
            scale = (phi.square() @ variances.view(k, d).T).sqrt()
        elif isinstance(curvature, LayerCurvatures):
            basis, QA = curvature.bases[0]
            scale = ((phi @ QA).square() @ variances.view(k, d).T).sqrt()
        else:
            eye = torch.eye(k, dtype=phi.dtype, device=phi.device)
            rows = (eye[None, :, :, None] * phi[:, None, None]).reshape(len(phi) * k, k * d)
            scale = _root(curvature.into(rows).view(len(phi), k, -1) * variances.sqrt())
        means.append(z)
        scales.append(scale)
    return OutputLaw(torch.cat(means), torch.cat(scales), basis)


def of_network(
    f: Functional, x: Any, curvature: Curvature, variances: Tensor, memory: int | None,
    options: dict[str, Any],
) -> OutputLaw:  # fmt: skip
    """The law from the Jacobian of each example, some examples at a time."""
    n = count_examples(x)
    with torch.no_grad():
        k = f(f.theta, map_tensors(x, itemgetter(slice(1)))).numel()
    means, scales = [], []
    each = 4 * k * f.size * f.dtype.itemsize
    for here in portions(n, each=each, memory=memory or _PORTION):
        some = map_tensors(x, itemgetter(here))
        with torch.no_grad():
            z = f(f.theta, some).reshape(-1, k)
        J = torch.stack([along(f.model, some, u, **options) for u in _units(z)], 1)
        scales.append(_root(curvature.into(J) * variances.sqrt()))
        means.append(z)
    return OutputLaw(torch.cat(means), torch.cat(scales), None)


def _units(z: Tensor) -> list[Tensor]:
    eye = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    return [row.expand_as(z).contiguous() for row in eye]


def _root(J: Tensor) -> Tensor:
    """A square factor R with R R^T = J J^T, for J (n, k, P)."""
    if J.shape[1] > J.shape[2]:
        J = torch.nn.functional.pad(J, (0, J.shape[1] - J.shape[2]))
    return torch.linalg.qr(factorised(J).mT, mode="r").R.mT.to(J)
