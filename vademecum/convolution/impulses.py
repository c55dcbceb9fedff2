r"""Impulse responses: what a linear map that commutes with shifts is made of.

On signals that repeat themselves, $x: \mathbb{Z}_{n_1} \times \dots \times \mathbb{Z}_{n_d} \to
\mathbb{C}$, a map $T$ is linear and commutes with all shifts if and only if it is the circular
convolution with its impulse response $h = T \delta$, since $x = \sum_s x[s]\, \delta_s$ gives

$$T x = \sum_s x[s]\, T \delta_s = \sum_s x[s]\, (T \delta)_s = x * h .$$

So $h$ and one look at a generic $x$ decide: the $x$ with $T x = x * h$ form a proper subspace for
any linear $T$ that is no convolution. The impulse itself is shifted by one along each axis first,
because that shows most simply what is wrong. A map that is not linear may pass by chance. The claim
is `linear_equivariant_is_convolution`.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Inexact
from torch import Tensor

from vademecum.arguments import floats, number
from vademecum.convolution.sliding import convolve
from vademecum.results import one_line

__all__ = ["ImpulseResponse", "impulse_response"]


class ImpulseResponse(NamedTuple):
    """What a map does to an impulse, and whether that is all it does.

    Example:
        >>> impulse_response(lambda x: x.roll(1) - x, torch.tensor([0.5, 2.0, 1.0])).kernel
        tensor([-1.,  1.,  0.])
    """

    kernel: Inexact[Tensor, " *n"] | None
    """The kernel with which the map is a circular convolution, or None if it is none."""
    response: Inexact[Tensor, " *n"]
    """The image of the impulse at the origin, also where the map is no convolution."""
    input: Inexact[Tensor, " *n"] | None
    """An input whose image is another one than that of a convolution, or None."""
    shift: tuple[int, ...] | None
    """By how much along each axis it is to be shifted to see that, or None."""
    gap: float
    """The largest difference of an image from that of the convolution."""

    __repr__ = one_line


def impulse_response(
    map: Callable[[Tensor], Tensor],
    x: Inexact[Tensor, " *n"],
    *,
    tol: float | None = None,
) -> ImpulseResponse:
    r"""The kernel of a map, or an input and a shift that show that it is no convolution.

    Args:
        map: Any map from signals of the shape of `x` to such signals.
        x: A signal, all of whose axes (one to three) are shifted. A generic one, such as random
            numbers, convicts every linear map that is no convolution.
        tol: What images may differ by, relative to the largest entry of the image and of
            $\sum_t |h[t]|\, |x[u - t]|$, whose rounding a convolution cannot avoid; by default
            $10 \sqrt{N}$ times the machine precision for $N$ entries.

    Returns:
        An `ImpulseResponse`, whose `kernel` is None if the map is no convolution; then `input`,
        shifted by `shift`, has an image that differs from its convolution with the response by
        more than rounding.

    Raises:
        ValueError: If the map changes the shape, or an entry is not finite.

    Example:
        >>> x = torch.tensor([0.5, 2.0, 1.0])
        >>> found = impulse_response(lambda x: torch.maximum(x, x.roll(1)), x)
        >>> found.kernel, found.input.tolist(), found.shift
        (None, [0.5, 2.0, 1.0], (0,))
    """
    x = floats("x", x)
    if not 1 <= x.ndim <= 3:
        raise ValueError(f"x must have 1 to 3 axes, got shape {tuple(x.shape)}")
    eps = 10 * x.numel() ** 0.5 * torch.finfo(x.dtype).eps
    allowed = eps if tol is None else number("tol", tol, low=0)
    impulse = torch.zeros_like(x)
    impulse[(0,) * x.ndim] = 1
    response = _image(map, impulse)
    worst = 0.0
    for signal in (impulse, x):
        stated = convolve(signal, response, mode="circular", method="direct")
        sums = convolve(signal.abs(), response.abs(), mode="circular", method="direct")
        for shift in _shifts(x):
            axes = tuple(range(x.ndim))
            wanted, found = stated.roll(shift, axes), _image(map, signal.roll(shift, axes))
            gap = float((found - wanted).abs().max())
            worst = max(worst, gap)
            if gap > allowed * max(float(sums.max()), float(found.abs().max())):
                return ImpulseResponse(None, response, signal, shift, gap)
    return ImpulseResponse(response, response, None, None, worst)


def _shifts(x: Tensor) -> list[tuple[int, ...]]:
    """None, and by one along each axis in turn."""
    units = [tuple(int(i == axis) for i in range(x.ndim)) for axis in range(x.ndim)]
    return [(0,) * x.ndim, *units]


def _image(map: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.no_grad():
        y = map(x.clone())
    if not isinstance(y, Tensor) or y.shape != x.shape:
        shape = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"map must keep the shape {tuple(x.shape)}, got {shape}")
    return floats("what map gives", y)
