"""Room for large results, with as few page faults as the system allows.

The first write to each page of fresh memory interrupts the program, and with pages of 4 kB this
costs more than computing what is written, if that is an outer product or a copy. NumPy asks Linux
for pages of 2 MB where an array is large; torch does not. So large results on the CPU live in
memory that NumPy has reserved; on other devices torch's own allocator serves.
"""

import numpy as np
import torch
from torch import Tensor

__all__ = ["empty"]

_LARGE = 2**22  # bytes from which on NumPy asks for large pages


def empty(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """An uninitialised tensor, like `torch.empty`.

    Example:
        >>> empty(2, 3, dtype=torch.float32, device=torch.device("cpu")).shape
        torch.Size([2, 3])
    """
    size = torch.Size(shape).numel() * dtype.itemsize
    if device.type != "cpu" or size < _LARGE:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.empty(size, np.uint8)).view(dtype).view(shape)
