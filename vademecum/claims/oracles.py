r"""Oracles: answers that share nothing with what they check.

**The complex step.** If $f$ is analytic and real on the real numbers, Taylor's formula at a real
$x$ along a real direction $v$ reads

$$f(x + i h v) = f(x) + i h\, Df(x) v - \frac{h^2}{2} D^2 f(x)[v, v] - \dots , \qquad
\frac{\operatorname{Im} f(x + i h v)}{h} = Df(x) v + O(h^2) .$$

No difference is taken, so nothing cancels, and $h$ may be as small as one likes: for $h = 10^{-30}$
the error $h^2$ is far below any rounding, and the derivative is as exact as a value of $f$. No
graph is recorded, and no rule of differentiation used. But $f$ must be analytic: made of sums,
products, quotients, exp, log, sin, tanh and the like, without absolute values, maxima, conjugation
($\bar z z$ is not $z^2$), real or imaginary parts.

Ranks, solutions and inverses without rounding are in `vademecum.arrays` (`row_reduce`).

References:
    Squire and Trapp, Using complex variables to estimate derivatives of real functions, SIAM
    Review, 1998.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["complex_step"]

_STEP = 1e-30


def complex_step(f: Callable[[Any], Any], x: Tensor | np.ndarray, direction: Any = None) -> Tensor:
    r"""The derivative of an analytic function at a real point, exact up to the rounding of f.

    Args:
        f: An analytic function, without absolute values, maxima or conjugation, of complex arrays
            in double precision: of tensors if `x` is one, of NumPy's arrays if it is one of those.
        x: A real point.
        direction: A direction $v$, broadcast to the shape of `x`. With 1 a function that acts entry
            by entry gives its derivative entry by entry.

    Returns:
        All partial derivatives, the axes of the value first and then those of `x`; given a
        direction, $Df(x) v$, in the shape of the value.

    Raises:
        ValueError: If `x` is complex or empty, the direction is complex or does not fit, or the
            value is real, so that f has dropped the imaginary part.

    Example:
        >>> complex_step(lambda z: z[0] * z[1] ** 2, torch.tensor([5.0, 3.0]))
        tensor([ 9., 30.], dtype=torch.float64)
        >>> complex_step(np.exp, np.zeros(3), 1)
        tensor([1., 1., 1.], dtype=torch.float64)
    """
    if isinstance(x, np.ndarray):
        return complex_step(lambda z: torch.as_tensor(f(z.numpy())), torch.from_numpy(x), direction)
    point = _real("x", x.detach())
    if direction is not None:
        return _along(f, point, _real("direction", direction).to(point.device))
    if not point.numel():
        raise ValueError(f"x must not be empty, got shape {tuple(x.shape)}")
    units = torch.eye(point.numel(), dtype=point.dtype, device=point.device)
    columns = torch.stack([_along(f, point, e) for e in units.view(-1, *point.shape)], -1)
    return columns.view(columns.shape[:-1] + point.shape)


def _real(name: str, given: Any) -> Tensor:
    tensor = torch.as_tensor(given)
    if tensor.is_complex():
        raise ValueError(f"{name} must be real, got {tensor.dtype}")
    return tensor.double()


def _along(f: Callable[[Tensor], Tensor], x: Tensor, v: Tensor) -> Tensor:
    try:
        moved = torch.complex(x, _STEP * v.expand_as(x))
    except RuntimeError:
        raise ValueError(
            f"direction must be broadcast to shape {tuple(x.shape)}, got {tuple(v.shape)}"
        ) from None
    value = f(moved)
    if not value.is_complex():
        raise ValueError(f"f must have complex values at complex points, got {value.dtype}")
    return value.imag / _STEP
