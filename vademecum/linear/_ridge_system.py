r"""The equations of ridge regression, and one decomposition of them for all penalties.

With the centred examples and targets as the rows of $Z$ and $Y$, the weights
$w_\alpha = (Z^\top Z + \alpha I)^{-1} Z^\top Y = Z^\top (Z Z^\top + \alpha I)^{-1} Y$ need the
smaller matrix $M$ of $Z^\top Z$ and $Z Z^\top$. One penalty is a Cholesky decomposition
$M + \alpha I = S L L^\top S$, scaled by $S$ to a unit diagonal, which makes its rounding the same
in all units of the features. Of several penalties the least, $\alpha_0$, is decomposed so; then

$$L^{-1} S^{-2} L^{-\top} = Q \operatorname{diag}(\kappa) Q^\top, \qquad
B = S^{-1} L^{-\top} Q, \qquad
(M + \alpha I)^{-1} = B \operatorname{diag}\Big(\frac{1}{1 + (\alpha - \alpha_0) \kappa}\Big)
B^\top .$$

The eigenvectors $B$ of $M$ are orthogonal, of squared length $\kappa = 1 / (\lambda + \alpha_0)$.
Rounding of the $\kappa$, $\varepsilon / \alpha_0$, changes the weights by
$\varepsilon \alpha / \alpha_0$ of themselves, however large an eigenvalue $\lambda$ is beside the
penalties.

The matrix products are those of the data's dtype while every $\alpha$ exceeds what its rounding can
do to an eigenvalue, else of double precision. Where even then the scaled matrix has a condition
above $\varepsilon^{-1/2}$, the examples themselves are decomposed as
$Z = U A N^\top$ (`vademecum.linear._row_space`), with columns scaled to unit norm if their norms
differ by more than $\varepsilon^{-1/2}$; directions that are zero there up to rounding are left
out, as in the limit $\alpha \to 0$. Then QR decompositions of $A$ above $\sqrt\alpha\, I$, scaled
by $S$, take the place of Cholesky's.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arrays import gram
from vademecum.linear._moments import moments
from vademecum.linear._row_space import Coordinates, coordinates

__all__ = [
    "Factor",
    "Spectrum",
    "System",
    "factorised",
    "ridge_path",
    "ridge_system",
    "ridge_weights",
]


class System(NamedTuple):
    r"""Equations $(M + \alpha I) v = r$ in double precision, and how $v$ becomes weights."""

    x: Tensor
    y: Tensor
    centre: bool
    mean_x: Tensor
    mean_y: Tensor
    matrix: Tensor
    right: Tensor
    rows: Tensor | None  # of Z, if the equations are the dual ones
    weights: Tensor  # of the examples
    offset: Tensor | None = None  # a mean that was subtracted before

    def lift(self, v: Tensor) -> Tensor:
        return v if self.rows is None else self.rows.T.double() @ v


def ridge_system(x: Tensor, y: Tensor, centre: bool, least: Tensor) -> System:
    """The primal equations, or for fewer examples than features the dual ones."""
    assemble = _primal if len(x) >= x.shape[1] else _dual
    system = assemble(x, y, centre, x.dtype)
    largest = system.matrix.diagonal().max()  # so that squares of entries stay in range
    norm = largest * (system.matrix / largest).norm() if largest > 0 else largest
    if torch.finfo(x.dtype).eps * norm > least and x.dtype != torch.float64:
        return assemble(x, y, centre, torch.float64)
    return system


def _primal(x: Tensor, y: Tensor, centre: bool, dtype: torch.dtype) -> System:
    about = moments(x, y, centre=centre, dtype=dtype)
    ones = x.new_ones(len(x), dtype=torch.float64)
    return System(x, y, centre, about.mean_x, about.mean_y, about.gram, about.cross, None, ones)


def _dual(x: Tensor, y: Tensor, centre: bool, dtype: torch.dtype) -> System:
    mean_x, mean_y = (v.double().mean(0) * centre for v in (x, y))
    z = (x.double() - mean_x).to(dtype)
    ones = x.new_ones(len(x), dtype=torch.float64)
    return System(x, y, centre, mean_x, mean_y, gram(z.mT).matrix, y - mean_y, z, ones)


class Factor(NamedTuple):
    r"""The $S$ and $L$ of $M + \alpha I = S L L^\top S$."""

    scale: Tensor
    lower: Tensor

    def solve(self, right: Tensor) -> Tensor:
        scale = self.scale[:, None]
        return torch.cholesky_solve(right / scale, self.lower) / scale

    def half(self) -> Tensor:
        r"""The $L^{-1} S^{-1}$."""
        eye = torch.eye(len(self.scale)).to(self.lower)
        return torch.linalg.solve_triangular(self.lower, eye, upper=False) / self.scale


def factorised(matrix: Tensor, alpha: Tensor) -> Factor | None:
    """The decomposition, scaled to a unit diagonal; None where rounding would show."""
    scale = (matrix.diagonal() + alpha).sqrt()
    scaled = matrix / scale / scale[:, None]
    scaled.diagonal().fill_(1.0)
    lower, info = torch.linalg.cholesky_ex(scaled)
    if info:
        return None
    limit = torch.finfo(matrix.dtype).eps ** -0.5
    if len(scale) * scale.max() ** 2 > limit * alpha:  # a bound of the condition
        sizes = scaled, torch.cholesky_inverse(lower)
        if not math.prod(float(torch.linalg.matrix_norm(v, 1)) for v in sizes) <= limit:
            return None
    return Factor(scale, lower)


class Spectrum(NamedTuple):
    r"""The $\alpha_0$, $\kappa$ and $B$, of the dual equations or of the primal ones."""

    least: Tensor
    kappas: Tensor
    basis: Tensor
    right: Tensor  # in that basis
    dual: bool

    def shrunk(self, alphas: Tensor) -> Float[Tensor, " a m t"]:
        """The coefficients in the basis at each penalty."""
        return self.right * self.shares(alphas)[..., None]

    def shares(self, alphas: Tensor) -> Float[Tensor, " a m"]:
        return 1 / (1 + (alphas - self.least)[:, None] * self.kappas)


def ridge_path(system: System, alphas: Tensor) -> tuple[Float[Tensor, " a d t"], Spectrum]:
    """The weights at each penalty, and the decomposition for all of them."""
    least = alphas.min()
    factor = factorised(system.matrix, least)
    if factor is None:
        space = _coordinates(system)
        return torch.stack([_penalised(space, a) for a in alphas]), _of_rows(space, least)
    half = factor.half()
    kappas, q = torch.linalg.eigh(half @ half.T)
    basis = half.T @ q
    spectrum = Spectrum(least, kappas, basis, basis.T @ system.right, system.rows is not None)
    return system.lift(basis @ spectrum.shrunk(alphas)), spectrum


def ridge_weights(system: System, alpha: Tensor) -> Float[Tensor, " d t"]:
    """The weights at one penalty."""
    factor = factorised(system.matrix, alpha)
    if factor is None:
        return _penalised(_coordinates(system), alpha)
    return system.lift(factor.solve(system.right))


def _coordinates(system: System) -> Coordinates:
    """Those of the examples, scaled where else rounding of large features would hide small ones."""
    norms = torch.linalg.vector_norm(system.x.double() - system.mean_x, dim=0)
    spread = norms.max() / norms[norms > 0].min() if norms.any() else 1.0
    scale = norms if spread > torch.finfo(system.x.dtype).eps ** -0.5 else None
    y = system.y - system.mean_y
    return coordinates(system.x, system.mean_x, y, scale, system.offset)


def _stacked(a: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of A above those of the penalty, with unit columns, and the norms these had."""
    scale = (a.square().sum(0) + alpha).sqrt()
    return torch.cat([a / scale, torch.diag(alpha.sqrt() / scale)]), scale


def _penalised(space: Coordinates, alpha: Tensor) -> Float[Tensor, " d t"]:
    rows, scale = _stacked(space.matrix, alpha)
    q, r = torch.linalg.qr(rows)
    right = q[: len(scale)].T @ space.images
    c = torch.linalg.solve_triangular(r, right, upper=True) / scale[:, None]
    return space.basis @ c


def _of_rows(space: Coordinates, least: Tensor) -> Spectrum:
    """By a decomposition of the examples: where the least penalty is near their rounding."""
    rows, scale = _stacked(space.matrix, least)
    half = Factor(scale, torch.linalg.qr(rows, mode="r").R.T).half()
    _, roots, vh = torch.linalg.svd(half)
    basis = vh.T * roots
    right = (space.matrix @ basis).T @ space.images
    return Spectrum(least, roots.square(), space.basis @ basis, right, False)
