"""Masks of weights: which are the largest, and training that leaves the others at zero."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vademecum.randomness import source

__all__ = ["Masked", "Masks", "pruned", "shuffled"]

Masks = dict[str, Tensor]


def pruned(weights: Mapping[str, Tensor], masks: Masks, share: float, *, scope: str) -> Masks:
    """The masks of the largest weights that are left, so that a share of all weights remains.

    Args:
        weights: The weights by their names.
        masks: Which of them are left so far.
        share: The share of all weights to keep, rounded to a number of weights, at least one.
        scope: "global" to compare all weights, or "layer" to keep the share in each tensor.

    Example:
        >>> w = {"a": torch.tensor([[3.0, -4.0]]), "b": torch.tensor([[1.0, 2.0]])}
        >>> pruned(w, {k: v != 3 for k, v in w.items()}, 0.5, scope="global")
        {'a': tensor([[False,  True]]), 'b': tensor([[False,  True]])}
    """
    sizes = {name: w.detach().abs().where(masks[name], -1.0) for name, w in weights.items()}
    groups = [list(sizes)] if scope == "global" else [[name] for name in sizes]
    found: Masks = {}
    for group in groups:
        flat = torch.cat([sizes[name].flatten() for name in group])
        left = int(sum(int(masks[name].sum()) for name in group))
        count = min(max(round(share * flat.numel()), 1), left)
        keep = torch.zeros_like(flat, dtype=torch.bool)
        keep[flat.topk(count).indices] = True
        parts = keep.split([sizes[name].numel() for name in group])
        found |= {n: part.view_as(sizes[n]) for n, part in zip(group, parts, strict=True)}
    return found


def shuffled(masks: Masks, generator: torch.Generator | None) -> Masks:
    """Random masks that keep as many weights of each tensor."""
    found: Masks = {}
    for name, mask in masks.items():
        order = torch.randperm(mask.numel(), **source(generator, mask.device)).to(mask.device)
        found[name] = mask.flatten()[order].view_as(mask)
    return found


class Masked:
    """While it is entered, weights outside of masks are zero, whatever an optimiser does.

    Their gradients are zero, and the weights themselves are set to zero before each pass.

    Args:
        model: The module that is trained meanwhile.
        masks: The masks by the names of parameters.
    """

    def __init__(self, model: nn.Module, masks: Masks):
        own = dict(model.named_parameters())
        self._model = model
        self._pairs = [(own[name], mask) for name, mask in masks.items()]
        self._handles = []

    def __enter__(self) -> None:
        self._clear()
        for p, mask in self._pairs:
            if p.requires_grad:
                self._handles.append(p.register_hook(lambda g, mask=mask: g * mask))
        hook = self._model.register_forward_pre_hook(lambda *_: self._clear())
        self._handles.append(hook)

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._clear()

    @torch.no_grad()
    def _clear(self) -> None:
        for p, mask in self._pairs:
            p.mul_(mask)
