r"""Asynchronous Hopfield dynamics flip by flip, and the energy on the way down.

Units $i$ are visited in some order, again and again; unit $i$ flips if $x_i (h_i + \theta_i) < 0$
when its turn comes. Between two flips nothing changes, so the next unit to flip is the first in the
order, behind the last one, whose sign disagrees with its field: all fields are computed once a flip
rather than one a visit. Each flip changes the energy of a symmetric network without self-couplings
by $2 x_i (h_i + \theta_i) < 0$ (fields before the flip), so that the curve of energies is a descent
to a minimum.

This is the sequential rule itself, for one state, and so meets the same states as
`HopfieldNetwork.retrieve` with the same orders. The claim `hopfield_energy` checks the descent.
"""

from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from vademecum.arguments import choice, signs, whole
from vademecum.connectionism.hopfield.network import HopfieldNetwork
from vademecum.estimators import warn_unconverged
from vademecum.randomness import source
from vademecum.results import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["HopfieldFlips", "draw_hopfield_flips", "hopfield_flips"]


class HopfieldFlips(NamedTuple):
    """Which units flipped, when, and what that did to the energy.

    Example:
        >>> net = HopfieldNetwork(torch.tensor([[1, 1, 1, 1, 1]]))
        >>> flips = hopfield_flips(net, torch.tensor([1, -1, 1, 1, -1]), order="fixed")
        >>> flips.states().tolist()[1]
        [1.0, 1.0, 1.0, 1.0, -1.0]
    """

    start: Float[Tensor, " n"]
    """The state at the start."""
    units: Int[Tensor, " flips"]
    """The unit that flipped, flip by flip."""
    visits: Int[Tensor, " flips"]
    """How many units had been visited before it; every n visits all units have had their turn."""
    energies: Float[Tensor, " states"]
    """The energy at the start and after each flip."""
    converged: bool
    """Whether the state is at rest at the end."""

    __repr__ = one_line

    def states(self) -> Float[Tensor, " states n"]:
        """The states at the start and after each flip."""
        turns = torch.nn.functional.one_hot(self.units, len(self.start)).cumsum(0) % 2
        return torch.cat([self.start[None], self.start * (1 - 2 * turns)])


@torch.no_grad()
def hopfield_flips(
    network: HopfieldNetwork,
    state: Shaped[Tensor, " n"],
    *,
    order: str = "random",
    max_iter: int = 100,
    generator: torch.Generator | None = None,
) -> HopfieldFlips:
    """Run a network from one state, unit after unit, and record every flip.

    Args:
        network: The network.
        state: The start, with entries -1 and +1.
        order: `"random"` draws a permutation of the units for each sweep; `"fixed"` goes from the
            first unit to the last.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each visits all
            units once.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> net = HopfieldNetwork(torch.tensor([[1, 1, 1, 1, 1]]))
        >>> hopfield_flips(net, torch.tensor([1, -1, 1, 1, -1]), order="fixed")
        HopfieldFlips(start=tensor([ 1., -1., 1., 1., -1.]), units=tensor([1, 4]),
        visits=tensor([1, 4]), energies=tensor([ 0.4000, -0.4000, -2.0000]), converged=True)
    """
    choice("order", order, ("random", "fixed"))
    whole("max_iter", max_iter, low=1)
    n, device = network.n, network.a.device
    x = signs("state", state, ndim=1, width=n).to(network.a, copy=True)
    start, units, visits, energies = x.clone(), [], [], [network.energy(x)]
    wrong = x * network.fields(x) < 0
    sweep = 0
    while wrong.any() and sweep < max_iter:
        turns = torch.arange(n, device=device)
        if order == "random":
            turns = torch.randperm(n, **source(generator, device)).to(device)
        after = 0
        while (due := wrong[turns[after:]]).any():
            after += int(due.int().argmax()) + 1
            unit = turns[after - 1]
            x[unit] *= -1
            units.append(unit)
            visits.append(sweep * n + after - 1)
            energies.append(network.energy(x))
            wrong = x * network.fields(x) < 0
        sweep += 1
    converged = not bool(wrong.any())
    if not converged:
        warn_unconverged(f"max_iter={max_iter} reached: {int(wrong.sum())} units would still flip")
    flipped, when = (torch.tensor(v, dtype=torch.int64, device=device) for v in (units, visits))
    return HopfieldFlips(start, flipped, when, torch.stack(energies), converged)


def draw_hopfield_flips(flips: HopfieldFlips, axes: "Axes | None" = None) -> "Figure":
    """Draw the energy as a staircase over the visits, with a dot and the unit's number at a flip.

    Args:
        flips: What was recorded.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> net = HopfieldNetwork(torch.tensor([[1, 1, 1, 1, 1]]))
        >>> flips = hopfield_flips(net, torch.tensor([1, -1, 1, 1, -1]))
        >>> draw_hopfield_flips(flips).axes[0].get_ylabel()
        'energy'
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(6.4, 4.0), layout="constrained").subplots()
    visits, energies = [v + 1 for v in flips.visits.tolist()], flips.energies.tolist()
    axes.step([0, *visits], energies, where="post", color="C0")
    axes.plot(visits, energies[1:], "o", ms=3, color="C0")
    if len(visits) <= 40:  # more would hide each other
        for visit, energy, unit in zip(visits, energies[1:], flips.units.tolist(), strict=True):
            axes.annotate(str(unit), (visit, energy), (3, 3), textcoords="offset points", size=8)
    axes.set(xlabel="units visited", ylabel="energy", xlim=(0, None))
    axes.set_title(f"{len(visits)} flips, {'at rest' if flips.converged else 'not yet at rest'}")
    return cast(Figure, axes.get_figure(root=True))
