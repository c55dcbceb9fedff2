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
above $\varepsilon^{-1/2}$, the examples themselves are decomposed
(`vademecum.linear._row_space`); directions that are zero there up to rounding are left out, as in
the limit $\alpha \to 0$.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.linear._gram import gram
from vademecum.linear._moments import moments
from vademecum.linear._row_space import row_space

__all__ = ["Factor", "Spectrum", "System", "factorised", "ridge_system", "spectrum_above"]


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


def spectrum_above(system: System, least: Tensor) -> Spectrum:
    """The decomposition for all penalties from `least` on."""
    factor = factorised(system.matrix, least)
    if factor is None:
        return _of_rows(system, least)
    eye = torch.eye(len(factor.scale)).to(factor.lower)
    half = torch.linalg.solve_triangular(factor.lower, eye, upper=False) / factor.scale
    kappas, q = torch.linalg.eigh(half @ half.T)
    basis = half.T @ q
    return Spectrum(least, kappas, basis, basis.T @ system.right, system.rows is not None)


def _of_rows(system: System, least: Tensor) -> Spectrum:
    """By a decomposition of the examples: where the least penalty is near their rounding."""
    space = row_space(system.x, system.mean_x, system.y - system.mean_y)
    kappas = 1 / (space.sigma.square() + least)
    roots = kappas.sqrt()
    right = (space.sigma * roots)[:, None] * space.images
    return Spectrum(least, kappas, space.basis * roots, right, False)
