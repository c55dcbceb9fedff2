"""Examples about their mean, in units of their own, as the data that a climb needs.

A unit for each feature makes a fit independent of the features' scales; with noise that is common
to all features there is one unit. Complete rows become their covariance, in one pass over the data
(`vademecum.arrays.gram`), or stay rows where these are fewer than half of the features and products
with them cost less.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.arrays import gram
from vademecum.generative.factors._climb import Climb
from vademecum.generative.factors._expected_moments import Covariance, Incomplete
from vademecum.generative.factors._law import FactorLaw, has_gaps, rows_by_pattern

__all__ = ["Prepared", "named", "prepared"]


class Prepared(NamedTuple):
    """The data, and the way back."""

    data: Covariance | Incomplete
    centre: Tensor  # (d,)
    unit: Tensor  # (d,)
    shift: float  # how much the units add to the log-likelihood of a row, in the mean

    @property
    def incomplete(self) -> bool:
        """Whether entries are missing, so that the mean is fitted with the loadings."""
        return isinstance(self.data, Incomplete)

    def start(self, loadings: Tensor) -> Tensor:
        """Loadings as the climb takes them: with the mean, if entries are missing."""
        column = torch.zeros_like(self.centre)[:, None]
        return torch.cat([column, loadings], 1) if self.incomplete else loadings

    def law(self, found: Climb) -> FactorLaw:
        r"""What was found in the units of the data, rotated to a diagonal $W^\top \Psi^{-1} W$.

        Its entries descend, and the largest loading of each factor, by units, is positive.
        """
        mean, loadings = self.centre, found.loadings
        if self.incomplete:
            mean, loadings = mean + loadings[:, 0] * self.unit, loadings[:, 1:]
        root = found.noise.sqrt()[:, None]
        u, s, _ = torch.linalg.svd(loadings / root, full_matrices=False)
        loadings = u * s * root
        if loadings.shape[1]:  # in these units, so that those of the data do not matter
            loadings = loadings * loadings.gather(0, loadings.abs().argmax(0)[None]).sign()
        return FactorLaw(mean, loadings * self.unit[:, None], found.noise * self.unit.square())


def prepared(x: Tensor, *, common: bool) -> Prepared:
    """The data of a climb.

    Args:
        x: The examples, with NaN where an entry is missing.
        common: Whether there is one unit for all features.

    Raises:
        ValueError: If a feature has no entry, or is constant though it needs a unit of its own, or
            all are constant.
    """
    n, d = x.shape
    if has_gaps(x):
        return _incomplete(x, common)
    matrix = rows = None
    if d > 2 * n:
        mean = x.double().mean(0)
        rows = x.double() - mean
        power = rows.square().mean(0)
    else:
        mean, matrix = gram(x, centre=True)
        matrix = matrix / n
        power = matrix.diagonal()
    unit = _unit(x, mean, power, common)
    if rows is not None:
        data = Covariance(None, rows / unit)
    else:
        assert matrix is not None
        data = Covariance(matrix / unit / unit[:, None])
    return Prepared(data, mean, unit, -float(unit.log().sum()))


def _incomplete(x: Tensor, common: bool) -> Prepared:
    present = (~x.isnan()).sum(0)
    if not present.all():
        none = named((present == 0).nonzero()[:, 0])
        raise ValueError(f"X must have an entry in every feature, got none in {none}")
    wide = x.double()
    mean = wide.nansum(0) / present
    power = (wide - mean).square().nansum(0) / present
    unit = _unit(x, mean, power, common)
    data = Incomplete(list(rows_by_pattern((wide - mean) / unit, 0)))
    return Prepared(data, mean, unit, -float((unit.log() * present).sum()) / len(x))


def _unit(x: Tensor, mean: Tensor, power: Tensor, common: bool) -> Tensor:
    """The standard deviation of each feature, or of all."""
    slack = 8 * torch.finfo(x.dtype).eps
    nearly = (power.sqrt() <= slack * mean.abs()).nonzero()[:, 0]
    columns = x[:, nearly]
    first = columns.nan_to_num(nan=-math.inf).amax(0)
    constant = torch.zeros_like(power, dtype=torch.bool)
    constant[nearly] = ((columns == first) | columns.isnan()).all(0)
    if common:
        if constant.all():
            raise ValueError(f"X must vary, got {len(x)} equal rows")
        return power.mean().sqrt().expand_as(power).contiguous()
    if constant.any():
        which = named(constant.nonzero()[:, 0])
        raise ValueError(
            f"X must vary in every feature, got a constant in {which}: without noise the likelihood"
            " has no maximum"
        )
    return power.sqrt()


def named(places: Tensor) -> str:
    """A few of the features, by number.

    Example:
        >>> named(torch.tensor([1])), named(torch.arange(9))
        ('feature 1', 'features 0, 1, 2, 3, ... (9 of them)')
    """
    if len(places) == 1:
        return f"feature {int(places)}"
    some = ", ".join(map(str, places[:4].tolist()))
    return f"features {some}" + (f", ... ({len(places)} of them)" if len(places) > 4 else "")
