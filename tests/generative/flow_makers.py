"""Flows of every kind, with parameters far from where they begin."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.generative import IAF, MAF, Compose, LinearFlow, PlanarFlow, RealNVP, SplineFlow

SMALL: Any = {"transforms": 3, "hidden": (9, 12)}


def composed(d: int, context: int) -> Compose:
    first = LinearFlow(d, context=context)
    return Compose([first, PlanarFlow(d), MAF(d, transforms=1, hidden=(7,), context=context)])


MAKERS: dict[str, Callable[[int, int], Any]] = {
    "qr": lambda d, c: LinearFlow(d, context=c),
    "triangular": lambda d, c: LinearFlow(d, kind="triangular", context=c),
    "diagonal": lambda d, c: LinearFlow(d, kind="diagonal", context=c),
    "planar, tanh": lambda d, c: PlanarFlow(d, context=c),
    "planar, logistic": lambda d, c: PlanarFlow(d, activation="logistic", context=c),
    "RealNVP": lambda d, c: RealNVP(d, context=c, **SMALL),
    "SplineFlow": lambda d, c: SplineFlow(d, context=c, bins=5, bound=3.0, **SMALL),
    "MAF": lambda d, c: MAF(d, context=c, activation=nn.Tanh, **SMALL),
    "IAF": lambda d, c: IAF(d, context=c, **SMALL),
    "Compose": composed,
}
COUPLINGS = ("RealNVP", "SplineFlow")  # which need two coordinates


def made(name: str, d: int = 5, context: int = 0, *, spread: float = 1.5, seed: int = 0) -> Any:
    """A flow in double precision, its parameters moved away from where they begin."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        flow = MAKERS[name](d, context).double()
        for p in flow.parameters():
            p.data.mul_(spread).add_(0.2 * torch.randn_like(p))
    return flow


def points(n: int, d: int, *, scale: float = 1.5, seed: int = 1) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, d, generator=g, dtype=torch.float64)


def jacobians(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The Jacobian of a map of rows at each row."""
    rows = [torch.autograd.functional.jacobian(lambda v: f(v[None])[0], row) for row in x]
    return torch.stack([row for row in rows if isinstance(row, Tensor)])
