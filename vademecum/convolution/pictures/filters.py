"""An image under a kernel one chooses."""

from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from vademecum.canvas import panels
from vademecum.convolution import convolve, correlate
from vademecum.pictures import Range, picture

__all__ = ["filtered_image"]

SIDE = 72
MODES = {"zeros": "same", "circular": "circular"}


@picture(claims=("convolution.convolution_nd", "convolution.cross_correlation"))
def filtered_image(
    kernel: Literal["blur", "sharpen", "edges", "slope", "corner"] = "slope",
    width: Annotated[int, Range(3, 15, 2)] = 5,
    slides: Literal["convolution", "correlation"] = "convolution",
    border: Literal["zeros", "circular"] = "zeros",
    noise: Annotated[float, Range(0.0, 1.0, 0.1)] = 0.0,
) -> Figure:
    """An image filtered by a kernel.

    A kernel that adds up to 1 keeps what is flat, one that adds up to 0 shows only where something
    changes. A wider one hears less of the noise, and sees less of what is small. Change between
    convolution and correlation: only kernels that are no rotation of themselves notice.

    Knobs:
        kernel: A mean with Gaussian weights; twice the image less that; that less a wider one; the
            slope from left to right; or a corner, with the sign of each quarter.
        width: The width of the kernel.
        slides: Whether the kernel slides over the image rotated by 180 degrees, or as it is.
        border: What stands beyond the border of the image.
        noise: The standard deviation of the noise in the image.
    """
    image = _image() + noise * _noise()
    weights = _kernel(kernel, width)
    slide = convolve if slides == "convolution" else correlate
    if border == "circular":
        found = slide(image, weights, mode="circular")
        half = width // 2 if slides == "correlation" else -(width // 2)
        found = found.roll((half, half), (0, 1))
    else:
        found = slide(image, weights, mode="same")
    titles = ("image", f"kernel, {width} x {width}, sum {float(weights.sum()):.2g}", slides)
    figure, axes = panels((8, 3.0), 1, 3, margins=(0.15, 0.15, 0.15, 0.4), gaps=(0.3, 0))
    for axis, x, title in zip(axes, (image, weights, found), titles, strict=True):
        top = float(x.abs().max())
        axis.imshow(x.numpy(), cmap="RdBu_r", vmin=-top, vmax=top, interpolation="nearest")
        axis.set(xticks=[], yticks=[])
        axis.set_title(title)
    return figure


def _kernel(name: str, width: int) -> Tensor:
    t = torch.arange(width, dtype=torch.float64) - width // 2
    bell = torch.exp(-(t**2) / (2 * (width / 5) ** 2))
    bell = bell / bell.sum()
    blur = bell[:, None] * bell
    one = torch.zeros(width, width, dtype=torch.float64)
    one[width // 2, width // 2] = 1
    if name == "slope":
        return bell[:, None] * (-t * bell) / (t**2 * bell).sum()
    if name == "corner":
        return torch.sign(t)[:, None] * torch.sign(t) * blur * 2
    if name == "edges":
        wide = torch.full_like(blur, 1 / width**2)
        return blur - wide
    return blur if name == "blur" else 2 * one - blur


@lru_cache(1)
def _image() -> Tensor:
    """A disc, a frame, stripes that get finer, and a point."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    image = 1.0 * ((x - 0.27) ** 2 + (y - 0.3) ** 2 < 0.03)
    frame = (np.abs(x - 0.75) < 0.17) & (np.abs(y - 0.3) < 0.17)
    inside = (np.abs(x - 0.75) < 0.12) & (np.abs(y - 0.3) < 0.12)
    image += 1.0 * (frame & ~inside)
    image += (y > 0.62) * (y < 0.88) * (0.5 + 0.5 * np.sin(60 * x**2)) * (x > 0.08) * (x < 0.92)
    image[SIDE // 2, SIDE // 2] = 1
    return torch.from_numpy(image)


@lru_cache(1)
def _noise() -> Tensor:
    source = torch.Generator().manual_seed(0)
    return torch.randn(SIDE, SIDE, generator=source, dtype=torch.float64)
