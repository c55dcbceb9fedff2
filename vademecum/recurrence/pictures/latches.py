"""An LSTM that holds a bit: its gates on the latch task."""

from typing import Annotated, Any

import torch
from matplotlib.figure import Figure
from torch import nn

from vademecum.canvas import GREY, legend_beside, panels
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness
from vademecum.recurrence.gated import CourseLSTM, gates
from vademecum.recurrence.long_lags import latch_task

__all__ = ["latch_gates"]


@picture(
    claims=("recurrence.long_lag_latch", "recurrence.constant_error_carousel",
            "recurrence.gate", "recurrence.lstm"),
    plays="forget_logit",
)  # fmt: skip
def latch_gates(
    forget_logit: Annotated[float, Range(-2.0, 8.0, 1.0)] = 4.0,
    write_logit: Annotated[float, Range(-8.0, 0.0, 1.0)] = -5.0,
    distractors: Annotated[float, Range(0.0, 3.0, 0.5)] = 1.0,
    T: Annotated[int, Range(20, 200, 20, unit="steps")] = 100,
    seed: Annotated[int, Range(0, 9)] = 0,
) -> Figure:
    r"""The gates of an LSTM that holds a bit.

    The first input is +1 or -1 and marked; what follows is noise. The input gate opens at the mark
    alone, and the forget gate decides how long the cell remembers: with logit 4 it keeps 98 % a
    step, of which 17 % are left after 100 steps; with 8 nearly everything. The two lines below are
    the cells for the two signs, with the same noise after them. An input gate that does not close
    (a write logit near 0) lets the noise in, and the cells end at its mercy.

    Knobs:
        forget_logit: The logit of the forget gate.
        write_logit: The logit of the input gate where nothing is marked.
        distractors: The standard deviation of the inputs after the first.
        T: The number of steps.
        seed: Which noise.
    """
    generator = torch.Generator().manual_seed(seed)
    x = latch_task(1, T, distractors=distractors, generator=generator).x.repeat(2, 1, 1)
    x[0, 0, 0], x[1, 0, 0] = 1.0, -1.0
    ((trace,),), *_ = gates(latch(forget_logit, write_logit), x)
    figure, (top, middle, bottom) = panels(
        (8, 4.6), 3, 1, margins=(0.75, 1.4, 0.5, 0.35), gaps=(0, 0.25), sharex=True
    )
    steps = range(1, T + 1)
    top.vlines(steps, 0, x[0, :, 0].numpy(), color=GREY, lw=1)
    for sign, color in ((1, "C1"), (-1, "C3")):
        top.plot(1, sign, "o", color=color, ms=5, label=f"the bit, {sign:+d}")
    top.set_ylabel("input")
    legend_beside(top)
    lines = (("forget", "f", "-"), ("input", "i", "--"), ("output", "o", ":"))
    for color, (name, field, style) in enumerate(lines):
        values = getattr(trace, field)[0, :, 0].numpy()
        middle.plot(steps, values, style, color=f"C{color}", lw=1.6, label=f"{name} gate")
    middle.set(ylabel="gates", ylim=(-0.05, 1.05))
    legend_beside(middle)
    cells: Any = trace.c  # type: ignore[union-attr]
    for row, (sign, color) in enumerate((("+1", "C1"), ("-1", "C3"))):
        bottom.plot(steps, cells[row, :, 0].numpy(), color=color, label=f"after {sign}")
    bottom.axhline(0, color=GREY, lw=0.6)
    bottom.set(xlabel="step", ylabel="cell", xlim=(0, T + 1))
    legend_beside(bottom)
    bottom.locator_params(axis="x", integer=True)
    left = float(trace.f[0, 1:, 0].double().prod())  # type: ignore[union-attr]
    share = f"{100 * left:.3g} %" if left >= 1e-4 else "next to nothing"
    figure.suptitle(f"After {T} steps {share} of the bit is left")
    return figure


def latch(forget: float, write: float) -> nn.LSTM:
    """One cell that writes the first channel where the second is 1."""
    with own_randomness():
        net = CourseLSTM(2, 1, mixing=False)
    assert net.bias is not None
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        net.bias[0], net.bias[1], net.bias[3] = forget, write, 2.0
        net.G[:, 1] = 4.0 - write
        net.V[:, 0] = 2.0
    return net.to_torch()
