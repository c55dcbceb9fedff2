"""Parameters and buffers of a module: their places, with ties."""

from collections.abc import Iterator
from typing import Literal

from torch import Tensor, nn

__all__ = ["tensor_places"]


def tensor_places(
    model: nn.Module, kind: Literal["parameters", "buffers"]
) -> Iterator[tuple[str, Tensor]]:
    """All places of parameters or buffers: shared ones have several, shared modules one.

    So a call with other tensors can name them all itself: torch's own treatment of ties does not
    give a module back that has two names.
    """
    for prefix, module in model.named_modules():
        named = getattr(module, f"named_{kind}")
        for name, tensor in named(recurse=False, remove_duplicate=False):
            yield (f"{prefix}.{name}" if prefix else name), tensor
