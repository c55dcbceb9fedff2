"""The recurrence as Triton kernels: a lane holds a sequence and walks through time.

The steps of a tile follow one another in registers, exactly as in the loop, while the tiles after
it are on their way to shared memory (`STAGES` of them), and each element is read and written once.
Complex numbers of 2 x 32 bits travel as one word of 64 bits. Times `t` are counted in the order of
processing; the place in memory is `T - 1 - t` for a scan from the end.

`KIND` is 0 for what is accumulated in float32, 1 for float64, 2 for complex64 and 3 for complex128.
Of real numbers the imaginary part is the real one, and nobody looks at it.
"""

from __future__ import annotations  # without Triton there are no names for the annotations

from typing import no_type_check

from vademecum.arrays.triton_code import jit, tl

__all__ = ["states"]


@jit
@no_type_check
def _pair(w, z, KIND: tl.constexpr, ACC: tl.constexpr):
    """Real and imaginary part of a number that was read as `w`, or as `w` and `z`."""
    if KIND == 2:
        x = (w & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)
        y = (w >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    elif KIND == 3:
        x, y = w, z
    else:
        x = w.to(ACC)
        y = x
    return x, y


@jit
@no_type_check
def _read(p, at, mask, KIND: tl.constexpr, ACC: tl.constexpr):
    w = tl.load(p + (2 * at if KIND == 3 else at), mask=mask, other=0)
    z = tl.load(p + 2 * at + 1, mask=mask, other=0) if KIND == 3 else w
    return _pair(w, z, KIND, ACC)


@jit
@no_type_check
def _write(p, at, x, y, mask, KIND: tl.constexpr):
    if KIND == 2:
        low = x.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
        high = y.to(tl.int32, bitcast=True).to(tl.int64) << 32
        tl.store(p + at, low | high, mask=mask)
    elif KIND == 3:
        tl.store(p + 2 * at, x, mask=mask)
        tl.store(p + 2 * at + 1, y, mask=mask)
    else:
        tl.store(p + at, x, mask=mask)


@jit
@no_type_check
def _rows(
    p, stride, t, low, stop, T, inside,
    BT: tl.constexpr, KIND: tl.constexpr, REVERSE: tl.constexpr, SHIFT: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """What belongs to the steps from `t` on, `SHIFT` steps later; 0 outside of `low` to `stop`."""
    words = ()
    for i in tl.static_range(BT):
        s = t + i
        at = (T - 1 - SHIFT - s) if REVERSE else (s + SHIFT)
        at = (at.to(tl.int64) if WIDE else at) * stride
        mask = inside & (s >= low) & (s < stop)
        if KIND == 3:
            x = tl.load(p + 2 * at, mask=mask, other=0)
            y = tl.load(p + 2 * at + 1, mask=mask, other=0)
            words = words + (x, y)  # noqa: RUF005 - Triton knows no starred tuples
        else:
            x = tl.load(p + at, mask=mask, other=0)
            words = words + (x,)  # noqa: RUF005
    return words


@jit
@no_type_check
def _row(words, i: tl.constexpr, KIND: tl.constexpr, ACC: tl.constexpr):
    """Real and imaginary part of row i."""
    first: tl.constexpr = 2 * i if KIND == 3 else i
    second: tl.constexpr = 2 * i + 1 if KIND == 3 else i
    return _pair(words[first], words[second], KIND, ACC)


@jit
@no_type_check
def _tile(
    a, b, reset, sa, sb, sr, t, stop, T, inside,
    BT: tl.constexpr, KIND: tl.constexpr, CONSTANT: tl.constexpr, REVERSE: tl.constexpr,
    LATE: tl.constexpr, RESET: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Inputs, factors and resets of the steps from `t` on."""
    xs = _rows(b, sb, t, 0, stop, T, inside, BT, KIND, REVERSE, 0, WIDE)
    us = ()
    rs = ()
    if not CONSTANT:
        us = _rows(a, sa, t, LATE, stop, T, inside, BT, KIND, REVERSE, -LATE, WIDE)
    if RESET:
        rs = _rows(reset, sr, t, LATE, stop, T, inside, BT, 0, REVERSE, -LATE, WIDE)
    return xs, us, rs


@jit
@no_type_check
def _step(
    f, g, xs, us, rs, p, q, i: tl.constexpr, lives,
    KIND: tl.constexpr, ACC: tl.constexpr, CONSTANT: tl.constexpr, CONJ: tl.constexpr,
    RESET: tl.constexpr, INITIAL: tl.constexpr,
):  # fmt: skip
    """The state after (f, g), and the factor; a tile that does not `live` begins with its input."""
    x, y = _row(xs, i, KIND, ACC)
    u, v = p, q
    if not CONSTANT:
        u, v = _row(us, i, KIND, ACC)
    if KIND >= 2:
        if CONJ:
            v = -v
        k = x + u * f
        k = k - v * g
        m = y + u * g
        m = m + v * f
    else:
        k = x + u * f
        m = k
    if i == 0 and not INITIAL:
        k, m = tl.where(lives, k, x), tl.where(lives, m, y)
    if RESET:
        anew = rs[i] != 0
        k, m = tl.where(anew, x, k), tl.where(anew, y, m)
        u, v = tl.where(anew, 0.0, u), tl.where(anew, 0.0, v)
    return k, m, u, v


@jit
@no_type_check
def _earlier(
    h, reset, sh, sr, t, stop, T, inside,
    BT: tl.constexpr, KIND: tl.constexpr, REVERSE: tl.constexpr, RESET: tl.constexpr,
    GRADIENT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """States before the steps from `t` on, and their resets, where gradients are wanted."""
    ks = ()
    zs = ()
    if GRADIENT:
        ks = _rows(h, sh, t, 0, T - 1, T, inside, BT, KIND, REVERSE, 1, WIDE)
        if RESET:
            zs = _rows(reset, sr, t, 0, stop, T, inside, BT, 0, REVERSE, 0, WIDE)
    return ks, zs


@jit
@no_type_check
def _pulled(
    f, g, ks, zs, i: tl.constexpr,
    KIND: tl.constexpr, ACC: tl.constexpr, RESET: tl.constexpr,
):  # fmt: skip
    """The derivative by the factor of a step: the conjugate state before it times (f, g)."""
    x, y = _row(ks, i, KIND, ACC)
    z = x * f
    w = z
    if KIND >= 2:
        z, w = z + y * g, x * g - y * f
    if RESET:
        z, w = tl.where(zs[i] != 0, 0.0, z), tl.where(zs[i] != 0, 0.0, w)
    return z, w


@jit
@no_type_check
def _place(t, T, D, REVERSE: tl.constexpr, WIDE: tl.constexpr):
    """Where step `t` lies in the result."""
    at = (T - 1 - t) if REVERSE else t
    return (at.to(tl.int64) if WIDE else at) * D


@jit
@no_type_check
def states(
    a, b, out, before, reset, h, by_a,
    sa_n, sa, sb_n, sb, ss_n, ss, sr_n, sr, sh_n, sh, T, S, D, sequences,
    KIND: tl.constexpr, ACC: tl.constexpr, CONSTANT: tl.constexpr, REVERSE: tl.constexpr,
    LATE: tl.constexpr, CONJ: tl.constexpr, INITIAL: tl.constexpr, STATE: tl.constexpr,
    RESET: tl.constexpr, GRADIENT: tl.constexpr, WIDE: tl.constexpr, BT: tl.constexpr,
    BD: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """All states of a part of the time; with `GRADIENT` also the derivative by the factors."""
    lane = tl.program_id(0).to(tl.int64) * BD + tl.arange(0, BD)
    part, inside = tl.program_id(1), lane < sequences
    n, d = lane // D, lane % D
    W: tl.constexpr = 2 if KIND == 3 else 1  # words of a number
    a, b, reset = a + W * (n * sa_n + d), b + W * (n * sb_n + d), reset + n * sr_n
    begin, stop = part * S, tl.minimum(T, part * S + S)
    f, g = tl.zeros((BD,), ACC), tl.zeros((BD,), ACC)
    c, e, p, q = f, g, f, g
    if STATE:
        f, g = _read(before, n * ss_n + part * ss + d, inside, KIND, ACC)
    if CONSTANT:
        p, q = _read(a, 0, inside, KIND, ACC)
    by = by_a + W * (n * T * D + d)
    out, h = out + W * (n * T * D + d), h + W * (n * sh_n + d)
    for t in tl.range(begin, stop, BT, num_stages=STAGES):
        xs, us, rs = _tile(
            a, b, reset, sa, sb, sr, t, stop, T, inside,
            BT, KIND, CONSTANT, REVERSE, LATE, RESET, WIDE,
        )  # fmt: skip
        ks, zs = _earlier(
            h, reset, sh, sr, t, stop, T, inside, BT, KIND, REVERSE, RESET, GRADIENT, WIDE
        )
        k, m = tl.zeros((BD,), ACC), tl.zeros((BD,), ACC)
        for i in tl.static_range(BT):
            good = inside & (t + i < stop)
            row = _place(t + i, T, D, REVERSE, WIDE)
            f, g, _, _ = _step(
                f, g, xs, us, rs, p, q, i, t > 0, KIND, ACC, CONSTANT, CONJ, RESET, INITIAL
            )
            _write(out, row, f, g, good, KIND)
            if GRADIENT:
                z, w = _pulled(f, g, ks, zs, i, KIND, ACC, RESET)
                if CONSTANT:
                    k, m = k + tl.where(good, z, 0.0), m + tl.where(good, w, 0.0)
                else:
                    _write(by, row, z, w, good, KIND)
        c, e = c + k, e + m
    if GRADIENT and CONSTANT:
        _write(by_a, (n * tl.num_programs(1) + part) * D + d, c, e, inside, KIND)
