"""Stacks of convolutions along one axis, and what their outputs are made of, index by index."""

from torch import nn

__all__ = ["Layer", "extent", "seen_by", "stack"]

Layer = tuple[int, int, int]
"""Taps, stride and dilation."""


def stack(layers: list[Layer]) -> nn.Sequential:
    """Convolutions of one channel, one after the other, with positive weights."""
    made = [nn.Conv1d(1, 1, k, stride=s, dilation=d, bias=False) for k, s, d in layers]
    for layer in made:
        nn.init.uniform_(layer.weight, 0.5, 1.5)
    return nn.Sequential(*made)


def seen_by(layers: list[Layer], unit: int = 0) -> set[int]:
    """The inputs that an output is made of, index by index."""
    found = {unit}
    for k, s, d in reversed(layers):
        found = {s * o + d * t for o in found for t in range(k)}
    return found


def extent(found: set[int]) -> int:
    """From the first to the last."""
    return max(found) - min(found) + 1
