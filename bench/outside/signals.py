"""Signals against hooks: the second moment of what each module without submodules gives."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from bench.outside.cases import Subject
from bench.outside.derivatives import Check, _loss, _seeded
from bench.outside.oracles import Oracle
from vademecum.models import ModelState, call_arguments, named_tensors, unwrapped
from vademecum.regularization import signal_propagation

__all__ = ["SIGNALS"]


def _signals(s: Subject, o: Oracle) -> Iterator[str]:
    found = signal_propagation(s.model, s.x, s.y, generator=_seeded(), **_loss(s))
    wanted = _by_hooks(unwrapped(s.model), s.x)
    ours = {(r.name, r.call): r.forward.second_moment for r in found.rows if r.kind[0].isupper()}
    for place, q in wanted.items():
        if place not in ours:
            yield f"no row for call {place[1]} of {place[0]}"
        elif abs(ours[place] - q) > 1e-2 * q + 1e-12:
            yield f"second moment of {place[0]} is {ours[place]:.6g}, not {q:.6g}"


def _by_hooks(model: nn.Module, x: Any) -> dict[tuple[str, int], float]:
    found: dict[tuple[str, int], float] = {}
    calls: dict[str, int] = {}
    handles: list[Any] = []

    def watch(name: str, module: nn.Module) -> None:
        def seen(_: Any, __: Any, out: Any) -> None:
            t = next(
                (t for _, t in named_tensors(out) if t.is_floating_point() and t.numel()), None
            )
            if t is not None:
                call = calls[name] = calls.get(name, -1) + 1
                found[name, call] = float(t.detach().double().square().mean())

        handles.append(module.register_forward_hook(seen))

    for name, module in model.named_modules():
        computed = ".parametrizations." in f".{name}."  # weights, which are no signals
        inner = any(True for _ in module.children())
        if not (computed or inner or module._forward_hooks):  # hooks come after what is measured
            watch(name, module)
    args, kwargs = call_arguments(x)
    try:
        with torch.no_grad():
            ModelState(model).run(lambda: model(*args, **kwargs))
    finally:
        for handle in handles:
            handle.remove()
    return found


SIGNALS: dict[str, Check] = {"signal_propagation": _signals}
"""What asks it, by its name."""
