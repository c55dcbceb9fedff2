"""Descent along signs: the size of the gradient does not count."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals
from vademecum.optimization import SignSGD
from vademecum.optimization.claims._walks import walk


def sign(g: Tensor) -> Tensor:
    """The sign of each coordinate, by comparisons."""
    return (g > 0).to(g) - (g < 0).to(g)


def normalised(g: Tensor) -> Tensor:
    """The gradient over its largest entry."""
    return g / g.abs().max()


def plain(g: Tensor) -> Tensor:
    """The gradient itself."""
    return g


@claim(
    by="identity",
    sources=("A-082", "B-257"),
    budget=0.3,
    short=r"x_{k + 1} = x_k - \eta_k \operatorname{sign}(\nabla f_{i_k}(x_k))",
)
def signsgd(direction: Callable[[Tensor], Tensor] = sign, d: int = 7):
    r"""SignSGD.

    $x_{k + 1} = x_k - \eta_k \operatorname{sign}(\nabla f_{i_k}(x_k))$, coordinate by coordinate:
    every coordinate moves by $\eta_k$, or by 0 where its gradient is 0, and the step does not
    change when coordinates of the gradient are multiplied by positive numbers, so that one bit a
    coordinate has to be sent (two, if zeros are told from the rest).

    `SignSGD` takes steps from 0, where the displacement is the step bit by bit, along random
    gradients of sizes from $10^{-30}$ to $10^{30}$ with two zeros among them. On
    $\frac12 \sum_j h_j x_j^2$ each $|x_j|$ falls by $\eta$ a step until it is at most $\eta$, where
    it stays.

    Knobs:
        direction: The direction along which to step, of the gradient.
        d: The dimension.
    """
    for eta in (0.25, 1e-3):
        for size in (1e-30, 1.0, 1e30):
            g = size * torch.randn(d)
            g[1] = g[4] = 0.0
            step = _step(g, eta)
            yield equals("step", step, -eta * direction(g), tol=0.0, eta=eta, size=size)
            yield equals("largest coordinate of the step", step.abs().max(), eta, tol=0.0, eta=eta)
            moved = (step.abs() == eta).sum()
            yield equals("coordinates that move by $\\eta$", int(moved), d - 2, eta=eta)
            scaled = _step(g * (0.1 + 9 * torch.rand(d)), eta)
            yield equals("step of a rescaled gradient", scaled, -eta * direction(g), tol=0.0)
    eta, h, start = 0.125, 0.5 + torch.rand(d), 4 * torch.randn(d)
    path = walk(partial(SignSGD, lr=eta), lambda x: (h * x * x).sum() / 2, start, 60)
    x, inside = path.abs(), path.abs() <= eta
    expected = x[:-1] - eta * direction(h * path[:-1]).abs()
    fall = torch.where(inside[:-1], x[1:], expected)
    yield equals("distance from the optimum after a step", x[1:], fall)
    yield at_most("distance of what was within a step", x[1:][inside[:-1]], eta)


def _step(g: Tensor, eta: float) -> Tensor:
    """The displacement of a step from 0 along a gradient."""
    return walk(partial(SignSGD, lr=eta), lambda x: g @ x, torch.zeros(len(g)), 1)[1]


signsgd.foil(r"the normalised gradient $g / \|g\|_\infty$", refuted_by="step", direction=normalised)
signsgd.foil("the gradient itself", refuted_by="step", direction=plain)
