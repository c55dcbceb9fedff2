"""A convolution as its matrix, with its singular values."""

from typing import Annotated, Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from vademecum.canvas import GREY, panels
from vademecum.convolution import conv_matrix, conv_singular_values
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["convolution_matrix"]

KERNELS = {
    "mean": (1 / 3, 1 / 3, 1 / 3),
    "binomial": (0.25, 0.5, 0.25),
    "difference": (-1.0, 1.0, 0.0),
    "second difference": (1.0, -2.0, 1.0),
}
FILL: dict[str, Any] = {"zeros": "zeros", "circular": "circular", "reflected": "reflect"}


@picture(claims=("convolution.toeplitz", "convolution.linear_equivariant_is_convolution"))
def convolution_matrix(
    kernel: Literal["mean", "binomial", "difference", "second difference"] = "binomial",
    padding: Literal["zeros", "circular", "reflected"] = "circular",
    stride: Annotated[int, Range(1, 4)] = 1,
    dilation: Annotated[int, Range(1, 5)] = 1,
    n: Annotated[int, Range(12, 36, 12)] = 24,
) -> Figure:
    """A convolution as its matrix.

    A layer with one channel and three taps is a matrix that repeats its rows, one place further
    each; a stride leaves rows out, a dilation spreads them. On the right are its singular values,
    what it makes of waves: with circular padding they are the kernel's Fourier transform (the line,
    for stride 1), and zeros at the border change them a little. A mean lets slow waves pass,
    differences the fast ones.

    Knobs:
        kernel: The three weights.
        padding: What stands beyond the border.
        stride: The step from row to row.
        dilation: The distance of neighbouring taps.
        n: How long the signal is.
    """
    weights = torch.tensor(KERNELS[kernel], dtype=torch.float64)
    with own_randomness():
        layer = nn.Conv1d(1, 1, 3, padding=dilation, dilation=dilation, stride=stride,
                          padding_mode=FILL[padding], bias=False)  # fmt: skip
    layer.weight.data = weights.view(1, 1, 3)
    A = conv_matrix(layer, (1, n)).dense().detach()
    figure, (left, right) = panels((8, 3.6), 1, 2, margins=(0.75, 0.2, 0.5, 0.35), gaps=(0.7, 0))
    top = float(A.abs().max())
    rows = len(A)
    left.imshow(A.numpy(), cmap="RdBu_r", vmin=-top, vmax=top, interpolation="nearest",
                extent=(0, n, rows, 0))  # fmt: skip
    left.locator_params(integer=True, nbins=6)
    left.set(xlabel="input", ylabel="output")
    left.set_title(f"{rows} x {n}, {int((A != 0).sum())} entries that are not 0")
    values = _singular_values(layer, A, n)
    right.plot(range(1, len(values) + 1), values, "o", ms=4, label="singular values")
    waves = _transform(weights, dilation, n)
    right.plot(np.linspace(1, len(values), n), waves, color=GREY, lw=1,
               label="|Fourier transform| of the kernel")  # fmt: skip
    right.set(xlabel="from the largest to the smallest", ylim=(0, None))
    right.set_title(f"Norm {float(values[0]):.3f}, smallest {float(values[-1]):.3f}")
    right.legend(loc="best")
    return figure


def _singular_values(layer: nn.Conv1d, A: Tensor, n: int) -> Tensor:
    """By frequency where the signal repeats itself, else from the matrix, which is small."""
    found = (
        conv_singular_values(layer, (1, n), k=None) if layer.padding_mode == "circular" else None
    )
    if found is not None and found.exact:
        return found.values.detach()
    return torch.linalg.svdvals(A)


def _transform(weights: Tensor, dilation: int, n: int) -> np.ndarray:
    """The size of the kernel's transform at all n frequencies, the largest first."""
    turns = np.exp(-2j * np.pi * dilation * np.outer(np.arange(n), np.arange(3)) / n)
    return np.sort(np.abs(turns @ weights.numpy()))[::-1]
