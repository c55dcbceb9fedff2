r"""Euclidean norms, and scales, for numbers whose squares may leave the range of their dtype.

Multiplying by a power of two is exact, so a result for scaled data is that for the data, scaled. A
norm $\|x\| = s \, \|x / s\|$ with a power of two $s$ just below $\max_i |x_i|$ neither over- nor
underflows before the result does, but takes two passes more over the data and a copy. So the plain
norm is taken where it is finite and at least $\sqrt{t / \varepsilon}$, with $t$ the least normal
number: squares that were lost below $t$ then amount to no more than a rounding error each.
"""

import math

import torch
from jaxtyping import Inexact
from torch import Tensor

__all__ = ["lengths", "power_of_two"]

_SAFE = 30  # exponents up to here leave room for the squares even in single precision


def lengths(
    x: Inexact[Tensor, " ..."],
    dim: int = 0,
    *,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Euclidean norms of vectors along an axis, right also where their squares leave the range.

    Args:
        x: The vectors, each of a size of its own; NaN gives NaN.
        dim: The axis along which a vector lies.
        keepdim: Whether the axis stays, with one entry.
        dtype: In which to compute and answer; that of `x` by default.

    Example:
        >>> lengths(torch.tensor([[3e30, 3e-30, 0.0], [4e30, 4e-30, 0.0]]))
        tensor([5.0000e+30, 5.0000e-30, 0.0000e+00])
    """
    norm = torch.linalg.vector_norm(x, dim=dim, keepdim=True, dtype=dtype)
    limits = torch.finfo(norm.dtype)
    plain = (norm >= math.sqrt(limits.tiny / limits.eps)) & (norm <= limits.max)
    if not bool(plain.all()):
        parts = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x[..., None]
        both = (dim % x.ndim, x.ndim)
        scale = parts.detach().abs().amax(both, keepdim=True).to(norm.dtype)
        scale = torch.where((scale > 0) & (scale < math.inf), scale, 1)
        scale = scale / (2 * torch.frexp(scale).mantissa)  # the power of two below
        scaled = torch.linalg.vector_norm(parts / scale, dim=both, keepdim=True)
        norm = torch.where(plain, norm, (scale * scaled).squeeze(-1))
    return norm if keepdim else norm.squeeze(dim)


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
