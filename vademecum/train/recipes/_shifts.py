"""Images that are moved by a few pixels while training, each by its own amount."""

import torch
from torch import Tensor

from vademecum.train.noise import ExampleNoise

__all__ = ["shifted"]


def shifted(batch: tuple[Tensor, Tensor], noise: ExampleNoise, *, most: int) -> tuple[Tensor, ...]:
    """Images moved by up to `most` pixels each way; what comes in from outside is 0."""
    x, *rest = batch
    n, _, height, width = x.shape
    down, right = (noise.integers(2 * most + 1, 2) - most).unbind(1)
    rows = torch.arange(height, device=x.device) - down[:, None]
    columns = torch.arange(width, device=x.device) - right[:, None]
    inside = ((rows >= 0) & (rows < height))[:, None, :, None]
    inside = inside & ((columns >= 0) & (columns < width))[:, None, None, :]
    each = torch.arange(n, device=x.device)[:, None, None]
    taken = x.permute(0, 2, 3, 1)[each, rows.clamp(0, height - 1)[:, :, None],
                                  columns.clamp(0, width - 1)[:, None, :]]  # fmt: skip
    return taken.permute(0, 3, 1, 2) * inside, *rest
