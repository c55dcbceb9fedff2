"""All networks that dropout makes of one, and their means."""

from typing import Annotated, Literal

import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor, nn

from vademecum.canvas import GREY, panels
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness
from vademecum.regularization.dropout_passes import DropoutEnsemble, dropout_ensemble

__all__ = ["ensemble_inside_dropout"]

POINTS, HIDDEN, BINS = 61, 12, 24
STYLES = {"arithmetic": "-", "geometric": "--", "evaluation": ":"}


@picture(
    claims=("regularization.dropout_ensemble", "regularization.dropout_geometric_mean",
            "regularization.dropout_rescaling"),
    plays="keep",
)  # fmt: skip
def ensemble_inside_dropout(
    units: Annotated[int, Range(2, 6, unit="units")] = 5,
    keep: Annotated[float, Range(0.1, 0.95, 0.05)] = 0.7,
    behind: Literal["nothing", "a hidden layer"] = "nothing",
    at: Annotated[float, Range(-3, 3, 0.25)] = 1.0,
) -> Figure:
    """The ensemble inside dropout.

    Each thin line is the probability that one thinned network gives, darker where its mask is more
    likely; on the right, where they lie at the place marked on the left. Evaluation with all units
    is their geometric mean, to the last digit, as long as nothing but the last layer follows the
    dropped units, and the arithmetic mean is less sure for most inputs; put a hidden layer behind
    them, and all three part. Keep most units, and one bundle of lines remains.

    Knobs:
        units: How many units can be dropped.
        keep: The probability that a unit is kept.
        behind: What follows the dropped units, before the last layer.
        at: Where the right side looks.
    """
    model = _Small(units, round(1 - keep, 6), behind == "a hidden layer")
    x = torch.linspace(-3, 3, POINTS, dtype=torch.float64)[:, None]
    lines, weights = model.thinned(x)
    found = dropout_ensemble(model, x, link="sigmoid")
    figure, (left, right) = panels(
        (8, 3.8), 1, 2, margins=(0.6, 0.15, 0.5, 0.4), gaps=(0.3, 0), width_ratios=(2.2, 1),
        sharey=True,
    )  # fmt: skip
    _draw_lines(left, x, lines, weights, found)
    left.axvline(at, color=GREY, lw=0.8)
    place = torch.tensor([[at]], dtype=torch.float64)
    there, _ = model.thinned(place)
    _draw_spread(right, there[:, 0], weights, dropout_ensemble(model, place, link="sigmoid"))
    right.set_title(f"{2**units} networks")
    return figure


class _Small(nn.Module):
    """Bumps along a line, dropout, perhaps a hidden layer, and one logit."""

    def __init__(self, units: int, rate: float, deep: bool):
        super().__init__()
        self.centres = torch.linspace(-2.5, 2.5, units, dtype=torch.float64)
        with own_randomness(5):
            first = nn.Linear(units, HIDDEN, dtype=torch.float64)
            first.weight.data = 2.5 * torch.randn(HIDDEN, units, dtype=torch.float64)
            last = nn.Linear(HIDDEN if deep else units, 1, dtype=torch.float64)
            signs = torch.arange(last.in_features) % 2 * 2 - 1
            last.weight.data = (1.0 if deep else 3.0) * signs[None].double()
            last.bias.data.fill_(0.3)
        self.drop, self.keep = nn.Dropout(rate), 1 - rate
        self.head = nn.Sequential(first, nn.Tanh(), last) if deep else last

    def bumps(self, x: Tensor) -> Tensor:
        width = 6 / len(self.centres)
        return (-(((x - self.centres) / width) ** 2)).exp()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.bumps(x)))[:, 0]

    def thinned(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The probabilities of all thinned networks, a row each, and those of their masks."""
        m = len(self.centres)
        bits = ((torch.arange(2**m)[:, None] >> torch.arange(m)) & 1).double()
        weights = (bits * self.keep + (1 - bits) * (1 - self.keep)).prod(1)
        with torch.no_grad():
            logits = self.head(self.bumps(x) * (bits / self.keep)[:, None])[..., 0]
        return logits.sigmoid(), weights


def _means(found: DropoutEnsemble) -> dict[str, Tensor]:
    assert found.geometric is not None
    both = {"arithmetic": found.arithmetic, "geometric": found.geometric}
    return {**both, "evaluation": found.rescaled}


def _draw_lines(
    axes: Axes, x: Tensor, lines: Tensor, weights: Tensor, found: DropoutEnsemble
) -> None:
    segments = torch.stack([x[:, 0].expand(len(lines), -1), lines], -1).numpy()
    most = 0.6 * min(1.0, (16 / len(lines)) ** 0.5)
    strength = (0.08 + most * weights / weights.max()).tolist()
    axes.add_collection(LineCollection(list(segments), colors=GREY, lw=0.8, alpha=strength))
    for name, mean in _means(found).items():
        axes.plot(x[:, 0], mean, STYLES[name], lw=2, label=name)
    axes.set(xlabel="input", ylabel="probability", xlim=(-3, 3), ylim=(-0.02, 1.02))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)


def _draw_spread(axes: Axes, there: Tensor, weights: Tensor, found: DropoutEnsemble) -> None:
    edges = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)
    place = (there * BINS).long().clamp(max=BINS - 1)
    shares = torch.zeros(BINS, dtype=torch.float64).index_add(0, place, weights)
    axes.barh(edges[:-1].numpy(), shares.numpy(), 1 / BINS, align="edge", color=GREY, alpha=0.5)
    for name, mean in _means(found).items():
        line = axes.axhline(float(mean), ls=STYLES[name], lw=2)
        line.set_color(f"C{list(STYLES).index(name)}")
    axes.set(xlabel="share of the masks", xlim=(0, max(0.5, 1.1 * float(shares.max()))))
