"""Powers of two that keep squares from over- and underflowing.

Multiplying by a power of two is exact, so a result for scaled data is that for the data, scaled.
"""

import math

import torch
from torch import Tensor

__all__ = ["power_of_two"]

_SAFE = 30  # exponents up to here leave room for the squares even in single precision


def power_of_two(*tensors: Tensor) -> float:
    """About the largest entry of all tensors, a power of two; 1 if that is neither huge nor tiny.

    Example:
        >>> power_of_two(torch.tensor([3.0, -5.0])), power_of_two(torch.tensor([3e-20]))
        (1.0, 5.421010862427522e-20)
    """
    ends = [torch.aminmax(t.detach()) for t in tensors]
    largest = max(max(-float(low), float(high)) for low, high in ends)
    room = math.frexp(torch.finfo(tensors[0].dtype).max)[1] - 4  # so that its inverse is finite
    exponent = max(-room, min(math.frexp(largest)[1], room))
    return 1.0 if largest == 0 or abs(exponent) <= _SAFE else 2.0**exponent
