r"""Gram matrices of tall data in one pass, summed in double precision.

$$G = \sum_{i=1}^n (x_i - \mu)(x_i - \mu)^\top, \qquad \mu = 0 \ \text{ or } \
\mu = \frac1n \sum_{i=1}^n x_i .$$

Rows are taken in blocks. To centre, a block $b$ is shifted before it is multiplied, by the mean
$c_b$ of every eighth of its rows; with the mean $r_b$ of what remains its mean is
$m_b = c_b + r_b$, and

$$G = \sum_b \Big( \sum_{i \in b} (x_i - c_b)(x_i - c_b)^\top
+ n_b (m_b - \mu)(m_b - \mu)^\top - n_b r_b r_b^\top \Big) .$$

An eighth of the rows have the mean $c_b$, so that $n_b r_b^2$ is at most 8 times the block's sum of
squares about $m_b$: data far from zero lose no more than three bits to cancellation, whatever their
order. Blocks are multiplied in the dtype of the data and added up in double precision; what remains
is the rounding within a block: of the entry $G_{jk}$ some units in the last place of
$\sqrt{G_{jj} G_{kk}}$, whatever the units of the columns. Where squares leave the range of single
precision, all is done once more in double precision. On the CPU each thread takes its own strip of
rows from beginning to end.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats
from vademecum.arrays.small_blocks import one_blas_thread, views
from vademecum.results import one_line

__all__ = ["Gram", "gram", "small"]


class Gram(NamedTuple):
    r"""The vector $\mu$ and the matrix $G$, both in double precision on the data's device.

    Example:
        >>> gram(torch.tensor([[1.0], [3.0]]), centre=True)
        Gram(mean=tensor([2.], dtype=torch.float64), matrix=tensor([[2.]], dtype=torch.float64))
    """

    mean: Float[Tensor, " d"]
    r"""The vector $\mu$ that was subtracted."""
    matrix: Float[Tensor, " d d"]
    """The sum of products of the rows."""

    __repr__ = one_line


class _Strip(NamedTuple):
    total: Tensor  # of the blocks' products
    counts: list[int]
    shifts: list[Tensor]
    rests: list[Tensor]


def gram(
    *parts: Float[Tensor, " n _"], centre: bool = False, dtype: torch.dtype | None = None
) -> Gram:
    r"""The Gram matrix of the rows of one matrix, or of several that stand side by side.

    Args:
        parts: The data, one row each, of one dtype and on one device.
        centre: Whether $\mu$ is the mean of the rows, or zero.
        dtype: In which blocks are multiplied; that of the data by default.

    Returns:
        The mean (zero without `centre`) and the matrix, which is exactly symmetric.

    Raises:
        ValueError: If the data are not finite, not real, or do not match.

    Example:
        >>> x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0], [0.0]])
        >>> gram(x, y).matrix
        tensor([[10., 14.,  1.],
                [14., 20.,  2.],
                [ 1.,  2.,  1.]], dtype=torch.float64)
    """
    (n, d), device = _checked(parts), parts[0].device
    rows = min(8192, max(256, 2**23 // d))
    workers = min(torch.get_num_threads(), n // rows) if device.type == "cpu" and small(d) else 1
    dtype = torch.promote_types(dtype or parts[0].dtype, torch.float32)
    work = partial(_strip, rows=rows, centre=centre, dtype=dtype)
    if workers <= 1:
        strips = [work(parts)]
    else:
        share = -(-n // workers)
        with one_blas_thread(), ThreadPoolExecutor(workers) as pool:
            strips = list(pool.map(work, zip(*(x.split(share) for x in parts), strict=True)))
    result = _combined(strips, n)
    diagonal = result.matrix.diagonal()
    if dtype != torch.float64 and _out_of_range(parts, diagonal, centre, dtype):
        return gram(*parts, centre=centre, dtype=torch.float64)
    if not diagonal.isfinite().all():  # sums of squares show what is not finite
        for x in parts:
            floats("x", x)
        raise ValueError(f"x must be smaller: its squares overflow {parts[0].dtype}")
    _insist_on_squares(parts, diagonal)
    return result


def _insist_on_squares(parts: tuple[Tensor, ...], diagonal: Tensor) -> None:
    """Refuse columns that are not zero, but whose squares would be."""
    tiny = torch.finfo(torch.float64).tiny
    lost = (diagonal < len(parts[0]) * tiny).nonzero()[:, 0].tolist()
    columns = [x[:, j] for x in parts for j in range(x.shape[1])] if lost else []
    for j in lost:
        largest = float(columns[j].abs().max())
        if largest > 0 and largest**2 < tiny:
            raise ValueError(f"x must be larger: the squares of column {j} underflow")


def small(d: int) -> bool:
    """Whether matrices of this width are better dealt with by one thread each.

    Example:
        >>> small(784), small(10_000)
        (True, False)
    """
    return d <= 2048


def _checked(parts: tuple[Tensor, ...]) -> tuple[int, int]:
    if not parts:
        raise ValueError("parts must not be empty, got none")
    d = sum(floats("x", x[:1], ndim=2).shape[1] for x in parts)
    kinds = {(len(x), x.dtype, x.device) for x in parts}
    if len(kinds) > 1:
        raise ValueError(
            f"parts must agree in rows, dtype and device, got {sorted(map(str, kinds))}"
        )
    if parts[0].is_complex():
        raise ValueError(f"x must be real, got {parts[0].dtype}")
    return len(parts[0]), d


def _out_of_range(
    parts: tuple[Tensor, ...], diagonal: Tensor, centre: bool, dtype: torch.dtype
) -> bool:
    """Whether squares may have left the range of the dtype: the sums would be no rounding of it."""
    limits = torch.finfo(dtype)
    if not diagonal.isfinite().all():
        return True
    small = diagonal < len(parts[0]) * limits.tiny / limits.eps
    for place, x in zip(_places(parts), parts, strict=True):
        columns = x[:, small[place]]
        if (columns != columns[:1] * centre).any():  # and not just nothing to be squared
            return True
    return False


def _strip(parts: tuple[Tensor, ...], rows: int, centre: bool, dtype: torch.dtype) -> _Strip:
    """The sum of products of the rows, block by block, each about its own mean."""
    n, d = len(parts[0]), sum(x.shape[1] for x in parts)
    total = parts[0].new_zeros(d, d, dtype=torch.float64)
    strip = _Strip(total, [], [], [])
    buffer = parts[0].new_empty(min(rows, n), d, dtype=dtype)
    # NumPy's product takes BLAS `syrk`, half of the operations. It and torch must not take turns
    # in the loop: threads linger after each operation and hold up those of the other.
    buffer_, total_ = views(buffer, total)
    with np.errstate(all="ignore"):
        for blocks in zip(*(x.detach().split(rows) for x in parts), strict=True):
            m = len(blocks[0])
            a = buffer_[:m]
            shifts = [_mean(block[::8].to(dtype)) * centre for block in blocks]
            for place, block, shift in zip(_places(parts), blocks, shifts, strict=True):
                _subtract(block.to(dtype), shift, buffer[:m, place])
            total_ += a.T @ a
            if centre:
                strip.counts.append(m)
                strip.shifts.append(torch.cat(shifts))
                strip.rests.append(_mean(buffer[:m]))
    return strip


def _mean(block: Tensor) -> Tensor:
    return torch.as_tensor(views(block)[0].mean(0))


def _subtract(block: Tensor, shift: Tensor, out: Tensor) -> None:
    if out.device.type == "cpu":
        np.subtract(block.numpy(), shift.numpy(), out=out.numpy())
    else:
        torch.sub(block, shift, out=out)


def _places(parts: tuple[Tensor, ...]) -> Iterator[slice]:
    start = 0
    for x in parts:
        yield slice(start, start := start + x.shape[1])


def _combined(strips: list[_Strip], n: int) -> Gram:
    total = strips[0].total
    for strip in strips[1:]:
        total += strip.total
    counts = [count for strip in strips for count in strip.counts]
    if not counts:
        return Gram(total.new_zeros(len(total)), (total + total.mT) / 2)
    weights = total.new_tensor(counts)[:, None]
    rests = torch.stack([rest for strip in strips for rest in strip.rests]).double()
    means = torch.stack([shift for strip in strips for shift in strip.shifts]).double() + rests
    mean = (weights * means).sum(0) / n
    between = means - mean
    total += between.mT @ (weights * between) - rests.mT @ (weights * rests)
    return Gram(mean, (total + total.mT) / 2)
