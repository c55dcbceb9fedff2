r"""Random affine maps of the plane: another rotation, shift, scale and shear for each image.

With $c$ the centre of the image, a point $p$ goes to

$$A (p - c) + c + t, \qquad
A = s\, R(\theta) \begin{pmatrix} 1 & \tan\phi \\ 0 & 1 \end{pmatrix} ,$$

$x$ to the right and $y$ upwards, so that $\theta > 0$ turns against the clock. The pixel of the
result at $q$ is the image at $A^{-1}(q - c - t) + c$, bilinear between the four pixels around, the
fill value beyond the border; masks take the nearest pixel. Positions are computed in the precision
of the images, single at least, and pixels are rounded relative to the fill value;
`scipy.ndimage.affine_transform` of order 1 in its mode "grid-constant" gives the same.
"""

import math
from typing import overload

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional as F

from vademecum.regularization.augmentation._batches import (
    Augmented,
    as_before,
    between,
    fill_for,
    images,
    masks_for,
    precise,
    room,
    span,
    together,
    uniform,
)

__all__ = ["random_affine"]


@overload
def random_affine(
    x: Shaped[Tensor, " n c h w"], *, degrees: float | tuple[float, float] = 0.0,
    translate: float | tuple[float, float] = 0.0, scale: tuple[float, float] = (1.0, 1.0),
    shear: float | tuple[float, float] = 0.0, fill: float = 0.0, masks: None = None,
    mask_fill: float = 0.0, generator: torch.Generator | None = None,
) -> Shaped[Tensor, " n c h w"]: ...  # fmt: skip
@overload
def random_affine(
    x: Shaped[Tensor, " n c h w"], *, degrees: float | tuple[float, float] = 0.0,
    translate: float | tuple[float, float] = 0.0, scale: tuple[float, float] = (1.0, 1.0),
    shear: float | tuple[float, float] = 0.0, fill: float = 0.0,
    masks: Shaped[Tensor, " n *m h w"], mask_fill: float = 0.0,
    generator: torch.Generator | None = None,
) -> Augmented: ...  # fmt: skip
def random_affine(
    x: Shaped[Tensor, " n c h w"],
    *,
    degrees: float | tuple[float, float] = 0.0,
    translate: float | tuple[float, float] = 0.0,
    scale: tuple[float, float] = (1.0, 1.0),
    shear: float | tuple[float, float] = 0.0,
    fill: float = 0.0,
    masks: Shaped[Tensor, " n *m h w"] | None = None,
    mask_fill: float = 0.0,
    generator: torch.Generator | None = None,
) -> Shaped[Tensor, " n c h w"] | Augmented:
    """Turn, move, scale and shear each image about its centre, each by numbers of its own.

    Args:
        x: Images, uint8 or floating point.
        degrees: Between which angles to turn, against the clock; one number for both directions.
        translate: Between which shares of the width and of the height to move, to the right and
            downwards; one number for both directions.
        scale: Between which factors to scale.
        shear: Between which angles, in degrees, to shear rows along themselves.
        fill: What is put where no pixel comes from.
        masks: Masks of the images, any dtype, moved likewise, without interpolation.
        mask_fill: What is put into masks where no pixel comes from.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        The images; with masks, both, as `Augmented`.

    Raises:
        ValueError: If a range is empty or goes beyond its limits.

    Example:
        >>> x = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
        >>> random_affine(x, degrees=(90, 90))
        tensor([[[[2, 4],
                  [1, 3]]]], dtype=torch.uint8)
    """
    x = images("x", x)
    factors = span("scale", scale, low=0.0, around=None)
    if factors[0] == 0:
        raise ValueError(f"scale must be > 0, got {scale}")
    u = uniform(x, 5, generator=generator, dtype=torch.float64)
    turn = between(span("degrees", degrees), u[:, 0]) * (math.pi / 180)
    slant = between(span("shear", shear, low=-89.0, high=89.0), u[:, 1]) * (math.pi / 180)
    move = between(span("translate", translate, low=-1.0, high=1.0), u[:, 2:4])
    factor = between(factors, u[:, 4])
    rows, columns = _positions(x, turn, slant, move, factor)
    fill = fill_for("fill", fill, x.dtype)
    changed = None
    if masks is not None:
        m = masks_for(x, masks)
        changed = _nearest(m, rows + columns, fill_for("mask_fill", mask_fill, m.dtype))
    return together(_sampled(x, rows, columns, fill), masks, changed)


def _positions(
    x: Tensor, turn: Tensor, slant: Tensor, move: Tensor, factor: Tensor
) -> tuple[Tensor, Tensor]:
    """Where pixels come from, (column, row): the sum of what rows and columns contribute.

    With y downwards, the inverse is [[cos + sin tan, cos tan - sin], [sin, cos]] / s.
    """
    h, w = x.shape[2:]
    sin, cos, tan = turn.sin(), turn.cos(), slant.tan()
    first = torch.stack((cos + sin * tan, sin), 1) / factor[:, None]
    second = torch.stack((cos * tan - sin, cos), 1) / factor[:, None]
    centre = torch.tensor([(w - 1) / 2, (h - 1) / 2], dtype=torch.float64, device=x.device)
    size = torch.tensor([w, h], dtype=torch.float64, device=x.device)
    goal = centre + move * size
    right = torch.arange(w, device=x.device) - goal[:, :1]
    down = torch.arange(h, device=x.device) - goal[:, 1:]
    columns = right[:, :, None] * first[:, None] + centre
    rows = down[:, :, None] * second[:, None]
    return rows[:, :, None], columns[:, None]


def _sampled(x: Tensor, rows: Tensor, columns: Tensor, fill: float) -> Tensor:
    n, _, h, w = x.shape
    z = precise(x)
    size = torch.tensor([w, h], dtype=torch.float64, device=x.device)
    rows, columns = (rows * 2 / size).to(z.dtype), ((columns * 2 + 1) / size - 1).to(z.dtype)
    grid = torch.add(rows, columns, out=room(x, n, h, w, 2, dtype=z.dtype))
    z = z - fill if fill else z
    y = F.grid_sample(z, grid, align_corners=False)
    return as_before(y + fill if fill else y, x.dtype)


def _nearest(x: Tensor, places: Tensor, fill: float) -> Tensor:
    n, c, h, w = x.shape
    column, row = places.round().long().flatten(1, 2).unbind(2)
    within = (column >= 0) & (column < w) & (row >= 0) & (row < h)
    index = torch.where(within, row * w + column, 0)[:, None].expand(n, c, h * w)
    y = x.reshape(n, c, h * w).gather(2, index)
    return torch.where(within[:, None], y, torch.full_like(y, fill)).view(n, c, h, w)
