"""The recurrence on the CPU: one multiply-add for each step, written where the result belongs."""

import torch
from torch import Tensor

from vademecum.arrays import empty

__all__ = ["scan_on_cpu"]


def scan_on_cpu(
    a: Tensor, b: Tensor, initial: Tensor | None, reset: Tensor | None, reverse: bool, late: bool
) -> Tensor:
    """All states, as long and as wide as `b`; `late` takes the factor of the step before."""
    kind = torch.promote_types(b.dtype, torch.float32)
    a, b_in, b = a.to(kind), b, b.to(kind)
    h = empty(*b.shape, dtype=kind, device=b.device)
    if h.numel():
        _steps(a.resolve_conj(), b.resolve_conj(), initial, reset, reverse, late, h)
    return h.to(b_in.dtype)


def _steps(
    a: Tensor,
    b: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    reverse: bool,
    late: bool,
    h: Tensor,
) -> None:
    """Write the states into `h`."""
    T = b.shape[-2]
    places = range(T - 1, -1, -1) if reverse else range(T)
    inputs, states = b.unbind(-2), h.unbind(-2)
    factors = a.unbind(-2) if a.shape[-2] > 1 else a.unbind(-2) * T
    resets = None if reset is None else reset.unbind(-2)
    some = [False] * T if reset is None else _somewhere(reset)
    state = None if initial is None else initial.to(h.dtype).resolve_conj().squeeze(-2)
    before = places[0]
    for t in places:
        source = before if late else t
        if state is None:
            state = states[t].copy_(inputs[t])
        else:
            state = torch.addcmul(inputs[t], factors[source], state, out=states[t])
            if resets is not None and some[source]:
                torch.where(resets[source], inputs[t], state, out=state)
        before = t


def _somewhere(reset: Tensor) -> list[bool]:
    return reset.movedim(-2, 0).flatten(1).any(1).tolist()
