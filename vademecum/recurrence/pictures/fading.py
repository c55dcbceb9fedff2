"""Norms of Jacobians through time, for a network whose spectral radius and units one drags."""

import math
from functools import cache
from typing import Annotated, Any, Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vademecum.canvas import GREY, panels
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness
from vademecum.recurrence.elman import ElmanRNN
from vademecum.recurrence.through_time import JacobianProfile, jacobian_profile

__all__ = ["fading_gradients"]

UNITS, STEPS, SEQUENCES = 16, 60, 6


@picture(
    claims=("recurrence.vanishing_gradients", "recurrence.exploding_gradients",
            "recurrence.long_range_jacobian", "recurrence.slope_bounds"),
    plays="radius",
)  # fmt: skip
def fading_gradients(
    radius: Annotated[float, Range(0.5, 2.0, step=0.05)] = 1.1,
    activation: Literal["identity", "tanh", "relu", "sigmoid"] = "tanh",
    inputs: Annotated[float, Range(0.0, 2.0, step=0.1)] = 0.5,
) -> Figure:
    """Gradients vanish or explode.

    How strongly the last state of a random network of 16 units depends on each earlier one, in
    powers of ten, for six random sequences; dashed is the bound by the largest singular value,
    dotted the power of the spectral radius. Linear units follow the dotted line, so they explode as
    soon as an eigenvalue leaves the unit circle. Units of tanh fade where inputs drive them into
    saturation, whatever the bound says, and sigmoids have slopes of at most a quarter.

    Knobs:
        radius: The largest modulus of an eigenvalue of the recurrent weights.
        activation: The units of the network.
        inputs: The standard deviation of the inputs.
    """
    figure, (norms, plane) = panels((8, 3.6), 1, 2, margins=(0.75, 0.15, 0.5, 0.4), gaps=(0.9, 0))
    net, profile = measured(round(radius, 6), activation, round(inputs, 6))
    draw_norms(norms, profile, radius)
    draw_eigenvalues(plane, net.U.detach(), radius)
    exponent = float(profile.lyapunov.mean())
    verb = "grows" if exponent > 0 else "shrinks"
    figure.suptitle(
        f"each step back, the derivative {verb} to {100 * math.exp(exponent):.3g} % on average"
        if math.isfinite(exponent)
        else "no unit that passes a derivative on is left"
    )
    return figure


@cache
def measured(radius: float, activation: str, inputs: float) -> tuple[ElmanRNN, JacobianProfile]:
    """A random network with this spectral radius, and its norms for random sequences."""
    kind: dict[str, Any] = {"activation": activation}
    with own_randomness(3):
        net = ElmanRNN(UNITS, UNITS, bias=False, **kind).double()
        U = torch.randn(UNITS, UNITS).double()
        x = inputs * torch.randn(SEQUENCES, STEPS, UNITS).double()
    net.U.data = U * (radius / float(torch.linalg.eigvals(U).abs().max()))
    net.V.data = torch.eye(UNITS).double()
    return net, jacobian_profile(net, x)


def draw_norms(axes: Axes, profile: JacobianProfile, radius: float) -> None:
    """The norms of all sequences over time, with the bound and the powers of the radius."""
    assert profile.log_bounds is not None
    steps = torch.arange(1, STEPS + 1)
    logs = profile.log_norms[:, 0] / math.log(10)
    logs = torch.where(logs.isfinite(), logs, math.nan)
    for i, row in enumerate(logs):
        axes.plot(steps, row, color="C0", lw=1, alpha=0.7, label=None if i else "norms")
    bound = profile.log_bounds[0] / math.log(10)
    axes.plot(steps, bound, color="C1", ls="--", lw=1.2, label="bound by singular values")
    power = (STEPS - steps) * math.log10(radius)
    axes.plot(steps, power, color="C2", ls=":", lw=1.5, label="powers of the spectral radius")
    axes.axhline(0, color=GREY, lw=0.8)
    seen = torch.cat([logs[logs.isfinite()], power, bound])
    low, high = float(seen.min()), float(seen.max())
    axes.set(
        xlabel="step t", xlim=(1, STEPS),
        ylabel=r"$\log_{10} \Vert \partial z_T / \partial z_t \Vert$",
        ylim=(low - 0.05 * (high - low), high + 0.35 * (high - low)),
    )  # fmt: skip
    axes.legend(loc="upper right")


def draw_eigenvalues(axes: Axes, U: Tensor, radius: float) -> None:
    """The eigenvalues of the recurrent weights, the unit circle and that of their radius."""
    values, turn = torch.linalg.eigvals(U), torch.linspace(0, 2 * math.pi, 181)
    axes.plot(turn.cos(), turn.sin(), color=GREY, lw=0.8, label="modulus 1")
    axes.plot(radius * turn.cos(), radius * turn.sin(), color="C2", ls=":", lw=1.5)
    axes.plot(values.real, values.imag, "o", color="C2", ms=4, label="eigenvalues")
    axes.set(xlim=(-2.1, 2.1), ylim=(-2.1, 3.0), xlabel="real part", ylabel="imaginary part")
    axes.set_aspect("equal")
    axes.legend(loc="upper right")
