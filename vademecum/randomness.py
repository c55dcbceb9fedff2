"""Where random numbers come from: a generator, or the global ones, borrowed and given back.

Layers and samplers draw from global generators, so whoever wants reproducible numbers must seed
these, and must leave no trace: what ran before and after sees its own random numbers.
"""

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "categorical", "given_back", "global_state", "own_randomness", "place", "reseed", "source",
    "whence",
]  # fmt: skip


@contextmanager
def own_randomness(seed: int | None = 0) -> Iterator[None]:
    """Seed all global generators, or go on from where they are, and give them back as they were.

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
        if seed is not None:
            reseed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy)  # noqa: NPY002
            random.setstate(python)


def given_back(generator: torch.Generator | None) -> AbstractContextManager[None]:
    """Let work draw from the global generators, and give them back, unless it has one of its own.

    Example:
        >>> state = torch.get_rng_state()
        >>> with given_back(None):
        ...     drawn = torch.rand(2)
        >>> state.equal(torch.get_rng_state())
        True
    """
    return nullcontext() if generator is not None else own_randomness(None)


def global_state() -> list[bytes]:
    """Where torch's global generators are: equal unless somebody has drawn from one of them.

    Example:
        >>> before = global_state()
        >>> drawn = torch.rand(2)
        >>> before == global_state()
        False
    """
    gpus = torch.cuda.get_rng_state_all() if _cuda() else []
    return [state.numpy().tobytes() for state in (torch.get_rng_state(), *gpus)]


def reseed(seed: int) -> None:
    """Seed the global generators of torch, NumPy and Python."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would also queue CUDA's
    if _cuda():
        torch.cuda.manual_seed_all(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def source(generator: torch.Generator | None, device: torch.device | str | None) -> dict[str, Any]:
    """What to pass to a sampler of torch so that it draws where the generator is.

    Args:
        generator: Where random numbers come from; torch's global generator by default.
        device: Where to draw without a generator.

    Example:
        >>> torch.randint(1, (2,), **source(torch.Generator(), "cuda")).tolist()
        [0, 0]
    """
    return {"generator": generator, "device": whence(generator, device)}


def whence(
    generator: torch.Generator | None, device: torch.device | str | None
) -> torch.device | str | None:
    """Where random numbers are drawn: where the generator is, or on `device` without one.

    Raises:
        ValueError: If it is neither a generator nor None.

    Example:
        >>> whence(torch.Generator(), "cuda"), whence(None, "cuda")
        (device(type='cpu'), 'cuda')
    """
    if generator is None:
        return device
    if not isinstance(generator, torch.Generator):
        raise ValueError(f"generator must be a torch.Generator or None, got {generator!r}")
    return generator.device


def place(
    generator: torch.Generator | None,
    dtype: torch.dtype | None,
    device: torch.device | str | None,
) -> tuple[torch.dtype, torch.device]:
    """The dtype and the device of the result: those given, the generator's, or torch's defaults.

    Raises:
        ValueError: Where the dtype is not floating, or the generator is none.
    """
    dtype = dtype or torch.get_default_dtype()
    if not dtype.is_floating_point:
        raise ValueError(f"dtype must be floating point, got {dtype}")
    own = whence(generator, None)
    return dtype, torch.device(device or own or torch.get_default_device())


def categorical(logits: Tensor, uniform: Tensor) -> Tensor:
    """Draw from a softmax law in each row, with a number between 0 and 1 for each.

    The first class at which the distribution function exceeds the number: so a draw is the same on
    every device, and a class of probability 0 never comes out.

    Args:
        logits: The logits, (n, k).
        uniform: The numbers, (n,); the law is computed in the wider of the two dtypes.

    Example:
        >>> logits = torch.tensor([[0.3, 0.0, 0.7]]).log().expand(3, 3)
        >>> categorical(logits, torch.tensor([0.2, 0.4, 0.99])).tolist()
        [0, 2, 2]
    """
    wide = torch.promote_types(logits.dtype, uniform.dtype)
    scale = logits.to(wide).softmax(1).cumsum(1)
    total = scale[:, -1:]
    below = torch.nextafter(total, torch.zeros_like(total))  # the product may round up to the total
    goal = torch.minimum(uniform.to(wide)[:, None] * total, below)
    return torch.searchsorted(scale, goal, right=True)[:, 0].clamp(max=scale.shape[1] - 1)


def _cuda() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_initialized()
