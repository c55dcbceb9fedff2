r"""Squared distances $\|a_i - b_j\|^2$ of all pairs, without a tensor of $n_1 \times n_2 \times d$.

Subtracting what all inputs have in common changes no distance, so they are moved to the middle of
their box first; then, with $R = \max(\|a_i\|, \|b_j\|)$, the product of matrices

$$\|a_i - b_j\|^2 = \|a_i\|^2 - 2\, a_i^\top b_j + \|b_j\|^2$$

is off by about $2 \varepsilon R^2$ at most. Where that is too much for single precision, it is done
in double precision; where it is too much for that, differences are squared and added up feature by
feature, which loses nothing. A function of the distance that has a cusp at 0 needs *near* pairs
better, which are computed one by one then.

A symmetric matrix is computed above its diagonal and mirrored: its symmetry is exact.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.arrays import empty, portions
from vademecum.kernels._tiles import tiles_of

__all__ = ["FAR", "Differences", "by_tiles", "centred", "mend_near", "weighted_squares"]

_TILE = {"cpu": 256}  # rows and columns: fastest of 128 to 1024 for n = 2,000 on one core
_WIDE = 8192  # on other devices, where a call costs more than it reads
_LOSS = {torch.float32: 2e-6, torch.float64: 1e-11}  # of a squared distance, in lengthscales
_WIDE_LOSS = 1e-8  # the same in double precision, where the result is in single precision
_NEAR = 1e-12  # of a distance, in lengthscales, in double precision
FAR = 1e8
"""Squared lengthscales beyond which all kernels of distances are 0."""
_PAIRS = 2**20  # numbers at a time for near pairs

Entries = Callable[[slice, slice, Tensor], None]


def by_tiles(n1: int, n2: int, entries: Entries, *, symmetric: bool, like: Tensor) -> Tensor:
    """A matrix whose tiles a function writes, for rows, columns and the place for their entries.

    It has the dtype and device of a tensor; half precision is only what the result is rounded to.
    """
    dtype = like.dtype if like.dtype.itemsize >= 4 else torch.float32
    K = empty(n1, n2, dtype=dtype, device=like.device)
    size = _TILE.get(like.device.type, _WIDE)
    for rows, columns in tiles_of(n1, n2, tile=size, symmetric=symmetric):
        if not symmetric:
            entries(rows, columns, K[rows, columns])
            continue
        shape = rows.stop - rows.start, columns.stop - columns.start
        block = torch.empty(shape, dtype=dtype, device=like.device)
        entries(rows, columns, block)
        mirror = block.T.clone(memory_format=torch.contiguous_format)  # torch does it in blocks
        if rows.start == columns.start:
            block = block.mul_(0.5).add_(mirror, alpha=0.5)
        else:
            K[columns, rows].copy_(mirror)
        K[rows, columns].copy_(block)
    return K.to(like.dtype)


def centred(*inputs: Tensor) -> list[Tensor]:
    """One or two sets of inputs, moved to the middle of their common box."""
    low = torch.stack([x.detach().amin(0) for x in inputs]).amin(0)
    high = torch.stack([x.detach().amax(0) for x in inputs]).amax(0)
    return [x - (low / 2 + high / 2) for x in inputs]


class Differences(NamedTuple):
    """How the squared distances of all pairs are computed, in units of lengthscales."""

    a: Tensor
    """The rows' inputs, ready for `entries`."""
    b: Tensor
    """The columns' inputs."""
    weights: list[float] | None
    """What squared differences are multiplied with; None for a product of matrices."""
    error: float
    """How much a squared distance may be off."""

    @classmethod
    def of(
        cls, x1: Tensor, x2: Tensor | None, lengthscale: float | Tensor, *, cusp: bool
    ) -> "Differences":
        """The cheapest way that is good enough.

        Args:
            x1: Inputs of the rows.
            x2: Those of the columns, None if they are the same.
            lengthscale: A number, or one for each feature, that fits the inputs.
            cusp: Whether small distances must be right themselves, not only their squares.
        """
        single = x1.dtype != torch.float64
        both = [x.double() for x in ((x1,) if x2 is None else (x1, x2))]
        ell = lengthscale.double() if isinstance(lengthscale, Tensor) else lengthscale
        scaled = [a / ell for a in centred(*both)]
        norms = [a.square().sum(1, keepdim=True) for a in scaled]
        R2 = float(torch.stack([norm.max() for norm in norms]).max())
        loss = {t: 2 * torch.finfo(t).eps * R2 for t in _LOSS}
        if single and not cusp and loss[torch.float32] <= _LOSS[torch.float32]:
            work = torch.float32
        elif loss[torch.float64] <= (_WIDE_LOSS if single else _LOSS[torch.float64]):
            work = torch.float64
        else:
            weights = torch.as_tensor(ell, dtype=torch.float64).expand(x1.shape[1]) ** -2
            return cls(both[0], both[-1], weights.tolist(), 0.0)
        left = torch.cat([scaled[0], norms[0], torch.ones_like(norms[0])], 1)
        right = torch.cat([-2 * scaled[-1], torch.ones_like(norms[-1]), norms[-1]], 1)
        return cls(left.to(work), right.to(work), None, loss[work])

    def entries(self, rows: slice, columns: slice, target: Tensor, *, cusp: bool) -> None:
        """Write the squared distances of some pairs."""
        a, b = self.a[rows], self.b[columns]
        if self.weights is not None:
            target.copy_(_squares(a, b, self.weights).clamp_(max=FAR))
        elif self.a.dtype == target.dtype and not cusp:
            torch.mm(a, b.T, out=target).clamp_(min=0)
        else:
            found = torch.mm(a, b.T).clamp_(min=0)
            if cusp:
                mend_near(found, a[:, :-2], b[:, :-2] / -2, self.error)
            target.copy_(found)


def mend_near(found: Tensor, a: Tensor, b: Tensor, error: float) -> None:
    r"""Compute squared distances again where their roots may be off by more than `_NEAR`.

    The root of $r^2 + e$ is $r + e / 2 r$ about.
    """
    near = (found < (error / (2 * _NEAR)) ** 2).nonzero()
    if len(near) > found.numel() // 8:
        found.copy_(_squares(a, b, [1.0] * a.shape[1]))
        return
    for some in portions(len(near), each=a.shape[1], memory=_PAIRS):
        i, j = near[some].unbind(1)
        found[i, j] = (a[i] - b[j]).square().sum(1)


def weighted_squares(M: Tensor, x: Tensor, lengthscale: Tensor) -> Tensor:
    r"""The sums $\sum_{ij} M_{ij} (a_{im} - a_{jm})^2$ for each feature of inputs in lengthscales.

    A product of matrices gives them, in double precision where single would lose too much, unless
    inputs are so far apart that differences must come first.
    """
    a = centred(x.double())[0] / lengthscale.double()
    R2 = float(a.square().sum(1).max())
    if 2 * torch.finfo(torch.float64).eps * R2 > _WIDE_LOSS:
        gaps = (column[:, None] - column for column in a.T.contiguous())
        return torch.stack([gap.square_().mul_(M).sum() for gap in gaps]).to(M.dtype)
    single = M.dtype == torch.float32 and 2 * torch.finfo(M.dtype).eps * R2 <= _LOSS[M.dtype]
    wide, a = (M, a.to(M.dtype)) if single else (M.double(), a)
    squares = (a.square() * (wide.sum(0) + wide.sum(1))[:, None]).sum(0)
    return (squares - 2 * (a * (wide @ a)).sum(0)).to(M.dtype)


def _squares(a: Tensor, b: Tensor, weights: list[float]) -> Tensor:
    """Squares of differences, added up feature by feature."""
    total = a.new_zeros(len(a), len(b))
    gap = torch.empty_like(total)
    for left, right, weight in zip(a.T.contiguous(), b.T.contiguous(), weights, strict=True):
        torch.sub(left[:, None], right, out=gap)
        total.addcmul_(gap, gap, value=weight)
    return total
