r"""Perceptrons that learn side by side, epoch by epoch, from examples in blocks.

Of a block of examples met with weights $(w, b)$, example $i$ has the score
$\langle x_i, w \rangle + b + \sum_{j < i} (\langle x_i, x_j \rangle + 1)\, c_j$, where $c_j = y_j$
if example $j$ of the block was a mistake and $0$ if not. These corrections are a cascade
(`vademecum.connectionism._cascade`), and the block ends with $w \leftarrow w + \sum_j c_j x_j$:
matrix products with the outcome of the sequential rule. In exact arithmetic, so for integers below
$2^{53}$ in double precision, the outcome is the same to the last bit; otherwise up to the rounding
of the scores, which can decide an example on the boundary either way. A single unit on a CPU, for
which the Gram matrices would be most of the work, goes from mistake to mistake instead
(`vademecum.connectionism._single_unit`); sparse examples always come in blocks.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vademecum.arrays import lengths, views
from vademecum.connectionism._cascade import cascade
from vademecum.connectionism._epochs import corrections
from vademecum.connectionism._single_unit import show
from vademecum.estimators import SparseRows

__all__ = ["Units"]

BLOCK = {"cpu": 32, "cuda": 256}  # more examples at once cost more in their Gram matrix
SPARSE = 256  # the same for sparse examples, whose Gram matrices cost little
STRIP = 128  # blocks whose Gram matrices are computed in one call, while others are shown


class Units:
    """Perceptrons that learn side by side from the rows of `x`, with targets `y` (n, units)."""

    def __init__(self, x: Any, y: Tensor, bias: bool):
        self.x, self.y, self.bias = x, y, float(bias)
        self.w, self.b = y.new_zeros(y.shape[1], x.shape[1]), y.new_zeros(y.shape[1])
        self.block = SPARSE if isinstance(x, SparseRows) else BLOCK.get(x.device.type, 256)
        self.kept: dict[int, Any] = {}

    def epoch(self, order: Tensor | None, active: Tensor) -> tuple[Tensor, Tensor]:
        """Show all examples once; the mistakes and the summed loss of each active unit."""
        if len(active) == 1 and self.x.device.type == "cpu" and isinstance(self.x, Tensor):
            mistakes, loss = self._alone(order, int(active))
        else:
            mistakes, loss = self._together(order, active)
        if not loss.isfinite().all():
            raise ValueError(f"X must be smaller: scores overflow {self.x.dtype}")
        return mistakes, loss

    def _alone(self, order: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
        x, w = views(self.x, self.w[k])
        y = self.y[:, k].contiguous().numpy()
        shown = None if order is None else order.numpy()
        b, mistakes, loss = show(x, y, w, float(self.b[k]), bias=self.bias, order=shown)
        self.b[k] = b
        return torch.tensor([mistakes]), torch.tensor([loss], dtype=torch.float64)

    def _together(self, order: Tensor | None, active: Tensor) -> tuple[Tensor, Tensor]:
        device = self.x.device
        active = active.to(device)
        w, b = self.w[active], self.b[active]
        y = self.y if len(active) == len(self.w) else self.y.index_select(1, active)
        c, scores = torch.empty_like(y), torch.empty_like(y, dtype=torch.float64)
        w_, b_, c_, scores_ = views(w, b, c, scores)
        k = 0
        for strip in _strips(len(y), self.block):
            for x_k, y_k, lower in self._strip(order, y, *strip):
                here = slice(k, k := k + len(y_k))
                drive = x_k @ w_.T + b_
                c_k = c_[here] = cascade(partial(corrections, y_k), drive, lower)
                scores_[here] = lower @ c_k + drive
                w_ += c_k.T @ x_k
                b_ += self.bias * c_k.sum(0)
        self.w[active], self.b[active] = w, b
        return c.count_nonzero(0).cpu(), -(c * scores).sum(0).cpu()

    def _strip(
        self, order: Tensor | None, y: Tensor, start: int, stop: int, block: int
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Examples, targets and strictly lower Gram matrices of a strip, block by block."""
        if isinstance(self.x, Tensor):
            return zip(*views(*self._dense_strip(order, y, start, stop, block)), strict=True)
        return self._sparse_strip(order, y.numpy(), start, stop, block)

    def _sparse_strip(
        self, order: Tensor | None, y: Any, start: int, stop: int, block: int
    ) -> Iterator[tuple[Any, Any, Any]]:
        for first in range(start, stop, block):
            here: Any = slice(first, first + block)
            here = here if order is None else order[here].numpy()
            x = self.x.matrix[here]
            yield x, y[here], np.tril((x @ x.T).toarray() + self.bias, -1).astype(y.dtype)

    def _dense_strip(
        self, order: Tensor | None, y: Tensor, start: int, stop: int, block: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        if order is None:
            x, y = self.x[start:stop], y[start:stop]
        else:
            rows = order[start:stop].to(y.device)
            x, y = self.x.index_select(0, rows), y.index_select(0, rows)
        x, y = (v.reshape(-1, block, v.shape[1]) for v in (x, y))
        if order is None and start in self.kept:
            return x, y, self.kept[start]
        gram = torch.bmm(x, x.mT).add_(self.bias).tril_(-1)
        if order is None and block <= x.shape[2]:  # so that they take no more memory than the data
            self.kept[start] = gram
        return x, y, gram

    def margins(self) -> tuple[Tensor, Tensor]:
        """The geometric margin and Novikov's bound of each unit."""
        scores = self._scores()
        if not scores.isfinite().all():
            raise ValueError(f"X must be smaller: scores overflow {self.x.dtype}")
        worst = (scores * self.y).amin(0).double()
        length = lengths(self.w, 1, dtype=torch.float64)
        bound = torch.full_like(worst, math.inf)
        if (worst > 0).any():
            radius = math.hypot(float(self._norms().max()), self.bias)
            gamma = worst / torch.hypot(length, self.b.double())
            bound = torch.where(worst > 0, (radius / gamma).square(), math.inf)
        return torch.where(length > 0, worst / length, -math.inf), bound

    def _scores(self) -> Tensor:
        if isinstance(self.x, SparseRows):
            return self.x @ self.w.T.contiguous() + self.b
        scores = torch.empty_like(self.y)
        x_, w_, b_, scores_ = views(self.x, self.w, self.b, scores)
        for start, stop, block in _strips(len(scores), self.block):
            x_s = x_[start:stop].reshape(-1, block, x_.shape[1])  # quicker than in one product
            scores_[start:stop] = (x_s @ w_.T + b_).reshape(stop - start, -1)
        return scores

    def _norms(self) -> Tensor:
        if isinstance(self.x, SparseRows):
            squares = self.x.to(torch.float64).square()
            return (squares @ torch.ones(self.x.shape[1], 1).double()).sqrt()
        return lengths(self.x, 1, dtype=torch.float64)


def _strips(n: int, block: int) -> list[tuple[int, int, int]]:
    """Start, stop and block length of strips that hold whole blocks; the rest is a last block."""
    whole = n - n % block
    starts = range(0, whole, STRIP * block)
    strips = [(start, min(start + STRIP * block, whole), block) for start in starts]
    return strips + [(whole, n, n - whole)] * (whole < n)
