r"""Random colours: each image gets another brightness, contrast, saturation and hue.

With the luminance $\ell(x) = 0.299 R + 0.587 G + 0.114 B$ of a pixel and $\bar\ell$ its mean over
the image, all four are linear in the colours:

$$\text{brightness: } b x, \quad \text{contrast: } \bar\ell + k (x - \bar\ell), \quad
\text{saturation: } \ell(x) + s (x - \ell(x)), \quad \text{hue: } \ell(x) + R_h (x - \ell(x)) ,$$

where $R_h$ turns the plane of the two chroma coordinates by $h$ full turns and leaves the
luminance. In this order they make one matrix and one offset for each image,
$\tilde x = k b\, R_h S\, x + (1 - k) b\, \bar\ell$, which are applied in one pass; the result is
cut to its range once, at the end.

**Along the principal axes**: $C = \sum_i \lambda_i p_i p_i^\top$ being the covariance of colours,
all pixels of an image are moved by $\sum_i \alpha_i \sqrt{\lambda_i}\, p_i$ with
$\alpha_i \sim \mathcal N(0, \sigma^2)$, which has covariance $\sigma^2 C$. AlexNet took $\lambda_i$
for the root, with covariance $\sigma^2 C^2$. The coefficients are those of a normal vector
$\varepsilon$ of the channels, $\alpha_i = \sigma p_i^\top \varepsilon$: so the move is
$\sigma C^{1/2} \varepsilon$ (AlexNet: $\sigma C \varepsilon$), whichever eigenvectors were found.
Checked by the claim `regularization.pca_jitter`.
"""

from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from vademecum.arguments import choice, number, symmetric
from vademecum.arrays import portions
from vademecum.randomness import source
from vademecum.regularization._luminance import CHROMA, LUMINANCE
from vademecum.regularization.augmentation._batches import (
    as_before,
    between,
    images,
    precise,
    room,
    span,
    uniform,
)

__all__ = ["colour_jitter", "pca_jitter"]

_PORTION = 2**21  # bytes of pixels at a time, so that they stay in a cache


def colour_jitter(
    x: Shaped[Tensor, " n c h w"],
    *,
    brightness: float | tuple[float, float] = 0.0,
    contrast: float | tuple[float, float] = 0.0,
    saturation: float | tuple[float, float] = 0.0,
    hue: float | tuple[float, float] = 0.0,
    limits: tuple[float, float] | None = (0.0, 1.0),
    generator: torch.Generator | None = None,
) -> Shaped[Tensor, " n c h w"]:
    """Change the colours of each image by factors of its own.

    Args:
        x: Images of one channel or three (red, green, blue), uint8 or floating point.
        brightness: Between which factors; one number is how far from 1 they may lie.
        contrast: Likewise, about the mean luminance of the image.
        saturation: Likewise, about the luminance of each pixel.
        hue: Between which shares of a full turn, from -0.5 to 0.5; one number for both directions.
        limits: To what floating-point images are cut; None leaves them as they come out.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If a range is empty or goes beyond its limits, or grey images shall change in
            saturation or hue.

    Example:
        >>> x = torch.tensor([0.2, 0.4, 0.6]).view(1, 3, 1, 1)
        >>> colour_jitter(x, brightness=(0.5, 0.5)).flatten()
        tensor([0.1000, 0.2000, 0.3000])
        >>> colour_jitter(x, saturation=(0.0, 0.0)).flatten()  # 0.0598 + 0.2348 + 0.0684
        tensor([0.3630, 0.3630, 0.3630])
    """
    x = images("x", x)
    given = (brightness, contrast, saturation)
    names = ("brightness", "contrast", "saturation")
    ranges = [span(k, v, low=0.0, around=1.0) for k, v in zip(names, given, strict=True)]
    ranges.append(span("hue", hue, low=-0.5, high=0.5))
    if x.shape[1] != 3 and (x.shape[1] != 1 or ranges[2:] != [(1.0, 1.0), (0.0, 0.0)]):
        raise ValueError(f"x must have 3 channels, or 1 without saturation and hue,"
                         f" got {x.shape[1]}")  # fmt: skip
    if limits is not None:
        limits = span("limits", limits, around=None)
    u = uniform(x, 4, generator=generator, dtype=torch.float64)
    b, k, s, h = (between(r, u[:, i]) for i, r in enumerate(ranges))
    A = (k * b)[:, None, None] * _colour_map(s, h, x.shape[1])
    grey = LUMINANCE.to(x.device) if x.shape[1] == 3 else torch.ones(1, device=x.device).double()
    shift = ((1 - k) * b)[:, None] * grey if ranges[1] != (1.0, 1.0) else None
    return _mapped(x, A, shift, limits)


def _colour_map(s: Tensor, h: Tensor, c: int) -> Tensor:
    """The matrices that scale the chroma by s and turn it by h, and leave the luminance."""
    if c == 1:
        return torch.ones(len(s), 1, 1, dtype=s.dtype, device=s.device)
    to = torch.cat((LUMINANCE[None], CHROMA)).to(s.device)
    sin, cos = s * (2 * torch.pi * h).sin(), s * (2 * torch.pi * h).cos()
    turn = torch.stack((torch.stack((cos, -sin), 1), torch.stack((sin, cos), 1)), 1)
    middle = torch.nn.functional.pad(turn, (1, 0, 1, 0))
    middle = middle + torch.tensor([1.0, 0.0, 0.0], dtype=s.dtype, device=s.device).diag()
    return torch.linalg.inv(to) @ middle @ to


def _mapped(
    x: Tensor, A: Tensor, shift: Tensor | None, limits: tuple[float, float] | None
) -> Tensor:
    """Colours times a matrix, plus a multiple of their mean: a portion of examples at a time."""
    out = room(x, *x.shape)
    if out is None:
        return _portion_mapped(x, A, shift, limits)
    for part in portions(len(x), each=x[0].numel() * 4, memory=_PORTION):
        out[part] = _portion_mapped(
            x[part], A[part], None if shift is None else shift[part], limits
        )
    return out


def _portion_mapped(
    x: Tensor, A: Tensor, shift: Tensor | None, limits: tuple[float, float] | None
) -> Tensor:
    z = precise(x).flatten(2)
    A = A.to(z.dtype)
    if shift is None:
        y = A @ z
    else:
        offset = (shift.to(z.dtype) * z.mean(2)).sum(1)[:, None, None]
        y = torch.baddbmm(offset, A, z)
    if limits is not None and x.dtype != torch.uint8:
        y = y.clamp(*limits)
    return as_before(y, x.dtype).view(x.shape)


def pca_jitter(
    x: Shaped[Tensor, " n c h w"],
    std: float = 0.1,
    *,
    covariance: Float[Tensor, " c c"] | None = None,
    form: Literal["root", "alexnet"] = "root",
    generator: torch.Generator | None = None,
) -> Shaped[Tensor, " n c h w"]:
    r"""Move the colours of each image along the principal axes of colours, by its own numbers.

    Args:
        x: Images of any number of channels, uint8 or floating point.
        std: The standard deviation $\sigma$ of the coefficients.
        covariance: That of colours over the data; of those of this batch by default.
        form: Whether axes are scaled by the roots of eigenvalues or, as in AlexNet, by these.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If `std` is negative or NaN, or `covariance` not symmetric or not positive
            semidefinite, or colours without it are not finite (values are not seen under
            `torch.compile`).

    References:
        Krizhevsky, Sutskever and Hinton, ImageNet classification with deep convolutional neural
        networks, NeurIPS, 2012.

    Example:
        >>> pca_jitter(torch.zeros(1, 3, 4, 4)).abs().max()  # colours that are all the same
        tensor(0.)
        >>> y = pca_jitter(torch.zeros(5, 2, 1, 1), covariance=torch.ones(2, 2))  # one axis, (1, 1)
        >>> torch.allclose(y[:, 0], y[:, 1])
        True
    """
    x = images("x", x)
    number("std", std, low=0)
    choice("form", form, ("root", "alexnet"))
    n, c = x.shape[:2]
    C = colour_covariance(x) if covariance is None else _insist_on("covariance", covariance, c)
    seen = not torch.compiler.is_compiling()
    if covariance is None and seen and not bool(C.isfinite().all()):
        raise ValueError("x must be finite where covariance is not given, got NaN or infinity")
    values, axes = torch.linalg.eigh(C.to(x.device, torch.float64))
    if covariance is not None and seen:
        _insist_on_sign("covariance", values, covariance.dtype)
    values = values.clamp(min=0)
    alpha = torch.randn(n, c, dtype=torch.float64, **source(generator, x.device)).to(x.device)
    size = values.sqrt() if form == "root" else values
    move = std * alpha @ (axes * size) @ axes.T  # turned, so that signs of axes do not matter
    z = precise(x)
    y = torch.add(z, move.to(z.dtype)[:, :, None, None], out=room(x, *x.shape, dtype=z.dtype))
    return as_before(y, x.dtype)


def _insist_on(name: str, C: Tensor, c: int) -> Tensor:
    """A symmetric matrix of this size; under the compiler, which sees no values, of this size."""
    C = C if torch.compiler.is_compiling() else symmetric(name, C)
    if C.shape != (c, c):
        raise ValueError(f"{name} must be {c} x {c}, got {tuple(C.shape)}")
    return C


def _insist_on_sign(name: str, values: Tensor, dtype: torch.dtype) -> None:
    """Eigenvalues, in order, that are not negative beyond the rounding of the matrix."""
    low, high = float(values[0]), float(values[-1])
    if low < -len(values) * torch.finfo(dtype).eps * max(high, -low):
        raise ValueError(f"{name} must be positive semidefinite, got an eigenvalue of {low:.3g}")


def colour_covariance(x: Tensor) -> Tensor:
    """The covariance of the colours of all pixels, in double precision beyond single images."""
    means, within = [], torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64, device=x.device)
    whole = x.device.type != "cpu" or torch.compiler.is_compiling()
    memory = x.numel() * 4 if whole else _PORTION
    for part in portions(len(x), each=x[0].numel() * 4, memory=memory):
        z = precise(x[part].detach()).flatten(2)
        mean = z.mean(2, keepdim=True)
        z = z - mean
        within = within + ((z @ z.mT) / z.shape[2]).double().sum(0)
        means.append(mean[:, :, 0].double())
    between_images = torch.cat(means)
    between_images = between_images - between_images.mean(0)
    return (within + between_images.mT @ between_images) / len(x)
