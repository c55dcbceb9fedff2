r"""The scan on CUDA devices: one Triton kernel, or three where time must be split.

With many sequences each lane of the device walks through one of them. Few sequences would leave
most of it idle, so time is split into $K$ parts of $S$ steps: one kernel finds the last states of
all parts that start from 0 and the products of their factors, a scan over these $K$ numbers (in
double precision) gives the states between the parts, and the third computes all states from there.
Sequences with a factor beyond 1 in modulus, whose products could overflow, walk through time to
find the states between their parts.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.arrays.triton_code import tl
from vademecum.recurrence.linear_scan import _kernels

__all__ = ["gradients_on_cuda", "scan_on_cuda"]

_LANES = 32  # sequences of a program: one warp, so that a step is one instruction
_BUSY = 132  # programs from which on an H200 has work for all of its processors
_PROGRAMS = 2048  # programs into which few sequences are split; more gain nothing
_SHORT = 1024  # steps that are not worth splitting
_LIMIT = 1 + 2e-6  # what the square of a modulus may reach by rounding
_TILE = 16  # steps that a program takes from shared memory at once
_STAGES = 3  # tiles on their way; more or longer ones are slower on an H200
_HALF_TILE = 16  # numbers of 2 bytes cannot be sent for in advance, so more of them at once
_KINDS = {torch.float64: 1, torch.complex64: 2, torch.complex128: 3}


class _Scan(NamedTuple):
    """The operands as the kernels take them: sequences, time, channels."""

    a: Tensor
    b: Tensor
    initial: Tensor | None
    reset: Tensor | None
    reverse: bool
    late: bool
    conj: bool


def scan_on_cuda(
    a: Tensor, b: Tensor, initial: Tensor | None, reset: Tensor | None, reverse: bool, late: bool
) -> Tensor:
    """All states, as long and as wide as `b`; `late` takes the factor of the step before."""
    if not b.numel():
        return torch.empty_like(b, memory_format=torch.contiguous_format)
    with torch.cuda.device(b.device):
        out, _ = _all_states(_flat(a, b, initial, reset, reverse, late), None)
    return out.view(b.shape)


def gradients_on_cuda(
    a: Tensor, h: Tensor, initial: Tensor | None, reset: Tensor | None, G: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """The derivatives by `b` and by `a`."""
    if not h.numel():
        return torch.empty_like(G, memory_format=torch.contiguous_format), torch.zeros_like(a)
    with torch.cuda.device(G.device):
        flat = _flat(a.conj(), G, None, reset, not reverse, True)
        g, by_a = _all_states(flat, _lanes_last(h.resolve_conj()))
    assert by_a is not None
    g = g.view(G.shape)
    batch = G.shape[:-2]
    constant = a.shape[-2] == 1
    by_a = by_a.sum(1, keepdim=True).view(*batch, 1, -1) if constant else by_a.view(G.shape)
    if initial is not None:
        first = slice(-1, None) if reverse else slice(0, 1)
        product = initial.conj() * g[..., first, :]
        if reset is not None:
            product = product.masked_fill(reset[..., first, :], 0)
        (by_a if constant else by_a[..., first, :]).add_(product)
    return g, by_a.sum_to_size(a.shape).to(a.dtype)


def _flat(a, b, initial, reset, reverse: bool, late: bool) -> _Scan:
    batch = b.shape[:-2]
    conj = a.is_conj()
    a = a.conj() if conj else a

    def wide(x: Tensor) -> Tensor:
        return x.expand(*batch, *x.shape[-2:]).resolve_conj()

    if reset is not None:  # words, since bytes cannot be sent for in advance
        reset = wide(reset).reshape(-1, *reset.shape[-2:]).to(torch.int32)
    initial = None if initial is None else _lanes_last(wide(initial))
    b = _lanes_last(b.resolve_conj())
    return _Scan(_lanes_last(wide(a)), b, initial, reset, reverse, late, conj)


def _lanes_last(x: Tensor) -> Tensor:
    """Sequences, time, channels, with the channels next to each other."""
    x = x.reshape(-1, *x.shape[-2:])
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _all_states(given: _Scan, h: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The states and, if `h` is given, what sums to the derivative by the factors."""
    b = given.b
    N, T, D = b.shape
    out = torch.empty(N, T, D, dtype=b.dtype, device=b.device)
    tile = _HALF_TILE if b.itemsize == 2 else _TILE
    steps = _steps_of_a_part(N * D, T, tile)
    parts = -(-T // steps)
    before = given.initial if parts == 1 else _states_between(given, steps, parts, tile)
    by_a = None
    if h is not None and given.a.shape[1] == 1:
        by_a = torch.empty(N, parts, D, dtype=_accumulated(b.dtype), device=b.device)
    elif h is not None:
        by_a = torch.empty_like(out)
    flags = _flags(given, tile) | {"STATE": before is not None, "GRADIENT": h is not None}
    kernel: Any = _kernels.states
    kernel[_grid(N * D, parts)](
        *_words(given.a, b, out, before, given.reset, h, by_a),
        *_strides(given.a, b, before, given.reset, h), T, steps, D, N * D, **flags,
    )  # fmt: skip
    return out, by_a


def _states_between(given: _Scan, steps: int, parts: int, tile: int) -> Tensor:
    """The state before each part."""
    from vademecum.recurrence.linear_scan import _kernels_of_parts

    a, b, initial, reset, _, _, conj = given
    N, T, D = b.shape
    kind = _accumulated(b.dtype)
    exact = torch.promote_types(kind, torch.float64)
    last = torch.empty(N, parts, D, dtype=kind, device=b.device)
    constant = a.shape[1] == 1
    product = None if constant else torch.empty(N, parts, D, dtype=exact, device=b.device)
    wild = None if constant else torch.empty(N, parts, D, dtype=torch.uint8, device=b.device)
    flags = _flags(given, tile)
    sizes = (T, steps, D, N * D)
    _kernels_of_parts.ends[_grid(N * D, parts)](
        *_words(a, b, reset, last, product, wild),
        *_strides(a, b, reset), *sizes, LIMIT=_LIMIT, **flags,
    )  # fmt: skip
    if product is None or wild is None:
        factor = a.conj() if conj else a
        product = factor.to(exact) ** steps
        beyond = ~(a.abs() <= _LIMIT**0.5)
    else:
        beyond = wild.any(1, keepdim=True)
    anew = None if reset is None else _resets_of_parts(given, steps, parts)
    start = None if initial is None else initial.to(exact)
    between, _ = _all_states(_Scan(product, last.to(exact), start, anew, False, False, False), None)
    zero = torch.zeros(1, 1, 1, dtype=kind, device=b.device)
    first = (zero if initial is None else initial.to(kind)).expand(N, 1, D)
    before = torch.cat((first, between[:, :-1].to(kind)), 1)
    chosen = beyond.expand(N, 1, D).to(torch.uint8).contiguous()
    _kernels_of_parts.repair[_grid(N * D, 1)](
        *_words(a, b, before, reset, chosen, initial),
        *_strides(a, b, reset), 0 if initial is None else initial.stride(0), *sizes, parts, **flags,
    )  # fmt: skip
    return before


def _resets_of_parts(given: _Scan, steps: int, parts: int) -> Tensor:
    """Whether a sequence starts anew within a part, in the order of processing."""
    marks = given.reset
    assert marks is not None
    marks = marks.flip(1) if given.reverse else marks
    if given.late:
        marks = torch.nn.functional.pad(marks[:, :-1], (0, 0, 1, 0))
    marks = torch.nn.functional.pad(marks, (0, 0, 0, parts * steps - marks.shape[1]))
    return marks.view(-1, parts, steps).amax(2, keepdim=True)


def _steps_of_a_part(sequences: int, T: int, tile: int) -> int:
    programs = -(-sequences // _LANES)
    if programs >= _BUSY or T < _SHORT:
        return T
    parts = min(_PROGRAMS // programs, T // (4 * tile))
    return -(-T // (parts * tile)) * tile


def _accumulated(kind: torch.dtype) -> torch.dtype:
    return torch.promote_types(kind, torch.float32)


def _grid(sequences: int, parts: int) -> tuple[int, int]:
    return -(-sequences // _LANES), parts


def _flags(given: _Scan, tile: int) -> dict[str, Any]:
    kind = _KINDS.get(given.b.dtype, 0)
    double = kind in (1, 3)
    return {
        "KIND": kind,
        "ACC": tl.float64 if double else tl.float32,
        "CONSTANT": given.a.shape[1] == 1,
        "REVERSE": given.reverse,
        "LATE": int(given.late),
        "CONJ": given.conj,
        "INITIAL": given.initial is not None,
        "RESET": given.reset is not None,
        "BT": tile,
        "BD": _LANES,
        "STAGES": _STAGES,
        "WIDE": _far(given.a, given.b) >= 2**30,
        "num_warps": 1,
    }


def _far(*tensors: Tensor) -> int:
    """How many numbers lie between the first and the last step."""
    return max(x.shape[1] * max(x.stride(1), x.shape[2]) for x in tensors)


def _words(*tensors: Tensor | None) -> list[Tensor]:
    """Complex numbers as the kernels read them; the first tensor stands for those not given."""
    words: list[Tensor] = []
    for x in tensors:
        if x is None:
            words.append(words[0])
        elif x.dtype == torch.complex128:
            words.append(torch.view_as_real(x))
        else:
            words.append(x.view(torch.int64) if x.dtype == torch.complex64 else x)
    return words


def _strides(*tensors: Tensor | None) -> list[int]:
    """Strides of sequences and of time."""
    return [s for x in tensors for s in ((0, 0) if x is None else (x.stride(0), x.stride(1)))]
