"""Features of examples, batch by batch: tensors as they are, or what a module makes of inputs.

A module is taken in evaluation mode, as many examples at a time as the memory has room for, and is
left as it was. Of features with several axes all but the first are flattened.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.arguments import floats, whole
from vademecum.arrays import portions
from vademecum.models import (
    Output,
    batches,
    bytes_each,
    call_arguments,
    chosen_output,
    count_examples,
    differentiable_output,
    evaluation,
    map_tensors,
    refuse_batch_statistics,
)

__all__ = ["feature_rows", "gathered", "insist_on_pair"]

_PORTION = 2**28  # bytes at a time where no limit is given: a few caches, far below any memory


def feature_rows(
    name: str,
    x: Any,
    features: nn.Module | None,
    *,
    output: Output = None,
    memory: int | None = None,
    progress: bool = False,
) -> Iterator[Tensor]:
    """The features of examples as finite floats (n, d), some at a time, in their order.

    Args:
        name: What errors call the examples.
        x: Features; inputs of `features`; or a `DataLoader` of either, whose targets do not count.
        features: The module whose outputs are the features.
        output: What counts of what the module gives.
        memory: Bytes to use at most for a portion.
        progress: Whether to show a progress bar on standard error.
    """
    if memory is not None:
        whole("memory", memory, low=1)
    room, width = memory or _PORTION, None
    with ExitStack() as stack:
        device = None
        if features is not None:
            refuse_batch_statistics(features)
            device = next((t.device for t in features.parameters()), None)
            stack.enter_context(evaluation(features, fused=True))
        each = stack.enter_context(closing(batches(x, device=device, progress=progress)))
        for inputs, _ in each:
            for rows in _parts(name, inputs, features, output, room):
                if width is not None and rows.shape[1] != width:
                    raise ValueError(
                        f"{name} must have features of one width in all batches, got {width} and"
                        f" {rows.shape[1]}"
                    )
                width = rows.shape[1]
                yield rows
    if width is None:
        raise ValueError(f"{name} must hold batches, got an empty DataLoader")


def gathered(name: str, x: Any, features: nn.Module | None, **knobs: Any) -> Tensor:
    """All features of examples (n, d), at least two of them."""
    if features is None and isinstance(x, Tensor):
        rows = _flat(name, x)
    else:
        parts = list(feature_rows(name, x, features, **knobs))
        rows = parts[0] if len(parts) == 1 else torch.cat(parts)
    if len(rows) < 2:
        raise ValueError(f"{name} must hold at least 2 examples, got {len(rows)}")
    return rows


def insist_on_pair(x: Tensor, y: Tensor) -> None:
    """Refuse features of different widths or devices; they lie along the last axis."""
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(
            f"x and y must have equally many features, got {x.shape[-1]} and {y.shape[-1]}"
        )
    if x.device != y.device:
        raise ValueError(f"x and y must be on one device, got {x.device} and {y.device}")


def _parts(
    name: str, inputs: Any, features: nn.Module | None, output: Output, room: int
) -> Iterator[Tensor]:
    if features is None:
        rows = _flat(name, inputs)
        for part in portions(len(rows), each=16 * rows.shape[1], memory=room):
            yield rows[part]
        return

    def work(given: Any) -> Tensor:
        args, kwargs = call_arguments(given)
        with torch.no_grad():
            found = chosen_output(features(*args, **kwargs), output)
        return differentiable_output(found, count_examples(given), graph=False)

    n = count_examples(inputs)
    fixed, each = bytes_each(work, inputs)
    for part in portions(n, each=each, memory=max(1, room - fixed)):
        found = work(map_tensors(inputs, itemgetter(part)))
        yield floats("outputs of features", found.reshape(len(found), -1))


def _flat(name: str, x: Any) -> Tensor:
    if floats(name, x).ndim < 2 or x.is_complex():
        kind = f"{x.dtype} of shape {tuple(x.shape)}"
        raise ValueError(f"{name} must be real features with examples in rows, got {kind}")
    return x.detach().flatten(1)
