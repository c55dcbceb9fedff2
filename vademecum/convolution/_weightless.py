"""Running a model's code for the shapes alone, on the meta device, where nothing is computed.

Tensors without values stand in the places of the model's own and of its inputs, for a while. Code
that asks for values, or makes tensors on a device of its own choice, cannot run so; it runs on real
tensors then, and a warning says it.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.models import (
    ModelState,
    map_tensors,
    named_tensors,
    out_of_memory,
    unwrapped,
    warn_of_slow_path,
)

__all__ = ["drawn_input", "is_shape", "place_of", "run_for_shapes"]

R = TypeVar("R")


def is_shape(x: Any) -> bool:
    """Whether what stands for an input is the shape of one example, checked if so."""
    numbers = isinstance(x, Sequence) and not isinstance(x, str) and not hasattr(x, "_asdict")
    if not numbers or not all(hasattr(v, "__index__") and not isinstance(v, Tensor) for v in x):
        return False
    if not len(x):
        raise ValueError("x must be an input, or the shape of one example, got an empty one")
    for size in x:
        whole("each size in x", size, low=1)
    return True


def place_of(model: nn.Module) -> tuple[torch.dtype, torch.device]:
    """The dtype and the device of the model's first floating-point tensor."""
    for t in [*model.parameters(), *model.buffers()]:
        if t.is_floating_point():
            return t.dtype, t.device
    return torch.get_default_dtype(), torch.get_default_device()


def drawn_input(model: nn.Module, shape: Sequence[int]) -> Tensor:
    """One example of a shape, of zeros, in the model's dtype and on its device."""
    dtype, device = place_of(model)
    return torch.zeros(1, *shape, dtype=dtype, device=device)


def run_for_shapes(
    model: nn.Module, x: Any, function: Callable[[nn.Module, Any], R], *, values: bool = False
) -> R:
    """`function(model, x)` with the model in evaluation, on tensors without values if that works.

    Args:
        model: Any module, which is afterwards as it was.
        x: An input, or the shape of one example.
        function: What runs the model; it may be run twice.
        values: Whether values are needed, and shapes alone not worth a try. They are computed in
            double precision, in which gradients are measured: code may differ between the two.

    Raises:
        ValueError: If the model cannot take such an input.
    """
    model, shape = unwrapped(model), is_shape(x)
    given = drawn_input(model, x) if shape else x
    reason = None
    with torch.inference_mode(False), torch.no_grad():
        if not values:
            try:
                thin = map_tensors(given, _to_meta)
                return ModelState(model, device="meta").run(function, model, thin)
            except (RuntimeError, TypeError, IndexError, ValueError) as error:
                reason = error
        tensors = [*model.parameters(), *model.buffers(), *(t for _, t in named_tensors(given))]
        if any(t.is_meta for t in tensors):
            missing = reason or ValueError("its values are needed, and it is on the meta device")
            raise _not_taken(given, missing) from reason
        try:
            if values:
                state, given = ModelState(model, dtype=torch.float64), map_tensors(given, _doubled)
            else:
                state, given = ModelState(model), map_tensors(given, Tensor.clone)
            found = state.run(function, model, given)
        except (RuntimeError, TypeError, IndexError) as error:
            if out_of_memory(error):
                raise
            raise _not_taken(given, error) from error
    if reason is not None:
        warn_of_slow_path("the model ran on real tensors, not on shapes alone", str(reason))
    return found


def _doubled(t: Tensor) -> Tensor:
    return t.to(torch.float64 if t.is_floating_point() else None, copy=True)


def _to_meta(t: Tensor) -> Tensor:
    return t.detach().to("meta")


def _not_taken(x: Any, error: Exception) -> ValueError:
    shapes = [tuple(t.shape) for _, t in named_tensors(x)]
    said = ", ".join(map(str, shapes)) or type(x).__name__
    return ValueError(f"model does not take inputs of shape {said}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
