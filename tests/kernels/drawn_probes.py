"""Calls of what probes tangent kernels and Hessians with random vectors in this room."""

import torch
from torch import nn

from vademecum import kernels

X = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)


def tanh() -> nn.Sequential:
    """A network that is always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 2)).double()


def spectrum(generator: torch.Generator | None) -> kernels.NTKSpectrum:
    """The largest eigenvalue, from products that start at a random vector."""
    x = torch.linspace(-1, 1, 120, dtype=torch.float64).reshape(40, 3).sin()
    return kernels.ntk_spectrum(tanh(), x, count=1, tol=1e-2, generator=generator)


CALLS = {
    "ntk_spectrum": spectrum,
    "lazy_ratio": lambda g: kernels.lazy_ratio(tanh(), X, generator=g),
}
