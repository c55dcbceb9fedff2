"""One token of a GPT as Triton kernels: products of a few rows with whole matrices, and attention.

With a few rows all time goes into reading matrices and starting kernels. So what comes before a
product (a normalisation) and after it (a bias, gelu, the residual path) is done where its numbers
are, and a block takes five kernels. All sums are in single precision.
"""

from __future__ import annotations  # without Triton there are no names for the annotations

from typing import no_type_check

from vademecum.arrays.triton_code import jit, tl

__all__ = ["added_product", "attended", "normed_product"]


@jit
@no_type_check
def _moments(x, D, n, eps, ROWS: tl.constexpr, WIDE: tl.constexpr):
    """The mean and the inverse deviation of each row of x, (n, D)."""
    rows, whole = tl.arange(0, ROWS), tl.arange(0, WIDE)
    inside = (rows[:, None] < n) & (whole[None, :] < D)
    u = tl.load(x + rows[:, None] * D + whole[None, :], mask=inside, other=0).to(tl.float32)
    mean = tl.sum(u, 1) / D
    off = tl.where(inside, u - mean[:, None], 0.0)
    return mean, 1 / tl.sqrt(tl.sum(off * off, 1) / D + eps)


@jit
@no_type_check
def _gelu(u):
    """By its formula with tanh: (1 + tanh a) / 2 is the logistic function of 2 a."""
    return u * tl.sigmoid(1.5957691216057308 * (u + 0.044715 * u * u * u))


@jit
@no_type_check
def _weights(w, i, columns, D, N, w_in, w_out):
    """Rows i and some columns of a matrix (D, N), with zeros beyond it."""
    at = w + i[:, None].to(tl.int64) * w_in + columns[None, :].to(tl.int64) * w_out
    inside = (i[:, None] < D) & (columns[None, :] < N)
    return tl.load(at, mask=inside, other=0).to(tl.float32)


@jit
@no_type_check
def normed_product(
    x, gain, shift, w, b, out, D, N, w_in, w_out, n, eps,
    ROWS: tl.constexpr, WIDE: tl.constexpr, K: tl.constexpr, COLUMNS: tl.constexpr,
    BIAS: tl.constexpr, GELU: tl.constexpr,
):  # fmt: skip
    """Columns of LN(x) w + b, or of its gelu: x (n, D), w (D, N) with any strides, out (n, N)."""
    mean, scale = _moments(x, D, n, eps, ROWS, WIDE)
    rows = tl.arange(0, ROWS)[:, None]
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(0, D, K):
        i = k + tl.arange(0, K)
        real = i < D
        part = _weights(w, i, columns, D, N, w_in, w_out)
        u = tl.load(x + rows * D + i[None, :], mask=(rows < n) & real[None, :], other=0)
        u = (u.to(tl.float32) - mean[:, None]) * scale[:, None]
        u *= tl.load(gain + i, mask=real, other=0).to(tl.float32)[None, :]
        u += tl.load(shift + i, mask=real, other=0).to(tl.float32)[None, :]
        total += tl.sum(u[:, :, None] * part[None, :, :], 1)
    if BIAS:
        total += tl.load(b + columns, mask=columns < N, other=0).to(tl.float32)[None, :]
    if GELU:
        total = _gelu(total)
    tl.store(out + rows * N + columns[None, :], total, mask=(rows < n) & (columns[None, :] < N))


@jit
@no_type_check
def added_product(
    h, w, b, x, lengths, D, N, w_in, w_out, n,
    ROWS: tl.constexpr, K: tl.constexpr, COLUMNS: tl.constexpr, LONGER: tl.constexpr,
):  # fmt: skip
    """Add columns of h w + b to x, in place: h (n, D), x (n, N); `LONGER` counts a token."""
    rows = tl.arange(0, ROWS)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(0, D, K):
        i = k + tl.arange(0, K)
        part = _weights(w, i, columns, D, N, w_in, w_out)
        inside = (rows[:, None] < n) & (i[None, :] < D)
        u = tl.load(h + rows[:, None] * D + i[None, :], mask=inside, other=0).to(tl.float32)
        total += tl.sum(u[:, :, None] * part[None, :, :], 1)
    total += tl.load(b + columns, mask=columns < N, other=0).to(tl.float32)[None, :]
    inside = (rows[:, None] < n) & (columns[None, :] < N)
    place = x + rows[:, None] * N + columns[None, :]
    tl.store(place, tl.load(place, mask=inside, other=0).to(tl.float32) + total, mask=inside)
    if LONGER and tl.program_id(0) == 0:
        tl.store(lengths + rows, tl.load(lengths + rows, mask=rows < n, other=0) + 1, mask=rows < n)


@jit
@no_type_check
def attended(
    qkv, keys, values, lengths, out, capacity, row_step, head_step, slot_step, scale,
    HEADS: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """One head of one row: write its key and value to the cache, look at all of them so far."""
    head, row = tl.program_id(0), tl.program_id(1)
    filled = tl.minimum(tl.load(lengths + row), capacity)  # later kernels count the token
    i = tl.arange(0, WIDE)
    real = i < SIZE
    own = qkv + row * 3 * HEADS * SIZE + head * SIZE + i
    q = tl.load(own, mask=real, other=0).to(tl.float32) * scale
    k = tl.load(own + HEADS * SIZE, mask=real, other=0)
    v = tl.load(own + 2 * HEADS * SIZE, mask=real, other=0)
    start = row.to(tl.int64) * row_step + head * head_step
    tl.store(keys + start + filled * slot_step + i, k, mask=real)
    tl.store(values + start + filled * slot_step + i, v, mask=real)
    top = tl.sum(q * k.to(tl.float32), 0)  # the token sees itself
    weight, total = 1.0, v.to(tl.float32)
    for slot in range(0, filled, SLOTS):
        j = slot + tl.arange(0, SLOTS)
        at = start + j[:, None] * slot_step + i[None, :]
        inside = (j[:, None] < filled) & real[None, :]
        score = tl.sum(tl.load(keys + at, mask=inside, other=0).to(tl.float32) * q[None, :], 1)
        score = tl.where(j < filled, score, -float("inf"))
        higher = tl.maximum(top, tl.max(score, 0))
        share, fade = tl.exp(score - higher), tl.exp(top - higher)
        found = tl.load(values + at, mask=inside, other=0).to(tl.float32)
        weight = weight * fade + tl.sum(share, 0)
        total = total * fade + tl.sum(share[:, None] * found, 0)
        top = higher
    tl.store(out + row * HEADS * SIZE + head * SIZE + i, total / weight, mask=real)
