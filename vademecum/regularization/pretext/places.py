r"""Pretext tasks of places: where a patch belongs, how a frame moved, what was hidden.

**Patches**: of a $3 \times 3$ grid somewhere in the image, the middle one and one of the eight
around it, and the label says which. **Motion**: a frame and the frame shifted around by
$\delta = (\delta_y, \delta_x)$, $x'_{i} = x_{i - \delta}$, and the label is $\delta$; it is where
the circular cross-correlation $\sum_i x_i x'_{i + \delta}$ is largest, by Cauchy and Schwarz, and
only there unless the frame is periodic. **Masks**: patches of the image are hidden, as many in
each, and the label is the image.

Labels come from the data and the draw, and are exact. Checked by the claim
`regularization.pretext_tasks`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.randomness import source
from vademecum.regularization.augmentation._batches import fill_for, images, uniform
from vademecum.regularization.augmentation.windows import windows
from vademecum.regularization.pretext.colours_and_turns import PretextTask
from vademecum.results import one_line

__all__ = ["MaskedImages", "mask_task", "motion_task", "patch_position_task"]


class MaskedImages(NamedTuple):
    """Images with hidden patches.

    Example:
        >>> task = mask_task(torch.ones(1, 1, 4, 4), 2, share=0.5)
        >>> float(task.inputs.sum()), int(task.hidden.sum())
        (8.0, 8)
    """

    inputs: Shaped[Tensor, " n c h w"]
    """The images without what is hidden."""
    labels: Shaped[Tensor, " n c h w"]
    """The images."""
    hidden: Bool[Tensor, " n 1 h w"]
    """Where pixels are hidden, for a loss that looks there alone."""

    __repr__ = one_line


def patch_position_task(
    x: Shaped[Tensor, " n c H W"],
    patch: int,
    *,
    gap: int = 0,
    generator: torch.Generator | None = None,
) -> PretextTask:
    """Tell from two patches where the second lies around the first.

    Args:
        x: Images, uint8 or floating point, at least 3 patches and 2 gaps high and wide.
        patch: Height and width of the patches.
        gap: How many pixels lie between patches, so that edges do not tell.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        Pairs of patches (n, 2, c, patch, patch), the middle one first, and labels from 0 (above
        and to the left) in the order of reading to 7 (below and to the right).

    Raises:
        ValueError: If the grid does not fit into the images.

    References:
        Doersch, Gupta and Efros, Unsupervised visual representation learning by context
        prediction, ICCV, 2015.

    Example:
        >>> x = torch.arange(9.0).view(1, 1, 3, 3)  # patches of one pixel
        >>> inputs, labels = patch_position_task(x, 1)
        >>> float(inputs[0, 0]), float(inputs[0, 1]) == labels[0] + (labels[0] > 3)
        (4.0, tensor(True))
    """
    n, _, H, W = images("x", x).shape
    step = whole("patch", patch, low=1) + whole("gap", gap, low=0)
    side = 2 * step + patch
    if side > min(H, W):
        raise ValueError(f"patch and gap must fit three times into images of {H} x {W},"
                         f" got {patch} and {gap}")  # fmt: skip
    where = source(generator, x.device)
    top, left, labels = (
        torch.randint(high, (n,), **where).to(x.device) for high in (H - side + 1, W - side + 1, 8)
    )
    place = labels + (labels > 3).long()  # of nine, the middle left out
    first = windows(x, top + step, left + step, patch, patch)
    second = windows(x, top + step * (place // 3), left + step * (place % 3), patch, patch)
    return PretextTask(torch.stack((first, second), 1), labels)


def motion_task(
    x: Shaped[Tensor, " n c h w"],
    *,
    most: int | None = None,
    generator: torch.Generator | None = None,
) -> PretextTask:
    """Tell by how much a frame moved, where what leaves on one side comes in on the other.

    Args:
        x: Frames, uint8 or floating point.
        most: How many pixels they move at most, in each direction; by default any displacement,
            from minus half the size, rounded down, to below half of it.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        Pairs of frames (n, 2, c, h, w), and displacements (n, 2), downwards and to the right.

    Raises:
        ValueError: If `most` is negative, or half the size or more: displacements would coincide.

    References:
        Agrawal, Carreira and Malik, Learning to see by moving, ICCV, 2015.

    Example:
        >>> inputs, labels = motion_task(torch.tensor([[[[1.0, 0.0, 0.0, 0.0, 0.0]]]]))
        >>> int(inputs[0, 1, 0, 0].argmax()) == int(labels[0, 1]) % 5
        True
    """
    n, _, h, w = images("x", x).shape
    where = source(generator, x.device)
    if most is not None and 2 * whole("most", most, low=0) >= min(h, w):
        raise ValueError(f"most must be less than half of {min(h, w)}, got {most}")
    ranges = [(-(size // 2), (size + 1) // 2) for size in (h, w)]
    ranges = ranges if most is None else [(-most, most + 1)] * 2
    moves = [torch.randint(*ends, (n,), **where).to(x.device) for ends in ranges]
    down, right = (
        (torch.arange(size, device=x.device) - move[:, None]) % size
        for size, move in zip((h, w), moves, strict=True)
    )
    moved = x.gather(2, down[:, None, :, None].expand_as(x))
    moved = moved.gather(3, right[:, None, None].expand_as(x))
    return PretextTask(torch.stack((x, moved), 1), torch.stack(moves, 1))


def mask_task(
    x: Shaped[Tensor, " n c h w"],
    patch: int,
    *,
    share: float = 0.75,
    fill: float = 0.0,
    generator: torch.Generator | None = None,
) -> MaskedImages:
    """Complete images of which patches are hidden.

    Args:
        x: Images, uint8 or floating point, whose sides are multiples of `patch`.
        patch: Height and width of the patches.
        share: Which share of the patches is hidden, rounded to a whole number of them.
        fill: What is put in their places.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If patches do not tile the images, or the share is not between 0 and 1.

    References:
        He et al., Masked autoencoders are scalable vision learners, CVPR, 2022.

    Example:
        >>> mask_task(torch.ones(3, 1, 6, 6), 3, share=0.25).inputs.sum((1, 2, 3))
        tensor([27., 27., 27.])
    """
    n, _, h, w = images("x", x).shape
    if h % whole("patch", patch, low=1) or w % patch:
        raise ValueError(f"patch must divide {h} and {w}, got {patch}")
    cells = (h // patch) * (w // patch)
    count = round(number("share", share, low=0, high=1) * cells)
    order = uniform(x, cells, generator=generator).argsort(1)
    hidden = (order < count).view(n, 1, h // patch, w // patch)
    hidden = hidden.repeat_interleave(patch, 2).repeat_interleave(patch, 3)
    return MaskedImages(x.masked_fill(hidden, fill_for("fill", fill, x.dtype)), x, hidden)
