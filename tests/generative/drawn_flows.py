"""Calls of what draws from flows and autoregressive densities in this room."""

from collections.abc import Callable
from typing import Any

import torch

from vademecum import generative


def fixed(make: Callable[[], Any]) -> Any:
    """A density that is always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().double()


FLOWS: dict[str, Callable[[], Any]] = {
    "LinearFlow": lambda: generative.LinearFlow(2),
    "PlanarFlow": lambda: generative.PlanarFlow(2),
    "Compose": lambda: generative.Compose([generative.PlanarFlow(2), generative.LinearFlow(2)]),
    **{
        name: lambda name=name: getattr(generative, name)(2, transforms=2, hidden=(4,))
        for name in ("RealNVP", "SplineFlow", "MAF", "IAF")
    },
}
CALLS: dict[str, Callable[[torch.Generator | None], Any]] = {
    **{
        f"{name}.{method}": lambda g, make=make, method=method: getattr(fixed(make), method)(
            4, generator=g
        )
        for name, make in FLOWS.items()
        for method in ("sample", "rsample_with_log_prob")
    },
    "MADE.sample": lambda g: fixed(lambda: generative.MADE(5, hidden=(4,))).sample(9, generator=g),
}
