"""Numbers that are computed with: as the module has them, or narrower where that is safe enough.

Weights stay as they are; `torch.autocast` computes products in bfloat16 or float16. Gradients in
float16 are too small for it unless losses are scaled, which torch's `GradScaler` does: a step whose
gradients overflow is left out, and the scale halved. The schedule of the learning rate counts the
steps that were taken, so that it ends as many steps behind as were left out.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from vademecum.arguments import choice

__all__ = ["PRECISIONS", "casting", "compiled", "exactly_repeatable", "scaler_for"]

PRECISIONS = ("float32", "bfloat16", "float16")
"""What can be computed in, by name."""


def casting(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """A maker of contexts in which losses are computed; "float32" leaves the module's dtype."""
    choice("precision", precision, PRECISIONS)
    if precision == "float32":
        nothing = nullcontext()
        return lambda: nothing
    return lambda: torch.autocast(device.type, getattr(torch, precision))


def scaler_for(precision: str, device: torch.device) -> GradScaler:
    """What scales losses; it does nothing unless the precision is float16."""
    return GradScaler(device.type, enabled=precision == "float16")


def compiled(objective: nn.Module, compile: bool) -> Callable[[Any], Any]:
    """The objective's `losses`, compiled if that is asked for; the module itself is untouched."""
    losses: Any = getattr(objective, "losses", None)
    if not callable(losses):
        raise ValueError(
            "objective must have a method losses(batch) -> {player: loss}, which Supervised(model)"
            f" gives to any model, got {type(objective).__name__}"
        )
    return torch.compile(losses) if compile else losses


@contextmanager
def exactly_repeatable(deterministic: bool) -> Iterator[None]:
    """Let torch take kernels for a while that give the same bits each time, or refuse."""
    if not deterministic:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    benchmark = torch.backends.cudnn.benchmark
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.backends.cudnn.benchmark = benchmark
