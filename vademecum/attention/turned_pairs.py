r"""Rotary positions: features turn, pair by pair, by an angle that grows with the position.

$$\begin{pmatrix} y_a \\ y_b \end{pmatrix} =
\begin{pmatrix} \cos t \omega_i & -\sin t \omega_i \\
\sin t \omega_i & \cos t \omega_i \end{pmatrix}
\begin{pmatrix} x_a \\ x_b \end{pmatrix}, \qquad \omega_i = C^{-2i/d} , $$

where pair $i$ is $(a, b) = (2i, 2i + 1)$, or $(i, i + d/2)$ for halves. Turning queries and keys so
makes the score of positions $s$ and $t$ depend on $s - t$ only, since rotations are orthogonal and
commute: $(R_s q) \cdot (R_t k) = q \cdot R_{t - s} k$. Lengths are kept.

Angles are computed in double precision, the products in that of $x$, at least single precision.
Checked by `attention.encoding_shift_rotation`.
"""

from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from vademecum.arguments import choice
from vademecum.attention.positions import frequencies

__all__ = ["rotary"]


def rotary(
    x: Float[Tensor, " *rows T d"],
    positions: Shaped[Tensor, " *some_rows T"],
    *,
    base: float = 10000.0,
    pairing: Literal["adjacent", "halves"] = "adjacent",
) -> Float[Tensor, " *rows T d"]:
    r"""Turn queries or keys by their positions, so that scores depend on offsets only.

    Args:
        x: Queries or keys, of any number of heads.
        positions: The position of each, (T,) or whatever broadcasts with the axes of x before the
            last: whole numbers or fractions.
        base: The ratio $C$ that the frequencies span.
        pairing: Which features turn together: neighbours, as in the paper, or those half of the
            features apart, as in the files of Llama.

    Raises:
        ValueError: If the features are no pairs, x is not floating point, or positions do not fit.

    References:
        Su et al., RoFormer: enhanced transformer with rotary position embedding, Neurocomputing,
        2024.

    Example:
        >>> quarter = torch.tensor([torch.pi / 2])
        >>> rotary(torch.tensor([[3.0, 4.0]]), quarter).round(decimals=4).tolist()
        [[-4.0, 3.0]]
    """
    _check(x, positions)
    choice("pairing", pairing, ("adjacent", "halves"))
    omega = frequencies("the last axis of x", x.shape[-1], base, x.device)
    angles = positions.double()[..., None] * omega
    dtype = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    y = x.to(dtype)
    if pairing == "adjacent" and not torch.compiler.is_compiling():
        y = torch.view_as_real(_complex(y) * torch.complex(cos, sin)).flatten(-2)
        return y.to(x.dtype)
    a, b = y.unflatten(-1, (-1, 2)).unbind(-1) if pairing == "adjacent" else y.chunk(2, -1)
    turned = a * cos - b * sin, a * sin + b * cos
    y = torch.stack(turned, -1).flatten(-2) if pairing == "adjacent" else torch.cat(turned, -1)
    return y.to(x.dtype)


def _complex(x: Tensor) -> Tensor:
    """Neighbours as one complex number: one pass in place of seven. Compilers do without."""
    pairs = x.unflatten(-1, (-1, 2))
    even = (*pairs.stride()[:-1], pairs.storage_offset())
    if pairs.stride(-1) != 1 or any(step % 2 for step in even):
        pairs = pairs.clone(memory_format=torch.contiguous_format)
    return torch.view_as_complex(pairs)


def _check(x: Tensor, positions: Tensor) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim < 2:
        given = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be a floating-point tensor (..., T, d), got {given}")
    kind = positions.dtype if isinstance(positions, Tensor) else type(positions).__name__
    if not isinstance(positions, Tensor) or kind == torch.bool or positions.is_complex():
        raise ValueError(f"positions must be a tensor of real numbers, got {kind}")
    if positions.device != x.device:
        raise ValueError(f"positions must be on x's device {x.device}, got {positions.device}")
    rows = x.shape[:-1]
    spread = zip(reversed(positions.shape), reversed(rows), strict=False)
    fits = 1 <= positions.ndim <= len(rows) and all(have in (1, want) for have, want in spread)
    if not fits or positions.shape[-1] != rows[-1]:
        raise ValueError(
            f"positions must be ({rows[-1]},), or broadcast to the axes {tuple(rows)} of x before"
            f" its last, got {tuple(positions.shape)}"
        )
