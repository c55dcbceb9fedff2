r"""Sums over parameters of inner products of gradients, for all pairs of examples.

For gradients $u_{ic}$ of the outputs $c$ of examples $i$ and $v_{jd}$ of others, four kinds of sums
are added up, from products of matrices in place:

| outputs | entries |
|---|---|
| full | $\langle u_{ic}, v_{jd} \rangle$, as a matrix with the rows $(c, i)$ and columns $(d, j)$ |
| diagonal | $\langle u_{ic}, v_{jc} \rangle$ |
| trace | $\sum_c \langle u_{ic}, v_{jc} \rangle$ |
| sum | the same, with one gradient for the sum of all outputs |

For one set of examples the matrices are symmetric: blocks of rows are computed from the diagonal
on, the rest is their mirror image. Exact up to rounding.
"""

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

__all__ = ["PairSums"]

_ROWS = {"cpu": 128}  # of a block; larger ones waste work, smaller ones slow products down
_PAIRS = {"cpu": 2**25}  # bytes of products over all times that are held at a time


class PairSums:
    """Sums for all pairs of `n1` with `n2` examples, of which `g` gradients each are given.

    Args:
        g: How many gradients an example has.
        n1: How many examples there are.
        n2: How many others.
        outputs: What is summed up: "full", "diagonal", "trace" or "sum".
        half: Whether the examples are the same, so that half of the work will do.
        like: A tensor of the dtype and on the device wanted.
    """

    def __init__(self, g: int, n1: int, n2: int, *, outputs: str, half: bool, like: Tensor):
        self.g, self.n1, self.n2, self.half = g, n1, n2, half
        self.full = outputs == "full" and g > 1
        self.outputs, self.device = outputs, like.device.type
        self._room = _PAIRS.get(self.device, 2**30)
        self._stack = g if self.full or outputs == "diagonal" else 1
        shape = (g * n1, g * n2) if self.full else (self._stack, n1, n2)
        self._sums = torch.zeros(shape, dtype=like.dtype, device=like.device)

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        """Rows and columns to compute: in units of examples, or of outputs of all examples."""
        n, unit = (self.g, self.n1) if self.full else (self.n1, 1)
        if not self.half:
            yield slice(0, n), slice(0, n if self.full else self.n2)
            return
        step = max(1, _ROWS.get(self.device, 512) // unit, -(-n // 16))
        for start in range(0, n, step):
            yield slice(start, min(start + step, n)), slice(start, n)

    def add(self, u: Tensor, v: Tensor, weights: Tensor | None = None) -> None:
        """Add the inner products of u (g, n1, D) and v (g, n2, D), times weights (n1, n2)."""
        for rows, columns in self._blocks():
            if self.full:
                self._add_full(u, v, weights, rows, columns)
                continue
            one, other = u[:, rows], v[:, columns]
            if weights is None:
                self._multiply(self._sums[:, rows, columns], one, other)
                continue
            found = self._sums.new_zeros(self._stack, one.shape[1], other.shape[1])
            self._multiply(found, one, other)
            self._sums[:, rows, columns].addcmul_(found, weights[rows, columns])

    def _multiply(self, into: Tensor, one: Tensor, other: Tensor) -> None:
        for c in range(self.g):
            into[c % self._stack].addmm_(one[c], other[c].T)

    def _add_full(
        self, u: Tensor, v: Tensor, weights: Tensor | None, rows: slice, columns: slice
    ) -> None:
        """Likewise for the outputs `rows` with the outputs `columns`."""
        place = self._sums.view(self.g, self.n1, self.g, self.n2)[rows, :, columns]
        one, other = u[rows].flatten(0, 1), v[columns].flatten(0, 1)
        if weights is None:
            here = slice(rows.start * self.n1, rows.stop * self.n1)
            there = slice(columns.start * self.n2, columns.stop * self.n2)
            self._sums[here, there].addmm_(one, other.T)
        else:
            place.addcmul_((one @ other.T).view(place.shape), weights[:, None])

    def add_over_times(
        self, a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], plus: float = 0.0
    ) -> None:
        """Add the sums over all times of products <a_t, a'_s> + plus with <b_t, b'_s>.

        a are (n, t, d) and b are (g, n, t, m).
        """
        (a1, a2), (b1, b2) = a, b
        t1, t2 = a1.shape[1], a2.shape[1]
        for rows, columns in self._blocks():
            outputs, first = (rows, 0) if self.full else (slice(0, self.g), columns.start)
            among, stop = (0, self.n1) if self.full else (rows.start, rows.stop)
            each = (self.n2 - first) * t1 * t2 * b1.element_size()
            if self.full:
                each *= (rows.stop - rows.start) * (self.g - rows.start)
            step = max(1, self._room // each)
            for start in range(among, stop, step):
                here = slice(start, min(start + step, stop))
                left = a1[here].flatten(0, 1) @ a2[first:].flatten(0, 1).T
                self._add_times(left.add_(plus), b1, b2, here, first, outputs, (t1, t2))

    def _add_times(
        self, left: Tensor, b1: Tensor, b2: Tensor, here: slice, first: int, outputs: slice,
        times: tuple[int, int],
    ) -> None:  # fmt: skip
        m, n = here.stop - here.start, self.n2 - first
        if self.full:
            one = b1[outputs, here].flatten(0, 2)
            other = b2[outputs.start :].flatten(0, 2)
            right = (one @ other.T).view(-1, m, times[0], self.g - outputs.start, n, times[1])
            found = (right * left.view(1, m, times[0], 1, n, times[1])).sum((2, 5))
            place = self._sums.view(self.g, self.n1, self.g, self.n2)
            place[outputs, here, outputs.start :] += found
            return
        for stack in range(self._stack):
            own = range(self.g) if self._stack == 1 else [stack]
            right = torch.zeros_like(left)
            for c in own:
                right.addmm_(b1[c, here].flatten(0, 1), b2[c, first:].flatten(0, 1).T)
            right = right.mul_(left).view(m, times[0], n, times[1])
            self._sums[stack, here, first:] += right.sum((1, 3))

    def add_at(self, i: Tensor, j: Tensor, u: Tensor, v: Tensor) -> None:
        """Add the inner products of u (g, p, D) and v (g, p, D) for the pairs i, j (p,)."""
        flat, at = self._sums.view(-1), i * self.n2 + j
        if self.full:
            for c, d in product(range(self.g), repeat=2):
                place = ((c * self.n1 + i) * self.g + d) * self.n2 + j
                flat.index_add_(0, place, (u[c] * v[d]).sum(-1))
            return
        for c in range(self.g):
            start = (c % self._stack) * self.n1 * self.n2
            flat.index_add_(0, start + at, (u[c] * v[c]).sum(-1))

    def result(self) -> Tensor:
        """The sums as (n1, n2, g, g), (n1, n2, g) or (n1, n2)."""
        if self.half:
            for rows, _ in self._blocks():
                unit = self.n1 if self.full else 1
                here, after = slice(rows.start * unit, rows.stop * unit), rows.stop * unit
                self._sums[..., after:, here] = self._sums[..., here, after:].mT
        if self.full:
            return self._sums.view(self.g, self.n1, self.g, self.n2).permute(1, 3, 0, 2)
        if self.outputs == "full":  # of one output
            return self._sums[0, :, :, None, None]
        return self._sums.movedim(0, -1) if self.outputs == "diagonal" else self._sums[0]
