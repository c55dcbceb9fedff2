r"""The dual of a $p$-norm, and the vector that attains it.

For $p \in [1, \infty]$ and the conjugate exponent $q$, $\frac1p + \frac1q = 1$, the dual of
$\|v\|_p = (\sum_i |v_i|^p)^{1/p}$ is

$$\|x\|_q = \max_{\|v\|_p \le 1} \langle v, x \rangle,
\qquad v_i = \operatorname{sgn}(x_i) \left( \frac{|x_i|}{\|x\|_q} \right)^{q - 1},$$

where $v$ attains the maximum: the case of equality in Hölder's inequality. For $p = \infty$ it is
the vector of signs, for $p = 1$ the sign of one entry of largest modulus, at its place. It is the
step of steepest ascent for a linear function under $\|\cdot\|_p$, and the gradient of $\|x\|_q$
wherever that has one.

All of this is evaluated as it stands, up to rounding; for $1 < p < \infty$ after division by
$\max_i |x_i|$, so that no power overflows. The claims are `holder_inequality` and
`holder_equality`.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number
from vademecum.results import one_line

__all__ = ["DualNorm", "dual_norm", "vectors"]


class DualNorm(NamedTuple):
    """The dual norm of vectors, and where it is attained.

    Example:
        >>> dual_norm(torch.tensor([3.0, -4.0]), 1).maximiser
        tensor([ 0., -1.])
    """

    value: Tensor
    r"""The dual norms $\|x\|_q$."""
    maximiser: Tensor
    """For each a vector $v$ of the unit ball that attains it."""

    __repr__ = one_line


def dual_norm(x: Float[Tensor, " *batch d"], p: float = 2.0) -> DualNorm:
    r"""The largest $\langle v, x \rangle$ over $\|v\|_p \le 1$, and where it is attained.

    Args:
        x: Vectors, in the last axis.
        p: The exponent of the norm whose dual is wanted, from 1 to infinity.

    Returns:
        The value $\|x\|_q$, differentiable, and the maximiser, which carries no gradient; at
        $x = 0$ it is 0, for $p = 1$ and entries of equal modulus the first of them counts.

    Example:
        >>> x = torch.tensor([3.0, -4.0])
        >>> dual_norm(x, 2).value, dual_norm(x, 2).maximiser
        (tensor(5.), tensor([ 0.6000, -0.8000]))
        >>> dual_norm(x, torch.inf).value, dual_norm(x, torch.inf).maximiser
        (tensor(7.), tensor([ 1., -1.]))
    """
    x = vectors("x", x)
    p = number("p", p, low=1.0, infinite=True)
    q = torch.inf if p == 1 else 1.0 if p == torch.inf else p / (p - 1)
    scale = x.detach().abs().amax(-1, keepdim=True)
    scale = torch.where((scale > 0) & (1 < p < torch.inf), scale, 1)
    u = x / scale
    norm = torch.linalg.vector_norm(u, q, dim=-1, keepdim=True)
    value = (scale * norm)[..., 0]
    u = u.detach()
    if p == 1:
        place = u.abs().argmax(-1, keepdim=True)
        v = torch.zeros_like(u).scatter(-1, place, u.sign().gather(-1, place))
    else:
        # Not divided by the dual norm before the power, which would take its rounding q-fold.
        v = u.sign() * u.abs() ** (q - 1)
        v = v / torch.linalg.vector_norm(v, p, dim=-1, keepdim=True).clamp(min=1)  # 0 at zero only
    return DualNorm(value, v)


def vectors(name: str, x: Any) -> Tensor:
    """A tensor of finite real vectors in the last axis.

    Example:
        >>> vectors("x", torch.ones(2))
        tensor([1., 1.])
    """
    x = floats(name, x)
    if x.ndim == 0 or x.is_complex():
        raise ValueError(f"{name} must hold real vectors, got shape {tuple(x.shape)} of {x.dtype}")
    return x
