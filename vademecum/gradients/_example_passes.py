"""What per-example derivatives have in common: passes in portions, and rows of gradients to fill.

Examples go through in portions, as many at a time as is fastest or as memory allows for. Where the
layers' rules (`vademecum.gradients._layer_rules`) cover a model one forward and one backward pass
bring what they need; else `torch.func` maps the derivative of one example over all.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.gradients._compared_passes import record
from vademecum.gradients._independent_rows import portions_of, study
from vademecum.gradients._layer_calls import LayerCall
from vademecum.gradients._layer_rules import EMBEDDING
from vademecum.gradients._recorded_pass import Pass
from vademecum.gradients.network_function import Functional, functional
from vademecum.models import (
    Loss,
    batches,
    cotangents,
    count_examples,
)
from vademecum.progress import ticking

__all__ = ["fill", "over_batches", "passes", "places"]

_PORTION = 2**27  # bytes at a time for `torch.func`


def passes(
    f: Functional, loss: Loss, x: Any, y: Tensor, memory: int | None, *, progress: bool
) -> Iterator[tuple[slice, Pass | None, list[Tensor | None]]]:
    """Portions of the examples, each with its pass and what came back to the layers.

    Instead of a pass there is None where the layers' rules do not cover the model, perhaps for
    examples of which there was a pass before, which then counts no longer.
    """
    n, plan, row = count_examples(x, y, checked=True), study(f, x), f.size * f.dtype.itemsize
    few, many = max(1, _PORTION // (row + plan.saved)), plan.step(f.device)
    if memory is not None:
        memory = whole("memory", memory, low=1)
        few = min(few, plan.portion(1, row, memory, mapped=True))
        many = min(many, plan.portion(1, row, memory, mapped=not plan.covered))
    with ticking("examples", n, progress=progress) as tick:
        for here in portions_of(slice(0, n), many if plan.covered else few):
            found = record(f, plan, x, here)
            if found is not None:
                done = found[0]
                yield here, done, done.backward(cotangents(loss, done.result, y[here])[None])
            if found is None or not found[1]():
                yield from ((part, None, []) for part in portions_of(here, few))
            tick(here.stop - here.start)


def over_batches(
    instrument: Callable[[Any, Any], Tensor], model: nn.Module, x: Any, y: Any, *, progress: bool
) -> Tensor:
    """What an instrument gives for the examples of a loader, in its order."""
    device = functional(model).device
    with closing(batches(x, y, device=device, progress=progress)) as all_:
        parts = [instrument(*each) for each in all_]
    if not parts:
        raise ValueError("x must hold batches, got an empty DataLoader")
    return torch.cat(parts)


@torch.no_grad()
def fill(done: Pass, found: list[Tensor | None], into: dict[str, Tensor]) -> None:
    """Write the gradients of `g` backward passes, as `(n, g, *shape)`, by the layers' rules.

    The largest first: its rule runs in parallel, and is the first to touch most of the memory.
    """
    written: set[str] = set()
    layers = sorted(zip(done.calls, found, strict=True), key=partial(_size, into), reverse=True)
    for call, b in layers:
        if b is None:
            continue
        names = [(own, name) for own, name in call.names.items() if name in into]
        for add in (False, True):  # to weights that are tied or called twice
            out = {own: into[name] for own, name in names if (name in written) is add}
            if out:
                call.rule.gradient(call.layer, call.a, b, out, add=add)
        written |= {name for _, name in names}
    for name in into.keys() - written:
        into[name].zero_()


def _size(into: dict[str, Tensor], layer: tuple[LayerCall, Any]) -> tuple[int, bool]:
    """How large a layer is; embeddings, which add to few rows, come after a head that is tied."""
    sizes = [into[name].numel() for name in layer[0].names.values() if name in into]
    return max(sizes, default=0), layer[0].rule is not EMBEDDING


def places(f: Functional, flat: Float[Tensor, " *batch P"]) -> dict[str, Tensor]:
    """The parameters' places in rows of gradients, as views in their shapes."""
    parts, rows = flat.split([shape.numel() for shape in f.shapes.values()], -1), flat.shape[:-1]
    return {
        name: part if len(shape) == 1 else part.view(rows + shape)
        for (name, shape), part in zip(f.shapes.items(), parts, strict=True)
    }
