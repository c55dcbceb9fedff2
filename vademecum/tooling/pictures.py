"""Pictures of this room: which way ties are rounded, and gradients that nobody resets."""

import math
from itertools import accumulate
from random import Random
from typing import Annotated

import torch
from matplotlib.figure import Figure

from vademecum.canvas import GREY, legend_beside, panels
from vademecum.pictures import Range, picture

__all__ = ["gradients_add_up", "round_half_to_even"]


@picture(claims=("tooling.python_round",))
def round_half_to_even(
    numbers: Annotated[int, Range(100, 3000, 100)] = 1500,
    decimals: Annotated[int, Range(1, 3)] = 1,
    seed: Annotated[int, Range(0, 20)] = 0,
) -> Figure:
    """Round half to even.

    Python's `round` sends ties to the even neighbour, not up as in school. Add up many rounded
    numbers to see why: the errors of the one cancel, those of the other pile up. The more decimals,
    the fewer ties, and the smaller the difference.

    Knobs:
        numbers: How many numbers are added up.
        decimals: How many decimals each of them has before it is rounded.
        seed: Which random numbers they are.
    """
    dice = Random(seed)
    drawn = [dice.randrange(10 ** (decimals + 2)) / 10**decimals for _ in range(numbers)]
    rules = (("round(x),\nhalf to even", round, "o", "C0"), ("half up", half_up, "x", "C1"))
    margins = (0.7, 1.7, 0.5, 0.3)
    figure, (left, right) = panels((8, 3.2), 1, 2, margins=margins, gaps=(0.9, 0))
    ties = [k + 0.5 for k in range(-3, 3)]
    for k in range(-3, 4):
        left.plot([k - 0.5, k + 0.5], [k, k], color=GREY)
    for name, rule, mark, colour in rules:
        left.plot(ties, [rule(x) for x in ties], mark, ms=7, mfc="none", mew=2, color=colour)
        drift = list(accumulate((rule(x) - x for x in drawn), initial=0))
        style = "-" if rule is round else "--"
        right.plot(drift, style, color=colour, label=f"{name}: {drift[-1]:+.1f}".replace("-", "−"))
    left.set_title("ties: ○ to even, × up")
    left.set(xlabel="x", ylabel="rounded", xticks=range(-3, 4), yticks=range(-3, 4))
    share = sum(x % 1 == 0.5 for x in drawn) / numbers
    right.set(xlabel="numbers added", ylabel="sum of rounded − sum")
    right.set_title(f"{share:.1%} of the numbers are ties")
    right.axhline(0, color=GREY, lw=0.8)
    legend_beside(right)
    return figure


def half_up(x: float) -> int:
    """Rounding as in school."""
    return math.floor(x + 0.5)


@picture(claims=("tooling.torch_training_loop",), plays="steps")
def gradients_add_up(
    steps: Annotated[int, Range(1, 60)] = 40,
    rate: Annotated[float, Range(0.02, 0.4, 0.02)] = 0.1,
    every: Annotated[int, Range(2, 20)] = 8,
) -> Figure:
    """Gradients add up until they are reset.

    Three training loops go down the same bowl. One calls `optimizer.zero_grad()` in every step and
    comes to rest at the bottom. One never does, so that `backward` adds each gradient to all before
    it: the sum works like a momentum that no friction stops, and the loop circles for ever. One
    resets now and then.

    Knobs:
        steps: How many steps each loop has made.
        rate: The learning rate.
        every: After how many steps the third loop resets its gradients.
    """
    loops = ((1, "every step", "o-", "C0"), (every, f"every {every} steps", "s:", "C2"))
    loops += ((0, "never", "x--", "C1"),)
    figure, (plane, right) = panels((8, 3.6), 1, 2, margins=(0.7, 1.3, 0.5, 0.1), gaps=(0.7, 0))
    side = torch.linspace(-1.6, 1.6, 60)
    bowl = (side**2 + 3 * side[:, None] ** 2) / 2
    plane.contour(side, side, bowl, levels=8, colors=GREY, linewidths=0.6, alpha=0.6)
    for reset, name, style, colour in loops:
        path = descend(steps, rate, reset)
        plane.plot(*path.T, style, ms=3, lw=1, color=colour)
        loss = path.square() @ torch.tensor([0.5, 1.5])
        right.plot(loss, style, ms=3, lw=1, color=colour, label=name)
    plane.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal", xlabel="w₁", ylabel="w₂")
    right.set(xlabel="step", ylabel="loss", xlim=(0, 60), ylim=(0, 4))
    legend_beside(right, title="gradients reset")
    return figure


def descend(steps: int, rate: float, reset: int) -> torch.Tensor:
    """The weights after each step of a training loop that resets its gradients now and then."""
    w = torch.tensor([-1.4, 1.0], requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=rate, foreach=False)
    path = [w.detach().clone()]
    for step in range(steps):
        if reset and step % reset == 0:
            optimizer.zero_grad()
        ((w[0] ** 2 + 3 * w[1] ** 2) / 2).backward()
        optimizer.step()
        path.append(w.detach().clone())
    return torch.stack(path)
