r"""Mixtures of two examples: images blended or pasted together, and labels in the same shares.

**Mixup**: $\tilde x_k = \lambda_k x_k + (1 - \lambda_k) x_{\pi k}$ and likewise for labels, with
$\lambda_k \sim \mathrm{Beta}(\alpha, \alpha)$ for each example, and a permutation $\pi$ of the
batch.

**CutMix**: a box of $x_{\pi k}$ covers the same box of $x_k$; its sides are $\sqrt{1 - \lambda_k}$
of the image's, its middle is uniform, and what hangs over the border is lost. Labels are mixed
by the share of pixels that were really kept, exactly.

A symmetric beta variable comes from two uniform ones without rejection: with
$q = (U^{-1/\alpha} - 1) \cos^2 2 \pi V$ it is $\frac12 \pm \frac12 (1 + 1/q)^{-1/2}$, the sign that
of the cosine (Bailey's form of Student's law, of which it is a function).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Num, Shaped
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.randomness import source
from vademecum.regularization.augmentation._batches import (
    as_before,
    images,
    precise,
    room,
    uniform,
)
from vademecum.regularization.augmentation._boxes import Boxes, inside
from vademecum.results import one_line

__all__ = ["Mixed", "cutmix", "mixup"]


class Mixed(NamedTuple):
    """Mixed images with their soft labels.

    Example:
        >>> x, y = torch.zeros(2, 1, 4, 4), torch.tensor([0, 1])
        >>> mixup(x, y, classes=2).labels.sum(1)
        tensor([1., 1.])
    """

    images: Shaped[Tensor, " n c h w"]
    """The images, of the dtype they had."""
    labels: Float[Tensor, " n k"]
    """The labels: `share` of the example's own, and the rest of its partner's."""
    share: Float[Tensor, " n"]
    """How much of each image is its own."""
    partners: Int[Tensor, " n"]
    """With which example each was mixed."""

    __repr__ = one_line


def mixup(
    x: Shaped[Tensor, " n c h w"],
    y: Num[Tensor, " n *k"],
    *,
    alpha: float = 0.2,
    classes: int | None = None,
    generator: torch.Generator | None = None,
) -> Mixed:
    r"""Blend each example with another one, in its own proportion.

    Args:
        x: Images, uint8 or floating point.
        y: Labels: integers, with `classes`, or a row of numbers for each example.
        alpha: The parameter of the law of $\lambda$: near 0 hardly anything is mixed, 1 is uniform.
        classes: How many classes integer labels have.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If `alpha` is not positive, or labels do not fit.

    References:
        Zhang et al., mixup: beyond empirical risk minimization, ICLR, 2018.

    Example:
        >>> x = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1)
        >>> mixed = mixup(x, torch.tensor([0, 1]), classes=2)
        >>> bool((mixed.images.flatten() == mixed.labels[:, 1]).all())
        True
    """
    x, labels = images("x", x), _soft("y", y, classes, x)
    share = symmetric_beta(x, number("alpha", alpha, above=0), generator).to(labels.dtype)
    partners = torch.randperm(len(x), **source(generator, x.device)).to(x.device)
    z = precise(x)
    other = torch.index_select(z, 0, partners, out=room(z, *z.shape))
    weight = share.to(z.dtype)[:, None, None, None]
    blend = torch.lerp(other, z, weight, out=other if in_place(other, z) else None)
    return Mixed(as_before(blend, x.dtype), _blended(labels, partners, share), share, partners)


def in_place(other: Tensor, z: Tensor) -> bool:
    """Whether what was copied may be written over."""
    return not (torch.compiler.is_compiling() or other.requires_grad or z.requires_grad)


def cutmix(
    x: Shaped[Tensor, " n c h w"],
    y: Num[Tensor, " n *k"],
    *,
    alpha: float = 1.0,
    classes: int | None = None,
    generator: torch.Generator | None = None,
) -> Mixed:
    r"""Paste a box of another example into each, and mix the labels by what is left.

    Args:
        x: Images, uint8 or floating point.
        y: Labels: integers, with `classes`, or a row of numbers for each example.
        alpha: The parameter of the law of $\lambda$, the share kept where no box is cut off.
        classes: How many classes integer labels have.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If `alpha` is not positive, or labels do not fit.

    References:
        Yun et al., CutMix: regularization strategy to train strong classifiers with localizable
        features, ICCV, 2019.

    Example:
        >>> x = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 8, 8)
        >>> mixed = cutmix(x, torch.tensor([0, 1]), classes=2)
        >>> bool((mixed.images.mean((1, 2, 3)) == mixed.labels[:, 1]).all())
        True
    """
    x, labels = images("x", x), _soft("y", y, classes, x)
    number("alpha", alpha, above=0)
    h, w = x.shape[2:]
    root = (1 - symmetric_beta(x, alpha, generator)).sqrt()
    middle = uniform(x, 2, generator=generator, dtype=torch.float64)
    partners = torch.randperm(len(x), **source(generator, x.device)).to(x.device)
    (top, height), (left, width) = (_side(k, root, middle[:, i]) for i, k in enumerate((h, w)))
    share = (1 - height * width / (h * w)).to(labels.dtype)
    pasted = inside(Boxes(top, left, height, width), h, w)
    other = torch.index_select(x, 0, partners, out=room(x, *x.shape))
    blend = torch.where(pasted, other, x, out=other if in_place(other, x) else None)
    return Mixed(blend, _blended(labels, partners, share), share, partners)


def _side(size: int, root: Tensor, middle: Tensor) -> tuple[Tensor, Tensor]:
    """Where a box begins and how long it is, along one axis, within the image."""
    length = (size * root).floor()
    first = (middle * size).floor() - (length / 2).floor()
    last = (first + length).clamp(0, size)
    first = first.clamp(0, size)
    return first, last - first


def symmetric_beta(x: Tensor, alpha: float, generator: torch.Generator | None) -> Tensor:
    """A number between 0 and 1 for each example, of the law Beta(alpha, alpha)."""
    u = uniform(x, 2, generator=generator, dtype=torch.float64)
    cos = (2 * torch.pi * u[:, 1]).cos()
    q = torch.expm1(-torch.log1p(-u[:, 0]) / alpha) * cos.square()
    smaller = 0.5 / ((1 + q) * (1 + (1 / (1 + 1 / q)).sqrt()))  # without cancellation
    return torch.where(cos < 0, smaller, 1 - smaller)


def _soft(name: str, y: Tensor, classes: int | None, x: Tensor) -> Tensor:
    """Labels as rows of shares."""
    if not isinstance(y, Tensor) or y.ndim not in (1, 2) or len(y) != len(x):
        given = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"{name} must be a label for each of the {len(x)} images, got {given}")
    if y.device != x.device:
        raise ValueError(f"{name} must be on {x.device} as x is, got {y.device}")
    if y.is_floating_point() and y.ndim == 2:
        return y
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool or y.ndim == 2:
        raise ValueError(f"{name} must be integers (n,) or floating point (n, k), got {y.dtype}"
                         f" {tuple(y.shape)}")  # fmt: skip
    if classes is None:
        raise ValueError("classes must be given with integer labels, got None")
    k = whole("classes", classes, low=1)
    seen = y.device.type == "cpu" and not torch.compiler.is_compiling()
    if seen and bool(((y < 0) | (y >= k)).any()):
        raise ValueError(f"{name} must be between 0 and {k - 1}, got {int(y.min())} to"
                         f" {int(y.max())}")  # fmt: skip
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    return (y.long()[:, None] == torch.arange(k, device=y.device)).to(dtype)


def _blended(labels: Tensor, partners: Tensor, share: Tensor) -> Tensor:
    return torch.lerp(labels[partners], labels, share[:, None])
