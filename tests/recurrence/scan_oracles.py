"""The loop that a scan must agree with, and drawn operands."""

import torch
from torch import Tensor


def loop(a, b, *, initial=None, reset=None, reverse=False) -> Tensor:
    """The recurrence step by step, with time as the last axis but one."""
    T = b.shape[-2]
    states: list[Tensor] = [b[..., 0, :]] * T
    h = torch.zeros_like(b[..., 0, :]) if initial is None else initial
    for t in reversed(range(T)) if reverse else range(T):
        factor = a if a.ndim < b.ndim else a[..., t, :]
        h = factor * h + b[..., t, :]
        if reset is not None:
            h = torch.where(reset[..., t, None], b[..., t, :], h)
        states[t] = h
    return torch.stack(torch.broadcast_tensors(*states), -2)


def drawn(*shape: int, dtype=torch.float64, modulus: float | None = None) -> Tensor:
    """Normal numbers; with `modulus` factors of moduli up to it, of all phases or signs."""
    if modulus is None:
        x = torch.randn(shape, dtype=torch.complex128)
    else:
        x = torch.polar(
            modulus * torch.rand(shape, dtype=torch.float64),
            7 * torch.rand(shape, dtype=torch.float64),
        )
    return x.to(dtype) if dtype.is_complex else x.real.to(dtype)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The double precision of a dtype."""
    return torch.promote_types(dtype, torch.float64)


def relative_error(got: Tensor, want: Tensor) -> float:
    """The largest error, relative to the largest entry."""
    if not want.numel():
        return 0.0
    return float((got.to(want) - want).abs().max() / want.abs().max().clamp(min=1e-30))
