"""The loop over time, in blocks that stay in the cache.

A block of steps is copied to where its steps lie one after the other; each step is then one
multiply-add in place, $h_t = b_t + a_t h_{t-1}$, on all sequences at once; and the block is copied
to the result. So any layout and precision of the inputs will do, and nothing is expanded beyond a
block.
"""

import torch
from torch import Tensor

__all__ = ["factor_gradient", "run"]

_BLOCK = 2**17  # numbers in a block: 1 MB in complex64; torch copies smaller ones with one thread


def run(
    a: Tensor,
    b: Tensor,
    state: Tensor | None,
    reset: Tensor | None,
    *,
    reverse: bool,
    kind: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """The last state `(..., 1, D)`, accumulated in `kind`; all states go to `out`, if given."""
    *batch, T, D = b.shape
    width = max(1, b.shape.numel() // T)
    length = min(T, max(4, _BLOCK // width))
    block = torch.empty(length, *batch, D, dtype=kind, device=b.device)
    steps = _Steps(block, a, kind)
    carry = torch.zeros(*batch, D, dtype=kind, device=b.device)
    if state is not None:
        carry.copy_(state.squeeze(-2))
    fresh = state is None  # then the first state is b itself, not 0 a + b
    some = None if reset is None else reset.movedim(-2, 0).flatten(1).any(1).tolist()
    for start in _starts(T, length, reverse):
        part = slice(start, min(T, start + length))
        body = block[: part.stop - start].movedim(0, -2)
        body.copy_(b[..., part, :])
        steps.load(a, part)
        order = range(part.stop - start)
        last = _walk(steps, carry, fresh, reversed(order) if reverse else order, reset, some, start)
        carry.copy_(last)
        fresh = False
        if out is not None:
            out[..., part, :].copy_(body)
    return carry.unsqueeze(-2)


def _starts(T: int, length: int, reverse: bool) -> range:
    whole = range(0, T, length)
    return whole[::-1] if reverse else whole


class _Steps:
    """The rows of a block, as they lie in memory, and the factors that belong to them."""

    def __init__(self, block: Tensor, a: Tensor, kind: torch.dtype):
        self.states = block.unbind(0)
        self.rows = block.flatten(1).unbind(0)
        self._constant = a.shape[-2] == 1
        length = 1 if self._constant else len(block)
        self._factors = torch.empty(length, *block.shape[1:], dtype=kind, device=a.device)
        rows = self._factors.flatten(1).unbind(0)
        self.factors = rows * len(block) if self._constant else rows
        if self._constant:
            self._factors[0].copy_(a.squeeze(-2))

    def load(self, a: Tensor, part: slice) -> None:
        """Take the factors of these steps."""
        if not self._constant:
            here = self._factors[: part.stop - part.start]
            here.movedim(0, -2).copy_(a[..., part, :])


def _walk(steps, carry, fresh, order, reset, some, start) -> Tensor:
    """Take the steps of a block in this order; the last state."""
    before, states, rows, factors = carry.flatten(), steps.states, steps.rows, steps.factors
    i = 0
    for i in order:
        row = rows[i]
        if fresh:
            fresh = False
        elif some is not None and some[start + i]:
            # The same operation as elsewhere, then undone: other sequences must not notice.
            kept = states[i].clone()
            row.addcmul_(factors[i], before)
            torch.where(reset[..., start + i, :], kept, states[i], out=states[i])
        else:
            row.addcmul_(factors[i], before)
        before = row
    return states[i]


def factor_gradient(
    h: Tensor, g: Tensor, initial: Tensor | None, reset: Tensor | None, reverse: bool, out: Tensor
) -> None:
    """Write to `out` the sum of conj(h before) g over what `out` is constant in, zero at resets."""
    *batch, T, D = h.shape
    length = min(T, max(4, _BLOCK // max(1, h.shape.numel() // T)))
    constant = out.shape[-2] == 1
    factor = h.new_empty(*batch, length, D, dtype=out.dtype)
    total = h.new_zeros(*batch, length, D, dtype=out.dtype) if constant else None
    for start in range(0, T, length):
        part = slice(start, min(T, start + length))
        f, p = factor[..., : part.stop - start, :], g[..., part, :].to(out.dtype)
        _load_before(f, h, initial, part, reverse)
        if reset is not None:
            f.masked_fill_(reset[..., part, :], 0)
        if total is None:
            out[..., part, :] = f.mul_(p).sum_to_size(out[..., part, :].shape)
        else:
            total[..., : part.stop - start, :].addcmul_(f, p)
    if total is not None:
        out.copy_(total.sum_to_size(out.shape))


def _load_before(f: Tensor, h: Tensor, initial: Tensor | None, part: slice, reverse: bool) -> None:
    """The conjugate of the states before these steps."""
    T, length = h.shape[-2], part.stop - part.start
    edge = part.stop == T if reverse else part.start == 0
    inner = slice(0, length - edge) if reverse else slice(int(edge), length)
    shift = 1 if reverse else -1
    there = slice(part.start + inner.start + shift, part.start + inner.stop + shift)
    f[..., inner, :].copy_(h[..., there, :].conj())
    if edge:
        first = slice(length - 1, length) if reverse else slice(0, 1)
        f[..., first, :].copy_(f.new_zeros(()) if initial is None else initial.conj())
