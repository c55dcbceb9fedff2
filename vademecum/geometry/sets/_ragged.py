r"""Sets of different size side by side: elements packed in rows, and sums, means, maxima of each.

Sets come padded, (n, M, d) with a mask, or packed, (N, d) with the number of the set that each row
belongs to. Either way what treats elements one by one sees the N elements alone: padding is not
there for it, also not for the statistics of a batch normalisation. Sums run in the order of the
elements, so that they are the same from run to run on any device; of equal maxima the first wins
and gets the gradient.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.arguments import whole

__all__ = ["Ragged", "ragged"]


class Ragged(NamedTuple):
    """The elements of n sets, those of a set behind each other."""

    rows: Tensor
    """The elements, (N, d)."""
    n: int
    """How many sets there are."""
    size: int | None
    """How many elements each set has, if all are full."""
    segments: Tensor | None
    """The set of each element, in increasing order; None if all are full."""
    counts: Tensor | None
    """How many elements each set has; None if all are full."""
    order: Tensor | None
    """Which of the packed rows each element was; None if they were in order, or padded."""
    mask: Tensor | None
    """Where the elements were among the padded ones."""

    def pooled(self, z: Tensor, how: str) -> Tensor:
        """The sum, mean or maximum of each set, (n, m), of what its elements gave, (N, m)."""
        if self.size is not None:
            z = z.unflatten(0, (self.n, self.size))
            if how == "max":
                return z.max(1).values
            return z.sum(1) if how == "sum" else z.mean(1)
        assert self.segments is not None
        assert self.counts is not None
        if how == "max":
            return _maxima(z, self.segments, self.n)
        total = _Sums.apply(z, self.segments, self.counts)
        assert isinstance(total, Tensor)
        return total if how == "sum" else total / self.counts[:, None].to(z.dtype)

    def spread(self, pooled: Tensor) -> Tensor:
        """For each element what its set has, (N, m), of what sets have, (n, m)."""
        if self.size is not None:
            return pooled[:, None].expand(-1, self.size, -1).flatten(0, 1)
        return pooled[self.segments]

    def mapped(self, x: Tensor, A: Tensor) -> Tensor:
        """Each element times the matrix of its set, of matrices (n, d, m)."""
        if self.size is not None:
            return (x.unflatten(0, (self.n, self.size)) @ A).flatten(0, 1)
        if self.mask is not None:
            padded = x.new_zeros(*self.mask.shape, x.shape[1])
            return (padded.masked_scatter(self.mask[..., None], x) @ A)[self.mask]
        assert self.counts is not None
        parts = x.split(self.counts.tolist())
        return torch.cat([part @ a for part, a in zip(parts, A, strict=True)])

    def unpacked(self, y: Tensor) -> Tensor:
        """Outputs of elements where these were: packed in their order, or padded by zeros."""
        if self.mask is not None:
            padded = y.new_zeros(*self.mask.shape, y.shape[1])
            return padded.masked_scatter(self.mask[..., None], y)
        if self.size is not None:
            return y.unflatten(0, (self.n, self.size))
        return y if self.order is None else torch.empty_like(y).index_copy(0, self.order, y)


def ragged(
    x: Any, mask: Any, segments: Any, num_sets: int | None, *, d: int | None, empty: bool
) -> Ragged:
    """Sets as a part takes them, checked.

    Args:
        x: Elements, (n, M, d) or (N, d) with segments.
        mask: True where there is an element, (n, M); everywhere by default.
        segments: The set of each packed element, (N,).
        num_sets: How many packed sets there are; up to the largest number by default.
        d: How many features an element must have, if that is known.
        empty: Whether sets without elements are taken.
    """
    packed = segments is not None
    form = "(N, d) with segments" if packed else "(n, M, d), or (N, d) with segments"
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim != (2 if packed else 3):
        given = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be floating point, {form}, got {given}")
    if d is not None and x.shape[-1] != d:
        raise ValueError(f"x must have elements of {d} features, got shape {tuple(x.shape)}")
    if packed:
        if mask is not None:
            raise ValueError("mask must be None with segments, which tell what belongs together")
        return _packed(x, segments, num_sets, empty=empty)
    if num_sets is not None:
        raise ValueError(f"num_sets must be None without segments, got {num_sets}")
    n, M, _ = x.shape
    if mask is None:
        if not M and not empty:
            raise ValueError(f"x must have no empty set, got shape {tuple(x.shape)}")
        return Ragged(x.flatten(0, 1), n, M, None, None, None, None)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != x.shape[:2]:
        given = f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask)
        raise ValueError(f"mask must be boolean of shape {(n, M)}, got {given}")
    counts = mask.sum(1)
    _refuse_empty(counts, empty=empty)
    return Ragged(x[mask], n, None, mask.nonzero()[:, 0], counts, None, mask)


def _packed(x: Tensor, segments: Any, num_sets: int | None, *, empty: bool) -> Ragged:
    whole_numbers = (torch.int64, torch.int32)
    if not isinstance(segments, Tensor) or segments.dtype not in whole_numbers:
        given = segments.dtype if isinstance(segments, Tensor) else type(segments).__name__
        raise ValueError(f"segments must be int64 or int32, got {given}")
    if segments.shape != x.shape[:1]:
        raise ValueError(
            f"segments must be {len(x)} numbers, one for each row of x, got shape"
            f" {tuple(segments.shape)}"
        )
    segments = segments.long()
    low, high = torch.stack(torch.aminmax(segments)).tolist() if len(x) else (0, -1)
    n = high + 1 if num_sets is None else whole("num_sets", num_sets, low=0)
    if low < 0 or high >= n:
        raise ValueError(f"segments must be from 0 to {n - 1}, got {low if low < 0 else high}")
    order = None
    if bool((segments[1:] < segments[:-1]).any()):
        segments, order = segments.sort(stable=True)
    counts = torch.bincount(segments, minlength=n)
    _refuse_empty(counts, empty=empty)
    rows = x if order is None else x[order]
    return Ragged(rows, n, None, segments, counts, order, None)


def _refuse_empty(counts: Tensor, *, empty: bool) -> None:
    if not empty and len(counts) and not bool(counts.all()):
        first = int((counts == 0).nonzero()[0])
        raise ValueError(
            f"x must have no empty set where means or maxima are taken, got set {first}"
        )


class _Sums(torch.autograd.Function):
    """Sums of rows behind each other, in their order."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, segments: Tensor, counts: Tensor) -> Tensor:  # pyright: ignore
        ctx.save_for_backward(segments)
        if not len(counts):  # which torch's does not take
            return z[:0].clone()
        return torch.segment_reduce(z.contiguous(), "sum", lengths=counts, axis=0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore
        (segments,) = ctx.saved_tensors
        return grad[segments], None, None


def _maxima(z: Tensor, segments: Tensor, n: int) -> Tensor:
    """The maximum of each set, with the gradient of its first winner."""
    where = segments[:, None].expand(-1, z.shape[1])
    with torch.no_grad():
        top = z.new_full((n, z.shape[1]), -torch.inf).scatter_reduce(0, where, z, "amax")
        places = torch.arange(len(z), device=z.device)[:, None].expand_as(where)
        wins = (z == top[segments]) | z.isnan()  # which is no maximum of its set, but its result
        losers = places.where(wins, len(z))
        first = torch.full((n, z.shape[1]), len(z), device=z.device)
        first = first.scatter_reduce(0, where, losers, "amin")
    return z.gather(0, first)
