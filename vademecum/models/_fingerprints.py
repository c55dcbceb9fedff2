r"""An order-free hash of the examples of a pass: equal for equal examples, in whatever batches.

The bits of an example's tensors, as integers $b_j$, make $h = \mathrm{mix}(\sum_j b_j\, c_j)$ with
fixed odd $c_j$, modulo $2^{64}$, and a pass has the sum over its examples. That two different
passes have the same sum has a chance of about $2^{-60}$; nobody is meant to forge it.
"""

from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from vademecum.models.inputs import named_tensors

__all__ = ["fingerprint"]

_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ODD = -7046029254386353131  # of the golden ratio, as splitmix64 has it
_MIX = -4658895280553007687


def fingerprint(x: Any, y: Any) -> Int64[Tensor, ""]:
    """The hash of the examples of a batch.

    Example:
        >>> x = torch.arange(6.0).view(3, 2)
        >>> parts = fingerprint(x[:1], None) + fingerprint(x[[2, 1]], None)
        >>> bool(parts == fingerprint(x, None))
        True
    """
    tensors = [t.detach() for _, t in named_tensors((x, y)) if t.layout == torch.strided]
    if not tensors:
        return torch.zeros((), dtype=torch.int64)
    n = max(len(t) if t.ndim else 1 for t in tensors)
    total = torch.zeros(n, dtype=torch.int64, device=tensors[-1].device)
    for t in tensors:
        rows = t.reshape(n, -1) if t.ndim and len(t) == n else t.reshape(1, -1)
        total = _mixed(total * _ODD + _row_sums(rows).to(total.device))
    return total.sum()


def _row_sums(rows: Tensor) -> Int64[Tensor, " n"]:
    if rows.is_complex():
        rows = torch.view_as_real(rows).flatten(1)
    bits = rows.to(torch.uint8) if rows.dtype == torch.bool else rows.contiguous()
    bits = bits.view(_WHOLE[bits.element_size()])
    factors = _mixed(torch.arange(1, bits.shape[1] + 1, device=bits.device) * _ODD) | 1
    return (bits * factors).sum(1)


def _mixed(h: Tensor) -> Tensor:
    h = (h ^ (h >> 30)) * _MIX
    return h ^ (h >> 27)
