"""The bounds of `robustness` on models from outside, against runs of a twin near the inputs."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.outside.cases import Subject
from bench.outside.derivatives import Check
from bench.outside.oracles import Oracle
from vademecum.robustness import crown_bounds, interval_bounds, lipschitz

__all__ = ["CERTIFIED", "UNKNOWN"]

UNKNOWN = (
    "bounds are known|must be traceable|one example at a time|at least two axes|not overflow"
    "|is not known in this form|float32 or float64|outputs that are not those|as model is"
    "|does not take inputs|depends on its input|independently in evaluation"
)
"""What bounds say to models that they do not know, which most are."""


def _runs(s: Subject, o: Oracle, radius: float) -> tuple[Tensor, Tensor]:
    """Inputs in the cubes around those of a subject, and what the twin gives for them."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(8, *s.x.shape, generator=generator, dtype=s.x.dtype) * 2 - 1
    points = torch.cat([s.x[None], s.x + radius * noise * (1 - 2**-8)])
    with torch.no_grad():
        return points, torch.stack([o.output_of(x).detach() for x in points])


def _bounded(s: Subject, o: Oracle, *, bounds: Callable[..., Any]) -> Iterator[str]:
    radius = 1e-3 * float(s.x.abs().max())
    found = bounds(s.model, s.x, norm="linf", radius=radius, box=None, output=s.output)
    _, images = _runs(s, o, radius)
    if found.lower.shape != images.shape[1:]:
        yield f"bounds have shape {tuple(found.lower.shape)}, not {tuple(images.shape[1:])}"
        return
    outside = ~((found.lower <= images) & (images <= found.upper))
    if bool(outside.any()):
        yield f"{int(outside.sum())} outputs lie outside of their bounds"


def _steep(s: Subject, o: Oracle) -> Iterator[str]:
    radius = 1e-3 * float(s.x.abs().max())
    generator = torch.Generator().manual_seed(0)
    found = lipschitz(
        s.model, s.x[:2], norm="linf", radius=radius, box=None, output=s.output,
        generator=generator,
    )  # fmt: skip
    if not bool((found.lower <= found.upper).all()):
        yield "the lower bound is above the upper one"
    points, images = _runs(s, o, radius)
    moved = (images[1:, :2] - images[:1, :2]).flatten(2).abs().amax(2).double()
    apart = (points[1:, :2] - points[:1, :2]).flatten(2).abs().amax(2).double()
    noise = 1e3 * torch.finfo(o.case.coarse).eps * (1 + images.abs().max())
    if bool((moved > apart * found.upper + noise).any()):
        yield "a pair of inputs is steeper than the upper bound"


CERTIFIED: dict[str, Check] = {
    "interval_bounds": partial(_bounded, bounds=interval_bounds),
    "crown_bounds": partial(_bounded, bounds=crown_bounds),
    "lipschitz": _steep,
}
"""What asks each instrument, by its name."""
