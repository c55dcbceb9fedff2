"""Features to measure distances of: normal rows from a seed, and loaders of them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from vademecum.generative import PixelCNN, sliced_wasserstein

__all__ = ["CALLS", "batched", "normal"]


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in double precision."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def batched(*tensors: Tensor, size: int) -> DataLoader[Any]:
    """A loader of rows, with targets if there are two tensors."""
    return DataLoader(TensorDataset(*tensors), batch_size=size)


def _pixels(generator: torch.Generator | None) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = PixelCNN((1, 3, 3), levels=4, width=4, depth=1, head=4)
    return model.sample(2, generator=generator)


CALLS: dict[str, Callable[[torch.Generator | None], Any]] = {
    "PixelCNN.sample": _pixels,
    "sliced_wasserstein": lambda generator: (
        sliced_wasserstein(
            normal(6, 3), normal(5, 3, seed=1), projections=4, generator=generator
        ).value
    ),
}
