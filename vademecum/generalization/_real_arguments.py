"""Arguments that are numbers or tensors, as tensors side by side."""

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import broadcasting, number

__all__ = ["Real", "real_tensors"]

Real = float | Float[Tensor, " ..."]
"""A number, or a tensor of numbers."""


def real_tensors(**values: Real) -> list[Tensor]:
    """All as tensors on one device with shapes that broadcast; numbers in double precision.

    Raises:
        ValueError: If one is neither float32 nor float64 or elsewhere, or shapes do not fit.

    Example:
        >>> real_tensors(q=0.5, c=torch.tensor([1.0, 2.0]))
        [tensor(0.5000, dtype=torch.float64), tensor([1., 2.])]
    """
    device = next((v.device for v in values.values() if isinstance(v, Tensor)), None)
    found = {}
    for name, v in values.items():
        if not isinstance(v, Tensor):
            v = torch.tensor(number(name, v, infinite=True), dtype=torch.float64, device=device)
        if v.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"{name} must be float32 or float64, got {v.dtype}")
        if device is not None and v.device != device:
            raise ValueError(f"{name} must be on {device} like the others, got {v.device}")
        found[name] = v
    broadcasting("shapes", {name: v.shape for name, v in found.items()})
    return list(found.values())
