r"""Sinusoidal encodings of positions, and the rotation that shifts them.

Position $t$ has $n$ features in pairs, a sine and the cosine of the same angle:

$$p_{t, 2i} = \sin(t \omega_i), \qquad p_{t, 2i + 1} = \cos(t \omega_i), \qquad
\omega_i = C^{-2i/n}, \quad i < n/2 .$$

The frequencies fall geometrically from 1 towards $1/C$. Since the two of a pair share their
frequency, a shift by $\Delta$ is linear: $p_{t + \Delta} = R_\Delta p_t$ for all $t$, where
$R_\Delta$ has the blocks

$$\begin{pmatrix} \cos \omega_i \Delta & \sin \omega_i \Delta \\
-\sin \omega_i \Delta & \cos \omega_i \Delta \end{pmatrix} ,$$

so that $p_s \cdot p_t = \sum_i \cos(\omega_i (s - t))$ depends on the offset only. Angles are
computed in double precision and rounded once. Checked by `attention.sinusoidal_encoding` and
`attention.encoding_shift_rotation`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import number, whole

__all__ = ["encoding_rotation", "sinusoidal_encoding"]


def sinusoidal_encoding(
    T: int,
    n: int,
    *,
    base: float = 10000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, " T n"]:
    r"""The encodings of the positions 0, ..., T - 1, a row each, to be added to embeddings.

    Args:
        T: How many positions there are.
        n: How many features each has, in pairs of a sine and a cosine.
        base: The ratio $C$ that the frequencies span.
        dtype: Of the result; torch's default one by default.
        device: Where the result lies.

    Raises:
        ValueError: If `n` is odd, a number is out of range, or the dtype is not floating point.

    References:
        Vaswani et al., Attention is all you need, NeurIPS, 2017.

    Example:
        >>> sinusoidal_encoding(2, 4)  # of 1: sin 1, cos 1, sin 0.01, cos 0.01
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    t = torch.arange(whole("T", T, low=1), dtype=torch.float64, device=device)
    angles = t[:, None] * frequencies("n", n, base, device)
    pairs = torch.stack((angles.sin(), angles.cos()), -1)
    return pairs.flatten(1).to(_floating(dtype))


def encoding_rotation(
    delta: float,
    n: int,
    *,
    base: float = 10000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, " n n"]:
    r"""The matrix $R_\Delta$ that takes the encoding of every position $t$ to that of $t + \Delta$.

    It is orthogonal, and $R_{\Delta + \Delta'} = R_\Delta R_{\Delta'}$.

    Args:
        delta: By how much to shift; of either sign, and any fraction.
        n: How many features an encoding has, in pairs of a sine and a cosine.
        base: The ratio $C$ that the frequencies span.
        dtype: Of the result; torch's default one by default.
        device: Where the result lies.

    Raises:
        ValueError: If `n` is odd, a number is out of range, or the dtype is not floating point.

    Example:
        >>> p = sinusoidal_encoding(6, 8, dtype=torch.float64)
        >>> torch.allclose(p[:3] @ encoding_rotation(3, 8, dtype=torch.float64).T, p[3:])
        True
    """
    angles = number("delta", delta) * frequencies("n", n, base, device)
    sin, cos = angles.sin(), angles.cos()
    blocks = torch.stack((cos, sin, -sin, cos), -1).unflatten(-1, (2, 2))
    return torch.block_diag(*blocks).to(_floating(dtype))


def frequencies(
    name: str, n: int, base: float, device: torch.device | str | None
) -> Float[Tensor, " pairs"]:
    """The frequencies of all pairs of features, in double precision; `name` calls n in errors."""
    if whole(name, n, low=2) % 2:
        raise ValueError(f"{name} must be even, a sine and a cosine for each frequency, got {n}")
    exponents = torch.arange(0, n, 2, dtype=torch.float64, device=device) / n
    return number("base", base, above=0) ** -exponents


def _floating(dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(f"dtype must be a floating-point one, got {dtype}")
    return dtype or torch.get_default_dtype()
