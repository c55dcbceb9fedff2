"""What a PAC-Bayes bound is made of, by the number of examples."""

import math
from typing import Annotated

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vademecum.canvas import GREY, panels
from vademecum.generalization.kl_inversion import kl_inverse
from vademecum.generalization.pac_bayes_forms import Kind, pac_bayes_bound
from vademecum.pictures import Range, picture

__all__ = ["terms_of_a_bound"]

KINDS: dict[Kind, str] = {
    "mcallester": "McAllester", "quadratic": "quadratic", "kl": "inverted kl", "catoni": "Catoni",
}  # fmt: skip


@picture(claims=("generalization.pac_bayes", "generalization.pac_bayes_networks"))
def terms_of_a_bound(
    risk: Annotated[float, Range(0.0, 0.5, 0.01)] = 0.05,
    kl: Annotated[float, Range(1.0, 100_000.0, 10**0.5, log=True)] = 100.0,
    n: Annotated[float, Range(100.0, 1_000_000.0, 10**0.25, log=True)] = 10_000.0,
    delta: Annotated[float, Range(0.0001, 0.1, 10**0.5, log=True)] = 0.01,
) -> Figure:
    """The terms of a PAC-Bayes bound.

    To the left are four bounds of the risk over the number of examples, and at the dotted line
    their number now. Move the divergence: a bound says something, by being below 1, once there are
    more examples than nats. The confidence hardly matters: a tenth of delta costs 2.3 nats. To the
    right is what the tightest is made of, its terms added one after another. With a risk of 0 the
    inverted divergence gains most, since it then falls as 1/n and not as its root.

    Knobs:
        risk: The mean risk of the posterior on the examples.
        kl: The divergence of the posterior from the prior, in nats.
        n: The number of examples, none of which the prior has seen.
        delta: The probability with which the bound may fail.
    """
    figure, (left, right) = panels((8, 3.7), 1, 2, margins=(0.6, 0.15, 0.5, 0.4), gaps=(0.7, 0))
    draw_bounds(left, risk, kl, round(n), delta)
    draw_terms(right, risk, kl, round(n), delta)
    figure.suptitle(f"{round(n)} examples, {kl:.3g} nats, delta {delta:.2g}")
    return figure


def draw_bounds(axes: Axes, risk: float, kl: float, n: int, delta: float) -> None:
    """The bounds over the number of examples."""
    grid = [round(m) for m in np.logspace(1.5, 6.5, 26)]
    styles = ("-.", "--", "-", ":")
    for i, (kind, name) in enumerate(KINDS.items()):
        bounds = [pac_bayes_bound(risk, kl, m, delta=delta, kind=kind) for m in grid]
        axes.semilogx(grid, np.minimum(bounds, 1.0), styles[i], lw=1.6, color=f"C{i}", label=name)
    axes.axhline(risk, lw=0.8, color=GREY)
    axes.axvline(n, lw=0.8, ls=":", color=GREY)
    axes.set(xlabel="examples of the bound", ylabel="bound of the risk", ylim=(0, 1.05))
    axes.legend(loc="upper right")


def draw_terms(axes: Axes, risk: float, kl: float, n: int, delta: float) -> None:
    """What the inverted divergence becomes as its terms are added one after another."""
    nats = np.cumsum([math.log(2 * math.sqrt(n)), math.log(1 / delta), kl]) / n
    tops = [risk, *(kl_inverse(risk, float(c), side="upper") for c in nats)]
    names = ("risk measured", "ln 2 root n", "ln 1 / delta", "divergence")
    for i, top in enumerate(tops):
        low = tops[i - 1] if i else 0.0
        axes.bar(i, top - low, 0.6, low, color=GREY if i == 0 else f"C{i - 1}")
        axes.annotate(f"{top:.3f}", (i, top), ha="center", va="bottom")
        if i < 3:
            axes.plot([i + 0.3, i + 0.7], [top, top], ":", lw=0.8, color=GREY)
    axes.set(ylim=(0, max(0.05, min(1.15, 1.2 * tops[-1]))), ylabel="bound by the inverted kl")
    axes.set_xticks(range(4), names, fontsize="small")
