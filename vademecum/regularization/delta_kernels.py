r"""Convolutions that begin as an orthogonal map of channels, pixel by pixel.

The kernel is zero but in its centre, where it is $g Q$ with $Q$ drawn from the Haar measure: of a
Gaussian matrix $G = Q R$ with a positive diagonal of $R$. So with stride 1 and padding that keeps
the size the layer is $g Q$ at each position: all its singular values are $g$ where it has at least
as many output as input channels. Exact up to rounding; the claim `orthogonal_init` checks the draw.
"""

import torch
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.randomness import source

__all__ = ["delta_orthogonal_", "haar"]


def delta_orthogonal_(
    weight: Tensor,
    gain: float = 1.0,
    *,
    groups: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Fill the kernel of a convolution, in place: zero, but an orthogonal matrix in the centre.

    Args:
        weight: The kernel of a convolution over 1, 2 or 3 axes, also transposed: (m, n, ...). With
            m < n its rows are orthonormal instead of its columns, and no signal grows.
        gain: All singular values of the layer.
        groups: How many groups of channels the convolution has; each gets a matrix of its own.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        The weight.

    References:
        Xiao, Bahri, Sohl-Dickstein, Schoenholz and Pennington, Dynamical isometry and a mean field
        theory of CNNs, ICML, 2018.

    Example:
        >>> layer = nn.Conv2d(3, 5, 3, padding=1, bias=False)
        >>> x = torch.ones(1, 3, 4, 4)
        >>> _ = delta_orthogonal_(layer.weight, 2.0)
        >>> layer(x).norm() / x.norm()
        tensor(2.0000, grad_fn=<DivBackward0>)
    """
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        given = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise ValueError(f"weight must be a tensor of floating-point numbers, got {given}")
    if not 3 <= weight.ndim <= 5 or weight.numel() == 0:
        raise ValueError(
            "weight must be the kernel of a convolution over 1, 2 or 3 axes, got shape"
            f" {tuple(weight.shape)}"
        )
    number("gain", gain)
    whole("groups", groups, low=1)
    m, n, *kernel = weight.shape
    if m % groups:
        raise ValueError(f"groups must divide the {m} channels of weight, got {groups}")
    blocks = torch.cat([haar(m // groups, n, weight, generator) for _ in range(groups)])
    with torch.no_grad():
        weight.zero_()
        weight[(slice(None), slice(None), *(k // 2 for k in kernel))] = gain * blocks
    return weight


def haar(m: int, n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """A random m x n matrix with orthonormal columns, or rows if these are fewer."""
    wide = torch.promote_types(like.dtype, torch.float32)
    gauss = torch.randn(max(m, n), min(m, n), dtype=wide, **source(generator, like.device))
    Q, R = torch.linalg.qr(gauss.to(like.device))
    Q = Q * torch.where(R.diagonal() < 0, -1.0, 1.0)
    return (Q if m >= n else Q.T).to(like.dtype)
