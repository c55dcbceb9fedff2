"""What worker processes are forked from: every room and picture imported, and one figure drawn.

The figure makes matplotlib read its fonts and prepare to set formulas, the optimiser makes torch
import what optimisers need, and the convolution what shapes without values need. Nothing here may
start a thread.
"""

import torch
from matplotlib.figure import Figure

from vademecum.canvas import styled, svg
from vademecum.claims import select
from vademecum.pictures import pictures

select()
pictures()


def _sample() -> Figure:
    figure = Figure((2, 2), layout="constrained")
    axes = figure.subplots()
    axes.plot([1, 10], [1, 10], label="a")
    axes.set(title="$x^2$", xscale="log", yscale="log")
    axes.legend()
    return figure


svg(styled(_sample))
torch.optim.Adam([torch.zeros(1, requires_grad=True)])
torch.conv1d(torch.zeros(1, 1, 1, device="meta"), torch.zeros(1, 1, 1, device="meta"))
