"""What a scan takes: tensors of one kind, with time before the channels and as many axes each."""

import torch
from torch import Tensor

from vademecum.arguments import broadcasting

__all__ = ["aligned", "of_one_kind", "time_axis"]

_PRECISIONS = {
    torch.bfloat16: "bf16",
    torch.float32: "single", torch.complex64: "single",
    torch.float64: "double", torch.complex128: "double",
}  # fmt: skip


def of_one_kind(
    a: Tensor, b: Tensor, initial: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """`a`, `b` and `initial` in their common dtype, after a look at devices and precisions."""
    named = {"a": a, "b": b, "initial": initial, "reset": reset}
    given = {name: x for name, x in named.items() if x is not None}
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(x).__name__}")
        if name != "reset" and x.dtype not in _PRECISIONS:
            kinds = ", ".join(str(kind).removeprefix("torch.") for kind in _PRECISIONS)
            raise ValueError(f"{name} must be one of {kinds}, got {x.dtype}")
        if x.device != a.device:
            raise ValueError(f"{name} must be on the device of a, {a.device}, got {x.device}")
        if name != "reset" and _PRECISIONS[x.dtype] != _PRECISIONS[a.dtype]:
            raise ValueError(f"{name} must have the precision of a, {a.dtype}, got {x.dtype}")
    if reset is not None and reset.dtype != torch.bool:
        raise ValueError(f"reset must be boolean, got {reset.dtype}")
    kind = torch.promote_types(a.dtype, b.dtype)
    if initial is not None and initial.is_complex() and not kind.is_complex:
        raise ValueError(f"initial must be real where a and b are, got {initial.dtype}")
    return a.to(kind), b.to(kind), None if initial is None else initial.to(kind)


def time_axis(b: Tensor, dim: int) -> int:
    """The axis of time, counted from the last."""
    if isinstance(dim, bool) or not isinstance(dim, int) or not -b.ndim <= dim < b.ndim:
        raise ValueError(f"dim must be an axis of b, got {dim!r} for shape {tuple(b.shape)}")
    time = dim - b.ndim if dim >= 0 else dim
    if not b.shape[time]:
        raise ValueError(f"b must have at least one step, got shape {tuple(b.shape)}")
    return time


def aligned(
    a: Tensor, b: Tensor, initial: Tensor | None, reset: Tensor | None, time: int
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The tensors with axes `(..., T, D)`, equally many, `b` in the shape of the result.

    What is constant has 1 in the place of T, and `reset` 1 in the place of D.
    """
    if reset is not None and not reset.ndim:
        raise ValueError("reset must have an axis of time, got shape ()")
    moved: dict[str, Tensor] = {
        "a": _channels_last(a if a.ndim >= b.ndim else _without_time(a, time), time),
        "b": _channels_last(b, time),
    }
    if initial is not None:
        moved["initial"] = _channels_last(_without_time(initial, time), time)
    if reset is not None:
        moved["reset"] = reset.unsqueeze(-1)
    if torch.compiler.is_compiling():  # where sizes may be symbols, torch's own error must do
        shape = torch.broadcast_shapes(*(x.shape for x in moved.values()))
    else:
        shape = broadcasting("shapes (..., T, D)", {name: x.shape for name, x in moved.items()})
    wide = {name: x[(None,) * (len(shape) - x.ndim)] for name, x in moved.items()}
    if reset is not None:
        wide["reset"] = wide["reset"].expand(*wide["reset"].shape[:-2], shape[-2], 1)
    return wide["a"], wide["b"].expand(shape), wide.get("initial"), wide.get("reset")


def _without_time(x: Tensor, time: int) -> Tensor:
    """One that is constant in time, with an axis of length 1 for it."""
    missing = max(0, -time - 1 - x.ndim)
    return x[(None,) * missing].unsqueeze(time)


def _channels_last(x: Tensor, time: int) -> Tensor:
    """With time before the channels; without channels there is one."""
    return x.unsqueeze(-1) if time == -1 else x.movedim(time, -2)
