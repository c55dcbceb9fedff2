"""Triton kernels for time in parts: the ends of the parts, and the states between wild ones."""

from __future__ import annotations  # without Triton there are no names for the annotations

from typing import no_type_check

from vademecum.arrays.triton_code import jit, tl
from vademecum.recurrence.linear_scan._kernels import _read, _step, _tile, _write

__all__ = ["ends", "repair"]


@jit
@no_type_check
def ends(
    a, b, reset, last, product, wild,
    sa_n, sa, sb_n, sb, sr_n, sr, T, S, D, sequences,
    KIND: tl.constexpr, ACC: tl.constexpr, CONSTANT: tl.constexpr, REVERSE: tl.constexpr,
    LATE: tl.constexpr, CONJ: tl.constexpr, INITIAL: tl.constexpr, RESET: tl.constexpr,
    LIMIT: tl.constexpr, WIDE: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """The last state of each part that starts from 0, and the product of its factors."""
    lane = tl.program_id(0).to(tl.int64) * BD + tl.arange(0, BD)
    part, inside = tl.program_id(1), lane < sequences
    n, d = lane // D, lane % D
    W: tl.constexpr = 2 if KIND == 3 else 1
    a, b, reset = a + W * (n * sa_n + d), b + W * (n * sb_n + d), reset + n * sr_n
    begin, stop = part * S, tl.minimum(T, part * S + S)
    f, g = tl.zeros((BD,), ACC), tl.zeros((BD,), ACC)
    p, q = f, g
    if CONSTANT:
        p, q = _read(a, 0, inside, KIND, ACC)
    c, e = tl.full((BD,), 1, tl.float64), tl.zeros((BD,), tl.float64)
    beyond = tl.zeros((BD,), tl.int32)
    for t in tl.range(begin, stop, BT, num_stages=STAGES):
        xs, us, rs = _tile(
            a, b, reset, sa, sb, sr, t, stop, T, inside,
            BT, KIND, CONSTANT, REVERSE, LATE, RESET, WIDE,
        )  # fmt: skip
        for i in tl.static_range(BT):
            f, g, u, v = _step(
                f, g, xs, us, rs, p, q, i, t > 0, KIND, ACC, CONSTANT, CONJ, RESET, INITIAL
            )
            if not CONSTANT:
                if KIND >= 2:
                    beyond = beyond | (u * u + v * v <= LIMIT).to(tl.int32) ^ 1
                    u, v = u.to(tl.float64), v.to(tl.float64)
                    c, e = c * u - e * v, c * v + e * u
                else:
                    beyond = beyond | (u * u <= LIMIT).to(tl.int32) ^ 1
                    c = c * u.to(tl.float64)
    at = (n * tl.num_programs(1) + part) * D + d
    _write(last, at, f, g, inside, KIND)
    if not CONSTANT:
        _write(product, at, c, e, inside, 3 if KIND >= 2 else 1)
        tl.store(wild + at, beyond, mask=inside)


@jit
@no_type_check
def repair(
    a, b, before, reset, wild, initial,
    sa_n, sa, sb_n, sb, sr_n, sr, si_n, T, S, D, sequences, parts,
    KIND: tl.constexpr, ACC: tl.constexpr, CONSTANT: tl.constexpr, REVERSE: tl.constexpr,
    LATE: tl.constexpr, CONJ: tl.constexpr, INITIAL: tl.constexpr, RESET: tl.constexpr,
    WIDE: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The states before the parts once more, step by step, where a factor exceeds 1."""
    lane = tl.program_id(0).to(tl.int64) * BD + tl.arange(0, BD)
    inside = lane < sequences
    n, d = lane // D, lane % D
    chosen = inside & (tl.load(wild + lane, mask=inside, other=0) != 0)
    W: tl.constexpr = 2 if KIND == 3 else 1
    a, b, reset = a + W * (n * sa_n + d), b + W * (n * sb_n + d), reset + n * sr_n
    f, g = tl.zeros((BD,), ACC), tl.zeros((BD,), ACC)
    p, q = f, g
    if INITIAL:
        f, g = _read(initial, n * si_n + d, inside, KIND, ACC)
    if CONSTANT:
        p, q = _read(a, 0, inside, KIND, ACC)
    stop = tl.where(tl.max(chosen.to(tl.int32), 0) != 0, (parts - 1) * S, 0)
    for t in tl.range(0, stop, BT, num_stages=STAGES):
        xs, us, rs = _tile(
            a, b, reset, sa, sb, sr, t, T, T, inside,
            BT, KIND, CONSTANT, REVERSE, LATE, RESET, WIDE,
        )  # fmt: skip
        for i in tl.static_range(BT):
            f, g, _, _ = _step(
                f, g, xs, us, rs, p, q, i, t > 0, KIND, ACC, CONSTANT, CONJ, RESET, INITIAL
            )
        part = (t + BT) // S
        write = chosen & (part * S == t + BT)
        _write(before, (n * parts + part) * D + d, f, g, write, KIND)
