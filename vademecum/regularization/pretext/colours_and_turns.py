r"""Pretext tasks of whole images: colours from grey, and which way is up.

**Colours.** Luminance and chroma are a linear map of red, green and blue that can be inverted:

$$Y = 0.299 R + 0.587 G + 0.114 B, \qquad C_b = \frac{B - Y}{1.772}, \quad
C_r = \frac{R - Y}{1.402} ,$$

so the grey input and the chroma label together are the image. **Turns**: each image is shown in all
four quarter turns, and the label is by how many it was turned, against the clock.

Labels come from the data alone, without chance, and are exact. Checked by the claim
`regularization.pretext_tasks`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from vademecum.regularization._luminance import CHROMA, LUMINANCE
from vademecum.regularization.augmentation._batches import images, precise
from vademecum.results import one_line

__all__ = ["Colourisation", "PretextTask", "colourisation_task", "rotation_task"]


class PretextTask(NamedTuple):
    """What a network sees, and what it shall tell.

    Example:
        >>> rotation_task(torch.zeros(2, 1, 3, 3)).labels
        tensor([0, 1, 2, 3, 0, 1, 2, 3])
    """

    inputs: Shaped[Tensor, " n *shape"]
    """The inputs, an example each."""
    labels: Int[Tensor, " n *label"]
    """The labels, as integers."""

    __repr__ = one_line


class Colourisation(NamedTuple):
    """Grey images, and the colours that they had.

    Example:
        >>> x = torch.rand(2, 3, 4, 5, dtype=torch.float64)
        >>> torch.allclose(colourisation_task(x).images(), x)
        True
    """

    inputs: Float[Tensor, " n 1 h w"]
    """The luminance."""
    labels: Float[Tensor, " n 2 h w"]
    """The two chroma coordinates, blue and red, from -1/2 to 1/2 for colours from 0 to 1."""

    __repr__ = one_line

    def images(self) -> Float[Tensor, " n 3 h w"]:
        """The images in red, green and blue; with predicted labels, the coloured ones."""
        to = torch.cat((LUMINANCE[None], CHROMA)).to(self.inputs.device)
        y = precise(torch.cat((self.inputs, self.labels), 1))
        back = torch.linalg.inv(to).to(y.dtype)
        return torch.einsum("ij,njhw->nihw", back, y).to(self.inputs.dtype)


def colourisation_task(x: Shaped[Tensor, " n 3 h w"]) -> Colourisation:
    """Predict the colours of images from their luminance.

    Args:
        x: Images in red, green and blue; floating point, or uint8, which is divided by 255.

    Raises:
        ValueError: If there are not three channels.

    References:
        Zhang, Isola and Efros, Colorful image colorization, ECCV, 2016.

    Example:
        >>> red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
        >>> task = colourisation_task(red)
        >>> task.inputs.flatten(), task.labels.flatten()  # (0 - 0.299) / 1.772, 0.701 / 1.402
        (tensor([0.2990]), tensor([-0.1687,  0.5000]))
    """
    if images("x", x).shape[1] != 3:
        raise ValueError(f"x must have 3 channels, got {x.shape[1]}")
    z = precise(x)
    z = z / 255 if x.dtype == torch.uint8 else z
    both = torch.cat((LUMINANCE[None], CHROMA)).to(z.device, z.dtype)
    y = torch.einsum("ij,njhw->nihw", both, z)
    y = y.to(x.dtype) if x.is_floating_point() else y
    return Colourisation(y[:, :1], y[:, 1:])


def rotation_task(x: Shaped[Tensor, " n c h h"]) -> PretextTask:
    """Tell by how many quarter turns images were turned.

    Args:
        x: Square images, uint8 or floating point.

    Returns:
        Each image four times in a row, turned by 0, 1, 2 and 3 quarters against the clock.

    Raises:
        ValueError: If images are not square.

    References:
        Gidaris, Singh and Komodakis, Unsupervised representation learning by predicting image
        rotations, ICLR, 2018.

    Example:
        >>> rotation_task(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).inputs[1, 0]
        tensor([[2., 4.],
                [1., 3.]])
    """
    n, c, h, w = images("x", x).shape
    if h != w:
        raise ValueError(f"x must be square images, got {h} x {w}")
    turned = torch.stack([x.rot90(k, (2, 3)) for k in range(4)], 1)
    labels = torch.arange(4, device=x.device).repeat(n)
    return PretextTask(turned.reshape(4 * n, c, h, h), labels)
