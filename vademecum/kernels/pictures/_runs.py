r"""A small network in NTK coordinates, and its training on a few points, step by step.

Gradient descent on half the sum of squared errors with the step size $\eta = 0.2 / \lambda_{\max}$
of the initial kernel, so that $s$ steps are the time $t = \eta s$ of gradient flow.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.kernels import empirical_ntk, ntk_parametrize
from vademecum.models import mlp
from vademecum.randomness import own_randomness

__all__ = ["ACTIVATIONS", "Activation", "BIAS", "GRID", "Run", "WEIGHT", "points", "trained"]

Activation = Literal["ReLU", "tanh", "GELU"]
ACTIVATIONS: dict[str, type[nn.Module]] = {"ReLU": nn.ReLU, "tanh": nn.Tanh, "GELU": nn.GELU}
"""The activations that one can choose."""
WEIGHT = 2.0
"""The variance of weights times the width."""
BIAS = 0.5
"""The variance of biases."""
STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)  # at which a run is looked at
GRID = torch.linspace(-1.6, 1.6, 81)[:, None]


class Run(NamedTuple):
    """A training run, seen at `STEPS`."""

    start: nn.Module
    eta: float
    """The step size."""
    losses: Tensor
    """Half the sum of squared errors after each step, from step 0."""
    curves: Tensor
    """The function on the grid at each of `STEPS`."""
    kernels: Tensor
    """The tangent kernel of the examples at each of `STEPS`."""
    moved: Tensor
    """How far the coordinates are from their start, relative to it, at each of `STEPS`."""


def points() -> tuple[Tensor, Tensor]:
    """Seven examples of a function that no line fits."""
    x = torch.tensor([-1.3, -0.9, -0.5, 0.0, 0.45, 0.8, 1.25])
    return x[:, None], torch.sin(3 * x)


class _Scaled(nn.Module):
    """A network's outputs times a number."""

    def __init__(self, net: nn.Module, scale: float) -> None:
        super().__init__()
        self.net, self.scale = net, scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.net(x)


def drawn(width: int, activation: str) -> nn.Module:
    """A random network in NTK coordinates, all of which are standard normal."""
    with own_randomness(0):
        net = mlp([1, width, 1], ACTIVATIONS[activation])
        ntk_parametrize(net, weight_variance=WEIGHT, bias_variance=BIAS)
        with torch.no_grad():
            for p in net.parameters():
                p.normal_()
    return net


@lru_cache(64)
def trained(width: int, activation: str, scale: float = 1.0, *, centred: bool = False) -> Run:
    """Train a network whose outputs are multiplied by `scale`, less those at the start if centred.

    With a scale the step size falls with its square, so that the same steps take the same time.
    """
    x, y = points()
    start, model = (_Scaled(drawn(width, activation), scale) for _ in range(2))
    at, offset = (centred * start(z).detach()[:, 0] for z in (x, GRID))
    params = list(model.parameters())
    origin = torch.cat([p.detach().flatten().clone() for p in params])
    first = empirical_ntk(model, x, outputs="trace")
    eta = 0.2 / float(torch.linalg.eigvalsh(first.double())[-1])
    descent = torch.optim.SGD(params, lr=eta)
    losses, curves, kernels, moved = [], [], [], []
    for step in range(STEPS[-1] + 1):
        error = model(x)[:, 0] - at - y
        losses.append(error.detach().square().sum() / 2)
        if step in STEPS:
            now = torch.cat([p.detach().flatten() for p in params])
            curves.append(model(GRID).detach()[:, 0] - offset)
            kernels.append(empirical_ntk(model, x, outputs="trace"))
            moved.append((now - origin).norm() / origin.norm())
        descent.zero_grad()
        (error.square().sum() / 2).backward()
        descent.step()
    columns = (torch.stack(c) for c in (losses, curves, kernels, moved))
    return Run(start, eta, *columns)
