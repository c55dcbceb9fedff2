r"""The scan on the CPU: the loop over time, and for few sequences a loop over parts of it at once.

Few sequences make short vectors, and then starting the operations is what costs. So time is split
into $K$ parts of $S$ steps. All parts run at once from the state 0, which gives their last states
$H_k$; with the products $P_k$ of their factors the true last states are
$h_k = P_k h_{k-1} + H_k$; and all parts run once more, from the true states. Where a factor is
greater than 1 in modulus, $P_k$ may overflow and large numbers cancel: such examples run through
without parts.
"""

import torch
from torch import Tensor

from vademecum.arrays import empty
from vademecum.recurrence.linear_scan._steps import factor_gradient, run

__all__ = ["gradients_on_cpu", "scan_on_cpu"]

_NARROW = 512  # numbers in a step below which time is split; not tuned
_LONG = 256  # steps from which on it is; not tuned
_ROUNDING = 1e-6  # by which a modulus may exceed 1: in a million steps a factor e


def scan_on_cpu(
    a: Tensor, b: Tensor, initial: Tensor | None, reset: Tensor | None, reverse: bool, late: bool
) -> Tensor:
    """All states, as long and as wide as `b`; `late` takes the factor of the step before."""
    h = empty(*b.shape, dtype=b.dtype, device=b.device)
    if not h.numel():
        return h
    if late:  # the first state is b, and the others are those of a scan that starts there
        T = b.shape[-2]
        first, rest = (slice(T - 1, T), slice(0, T - 1)) if reverse else (slice(1), slice(1, T))
        early = slice(1, T) if reverse else slice(0, T - 1)
        initial = b[..., first, :]
        h[..., first, :] = initial
        a = a if a.shape[-2] == 1 else a[..., early, :]
        reset = None if reset is None else reset[..., early, :]
        b, out = b[..., rest, :], h[..., rest, :]
    else:
        out = h
    if b.shape[-2]:
        _scan(a, b, initial, reset, reverse, out)
    return h


def gradients_on_cpu(
    a: Tensor,
    h: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    G: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """The derivatives by `b` and by `a`."""
    g = scan_on_cpu(a.conj(), G, None, reset, not reverse, True)
    kind = torch.promote_types(a.dtype, torch.float32)
    by_a = empty(*a.shape, dtype=kind, device=a.device)
    if not h.numel():
        by_a.zero_()
    else:
        factor_gradient(h, g, initial, reset, reverse, by_a)
    return g, by_a.to(a.dtype)


def _scan(
    a: Tensor, b: Tensor, initial: Tensor | None, reset: Tensor | None, reverse: bool, out: Tensor
) -> None:
    kind = torch.promote_types(b.dtype, torch.float32)
    T = b.shape[-2]
    parts = min(_NARROW * 8 * T // b.shape.numel(), int(T**0.5))
    if b.shape.numel() // T >= _NARROW or T < _LONG or parts < 4:
        run(a, b, initial, reset, reverse=reverse, kind=kind, out=out)
        return
    wild = (~(a.abs() <= 1 + _ROUNDING)).flatten(-2).any(-1).expand(b.shape[:-2])
    if not wild.all():
        _scan_in_parts(a, b, initial, reset, reverse, kind, parts, out)
    if wild.any():

        def rows(x: Tensor) -> Tensor:
            return x.expand(*b.shape[:-2], *x.shape[-2:])[wild]

        start, anew = (None if x is None else rows(x) for x in (initial, reset))
        there = torch.empty_like(rows(b))
        run(rows(a), rows(b), start, anew, reverse=reverse, kind=kind, out=there)
        out[wild] = there


def _scan_in_parts(
    a: Tensor,
    b: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    reverse: bool,
    kind: torch.dtype,
    parts: int,
    out: Tensor,
) -> None:
    T = b.shape[-2]
    steps = T // parts
    rest = T - parts * steps
    main = slice(rest, T) if reverse else slice(0, T - rest)
    tail = slice(0, rest) if reverse else slice(T - rest, T)

    def folded(x: Tensor) -> Tensor:
        if x.shape[-2] == 1:
            return x.unsqueeze(-3)
        return x[..., main, :].unflatten(-2, (parts, steps))

    A, B, R = folded(a), folded(b), None if reset is None else folded(reset)
    states = _states_before(A, B, initial, R, reverse, kind)
    last = run(A, B, states, R, reverse=reverse, kind=kind, out=folded(out))
    if rest:
        state = last[..., 0, :, :] if reverse else last[..., -1, :, :]
        R = None if reset is None else reset[..., tail, :]
        A = a if a.shape[-2] == 1 else a[..., tail, :]
        run(A, b[..., tail, :], state, R, reverse=reverse, kind=kind, out=out[..., tail, :])


def _states_before(A, B, initial, R, reverse, kind) -> Tensor:
    """The state `(..., K, 1, D)` before each part."""
    *batch, parts, steps, D = B.shape
    H = run(A, B, None, R, reverse=reverse, kind=kind)
    exact = torch.promote_types(kind, torch.float64)
    H = H.to(exact)
    if A.shape[-2] == 1:
        P = (A.to(exact) ** steps).expand(H.shape)
    else:
        nothing, one = torch.zeros_like(H[..., :1, :1]), torch.ones_like(H)
        P = run(A, nothing.expand(B.shape), one, R, reverse=reverse, kind=exact)
    anew = None if R is None else R.any(-2, keepdim=True).expand(*batch, parts, 1, 1)
    start = torch.zeros_like(H[..., 0, :, :]) if initial is None else initial.to(exact)
    state = start.expand(*batch, 1, D)
    before: list[Tensor] = []
    for k in range(parts - 1, -1, -1) if reverse else range(parts):
        before.append(state)
        last = H[..., k, :, :]
        state = P[..., k, :, :] * state + last
        state = state if anew is None else torch.where(anew[..., k, :, :], last, state)
    return torch.stack(before[::-1] if reverse else before, -3)
