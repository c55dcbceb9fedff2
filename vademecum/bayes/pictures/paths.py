"""Samplers on a banana and in a funnel."""

import math
import warnings
from typing import Annotated, Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.bayes.convergence_diagnostics import ess
from vademecum.bayes.sampling import Chains, sample
from vademecum.canvas import GREY, panels
from vademecum.pictures import Range, picture

__all__ = ["chains_on_a_banana_and_a_funnel"]

CHAINS, DRAWS = 4, 100
LEVELS = torch.tensor([0.5, 2.0, 4.5, 8.0])  # energies at one, two, three, four deviations


class Banana:
    """A normal law, bent along a parabola."""

    def __call__(self, theta: Tensor) -> Tensor:
        """The energies."""
        x, y = theta.unbind(1)
        return x**2 / 2 + 2 * (y - x**2 / 2) ** 2

    def with_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The energies, and gradients by hand: ten times as fast as by autograd."""
        x, y = theta.unbind(1)
        slope = 4 * (y - x**2 / 2)
        return self(theta), torch.stack([x - slope * x, slope], 1)


class Funnel:
    """The first coordinate is the logarithm of the second one's deviation."""

    def __call__(self, theta: Tensor) -> Tensor:
        """The energies."""
        x, y = theta.unbind(1)
        return x**2 / 4.5 + x + y**2 / 2 * (-2 * x).exp()

    def with_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The energies, and gradients by hand."""
        x, y = theta.unbind(1)
        weight = (-2 * x).exp()
        return self(theta), torch.stack([x / 2.25 + 1 - y**2 * weight, y * weight], 1)


Place = Banana | Funnel
PLACES: dict[str, tuple[Place, tuple[float, float], tuple[float, float]]] = {
    "banana": (Banana(), (-3.2, 3.2), (-1.5, 5.5)),
    "funnel": (Funnel(), (-4.5, 3.5), (-9.0, 9.0)),
}
Kernel = Literal["mh", "ula", "mala", "hmc"]


@picture(claims=("bayes.hmc_acceptance", "bayes.metropolis_hastings", "bayes.unadjusted_langevin"),
         plays="eta")  # fmt: skip
def chains_on_a_banana_and_a_funnel(
    kernel: Literal["mh", "ula", "mala", "hmc"] = "hmc",
    eta: Annotated[float, Range(0.02, 1.28, 2, log=True)] = 0.16,
) -> Figure:
    """Samplers on a banana and in a funnel.

    Four chains of 100 draws, and above them how often proposals are accepted and how many
    independent draws the worse coordinate is worth. Small steps are accepted and lead nowhere,
    large ones are refused; "ula" refuses none and leaves the law instead. In the funnel no step is
    right: its neck asks for small ones, its mouth for large ones.

    Knobs:
        kernel: What moves the chains; "hmc" takes eight leapfrog steps for a draw.
        eta: The step size; of "mh" the deviation of a proposal, of "ula" and "mala" the factor of
            the gradient.
    """
    figure, axes = panels((8, 3.8), 1, 2, margins=(0.5, 0.15, 0.4, 0.5), gaps=(0.5, 0))
    for place, panel in zip(PLACES, axes, strict=True):
        energy, across, up = PLACES[place]
        _draw_levels(panel, energy, across, up)
        found, worth = _chains(place, kernel, eta)
        for chain in found.draws:
            x, y = chain.T.numpy()
            (line,) = panel.plot(x, y, lw=0.4, alpha=0.5)
            panel.plot(x, y, ".", ms=3, color=line.get_color())
        share = "" if kernel == "ula" else f"{float(found.acceptance.mean()):.0%} accepted, "
        panel.set(
            xlim=across, ylim=up, title=f"{place}: {share}ESS {worth:.0f} of {CHAINS * DRAWS}"
        )
    return figure


def _chains(place: str, kernel: Kernel, eta: float) -> tuple[Chains, float]:
    """The chains, and how many independent draws the worse coordinate is worth."""
    start = torch.zeros(CHAINS, 2, dtype=torch.float64)
    dice = torch.Generator().manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # which is what there is to see
        found = sample(
            PLACES[place][0], start, kernel=kernel, eta=eta, draws=DRAWS, warmup=0, leapfrogs=8,
            generator=dice, max_rhat=math.inf,
        )  # fmt: skip
        stuck = bool((found.draws == start[0]).all())  # all equal, which `ess` counts as certain
        return found, 0.0 if stuck else float(ess(found.draws).min())


def _draw_levels(
    axes: Axes, energy: Place, across: tuple[float, float], up: tuple[float, float]
) -> None:
    x, y = torch.linspace(*across, 100), torch.linspace(*up, 100)
    grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)
    values = energy(grid.view(-1, 2)).view(100, 100)
    levels = (values.min() + LEVELS).tolist()
    axes.contour(x.numpy(), y.numpy(), values.numpy(), levels=levels, colors=GREY, linewidths=0.8,
                 linestyles="solid")  # fmt: skip
