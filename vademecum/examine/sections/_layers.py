"""The layers of a network that have a row for each example, and what they give."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.examine._study import Study
from vademecum.models import call_arguments, chosen_output, evaluation, map_tensors

__all__ = ["label", "layers_of"]

_PORTION = 64  # examples at a time


def label(name: str, width: int) -> str:
    """The end of a long name, which is what tells layers apart."""
    return name if len(name) <= width else f"…{name[1 - width :]}"


def layers_of(
    study: Study, x: Any, reduce: Callable[[Tensor], Tensor], most: int
) -> dict[str, Tensor]:
    """Features (n, d) of layers by name, in the order of their calls.

    Layers are modules without modules of their own that have weights, and what is put together of
    equals: the blocks of a list. Of many, as many as asked for are taken at equal distances, the
    first and the last among them.

    Args:
        study: The network.
        x: The inputs.
        reduce: What to make of each layer's output.
        most: How many layers to look at.
    """
    some = map_tensors(x, lambda t: t[:2])
    shapes = _called(study, some, list(_candidates(study.model)), lambda h: h)
    good = [name for name, h in shapes.items() if h.shape[:1] == (2,) and h.ndim > 1]
    if len(good) > most:
        good = [good[round(i * (len(good) - 1) / (most - 1))] for i in range(most)]
    n = len(next(iter(_tensors(x))))
    parts: dict[str, list[Tensor]] = {name: [] for name in good}
    for i in range(0, n, _PORTION):
        rows = map_tensors(x, lambda t, i=i: t[i : i + _PORTION])
        for name, h in _called(study, rows, good, reduce).items():
            parts[name].append(h)
    return {name: torch.cat(found) for name, found in parts.items() if found}


def _candidates(model: nn.Module) -> list[str]:
    """Blocks of the longest list of modules, and whatever else has weights; or all of these."""
    lists = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList | nn.Sequential) and len(module) > 2
    }
    blocks = {
        name: module for name, module in lists.items() if any(map(_composed, module.children()))
    }
    longest = max(blocks, key=lambda name: len(blocks[name]), default=None)
    found = []
    for name, module in model.named_modules():
        inside = longest is not None and name.startswith(f"{longest}." if longest else "")
        depth = name.removeprefix(f"{longest}." if longest else "").count(".")
        alone = not _composed(module) and next(module.parameters(), None) is not None
        if (depth == 0 and name) if inside else alone:
            found.append(name)
    return found or [name for name, _ in model.named_children()] or [""]


def _composed(module: nn.Module) -> bool:
    return next(module.children(), None) is not None


@torch.no_grad()
def _called(
    study: Study, x: Any, names: list[str], reduce: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """What modules give, those that are called and give a tensor first."""
    found: dict[str, Tensor] = {}

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, result: Any) -> None:
            h = chosen_output(result)
            h = h[0] if isinstance(h, tuple | list) and h else h
            if isinstance(h, Tensor) and h.is_floating_point():
                found.pop(name, None)  # of several calls the last
                found[name] = reduce(h)

        return hook

    with evaluation(study.model, fused=True), ExitStack() as stack:
        for name in names:
            handle = study.model.get_submodule(name).register_forward_hook(note(name))
            stack.callback(handle.remove)
        args, kwargs = call_arguments(x)
        study.model(*args, **kwargs)
    return found


def _tensors(x: Any) -> list[Tensor]:
    from vademecum.models import named_tensors

    return [t for _, t in named_tensors(x)]
