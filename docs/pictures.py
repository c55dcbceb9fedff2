"""The README's picture, drawn by the library: `make pictures`."""

from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch.nn.functional import interpolate

from vademecum.connectionism import HopfieldNetwork, capacity_curve, draw_capacity
from vademecum.data import load

IMAGES = Path(__file__).parent / "images"
SIDE = 40
FRAMES = (0, 400, 800, 1600)


def digits_in_signs() -> torch.Tensor:
    """One digit of each kind, enlarged, in black (+1) and white (-1)."""
    x, y, _ = load("digits")
    first = [int((y == k).nonzero()[0]) for k in range(10)]
    large = interpolate(x[first], size=(SIDE, SIDE), mode="bicubic")
    return torch.where(large.flatten(1) > 0.5, 1.0, -1.0)


def partial_sweep(net: HopfieldNetwork, start: torch.Tensor, units: int) -> torch.Tensor:
    """The state after the first `units` units of a random order have answered."""
    torch.manual_seed(1)
    x = start.clone()
    for i in torch.randperm(net.n)[:units].tolist():
        field = net.fields(x)[i]
        x[i] = x[i] if field == 0 else field.sign()
    return x


def main() -> None:
    torch.manual_seed(0)
    patterns = digits_in_signs()
    net = HopfieldNetwork(patterns, rule="pseudo-inverse")
    start = torch.where(torch.rand(net.n) < 0.3, -patterns[3], patterns[3])

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=(1, 1.2))
    left, right = (figure.add_subfigure(grid[0, k]) for k in (0, 1))
    left.suptitle(
        "A Hopfield network that stores ten digits\ncompletes a corrupted one", fontsize="medium"
    )
    for axes, units in zip(left.subplots(2, 2).flat, FRAMES, strict=True):
        x = partial_sweep(net, start, units)
        axes.imshow(x.view(SIDE, SIDE), cmap="gray_r", vmin=-1, vmax=1)
        axes.set(xticks=[], yticks=[], xlabel=f"energy {float(net.energy(x)):.0f}")
        axes.set_title(f"{units} units answered", fontsize="medium")
    loads = torch.linspace(0.02, 0.24, 23).tolist()
    draw_capacity(capacity_curve(2000, loads, trials=10), right.subplots())
    IMAGES.mkdir(exist_ok=True)
    figure.savefig(IMAGES / "connectionism.png", dpi=130)


if __name__ == "__main__":
    main()
