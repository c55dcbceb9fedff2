"""Where random numbers come from: a generator that is given, or the global ones, borrowed.

A function with `generator=None` draws from torch's global generator, wherever its tensors are. A
generator that is given draws on its own device, from where the numbers are moved, so that a seed
means the same on every device.

Layers and samplers draw from global generators, so whoever wants reproducible numbers must seed
these, and must leave no trace: what ran before and after sees its own random numbers.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

__all__ = ["normal", "own_randomness", "reseed", "uniform"]


def normal(*shape: int, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Standard normal numbers, with the dtype and on the device of another tensor.

    Example:
        >>> numbers = normal(2, like=torch.zeros(1), generator=torch.Generator().manual_seed(0))
        >>> numbers.equal(torch.randn(2, generator=torch.Generator().manual_seed(0)))
        True
    """
    device = like.device if generator is None else generator.device
    return torch.randn(shape, generator=generator, device=device, dtype=like.dtype).to(like.device)


def uniform(*shape: int, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Numbers uniform in [0, 1), with the dtype and on the device of another tensor.

    Example:
        >>> bool((uniform(100, like=torch.zeros(1)) < 1).all())
        True
    """
    device = like.device if generator is None else generator.device
    return torch.rand(shape, generator=generator, device=device, dtype=like.dtype).to(like.device)


@contextmanager
def own_randomness(seed: int = 0) -> Iterator[None]:
    """Seed all global generators, and afterwards give them back as they were.

    Example:
        >>> with own_randomness(3):
        ...     first = torch.rand(2)
        >>> with own_randomness(3):
        ...     again = torch.rand(2)
        >>> first.equal(again)
        True
    """
    numpy, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    devices = range(torch.cuda.device_count()) if _cuda() else []
    with torch.random.fork_rng(devices):
        reseed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy)  # noqa: NPY002
            random.setstate(python)


def reseed(seed: int) -> None:
    """Seed the global generators of torch, NumPy and Python."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would also queue CUDA's
    if _cuda():
        torch.cuda.manual_seed_all(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def _cuda() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_initialized()
