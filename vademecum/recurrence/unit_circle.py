r"""Eigenvalues inside the unit circle, for every value of two real parameters.

$$\lambda = \exp(-e^{\nu} + \mathrm i \theta), \qquad |\lambda| = e^{-e^{\nu}} \in (0, 1), \qquad
\nu = \ln(-\ln |\lambda|) .$$

The phase is $\theta$ itself, so that 0, an eigenvalue that is real and positive, is as good as any
other. An input normalised by $\gamma = \sqrt{1 - |\lambda|^2}$ keeps the state of a white input at
the input's own variance: $\sum_k |\lambda|^{2k} \gamma^2 = 1$.

Numbers on a machine round, and $e^{-e^\nu}$ would be 1 for $\nu = -20$ in single precision. So
$\nu$ is taken as the nearest number of an interval: $|\lambda|$ is at most $1 - 8 \varepsilon$ with
the machine precision $\varepsilon$ (a memory of a million steps in single precision), which leaves
room for the rounding of cosine, sine and products; and at least $e^{-80}$, beyond which derivatives
would be $\infty \cdot 0$. Precisions below single compute in single.

At first, eigenvalues are drawn on the ring $r_{\min} \le |\lambda| \le r_{\max}$: uniformly by its
area, so that $|\lambda|^2$ is uniform, or by modulus, so that $|\lambda|$ is. The claims are
`lru_eigenvalues` and `lru_initialisation`.
"""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from vademecum.arguments import choice, number, whole
from vademecum.randomness import source, whence
from vademecum.results import one_line

__all__ = ["LRUInit", "bounded", "eigenvalues", "lru_init", "time_scales"]

_FASTEST = math.log(80.0)  # beyond e^-87 single precision has no normal numbers


class LRUInit(NamedTuple):
    """The parameters of the recurrence of a linear recurrent unit.

    Example:
        >>> LRUInit(torch.zeros(1), torch.zeros(1), torch.zeros(1)).eigenvalues  # 1 / e
        tensor([0.3679+0.j])
    """

    nu: Float[Tensor, " m"]
    r"""$\nu$, whose $e^{-e^\nu}$ is the modulus of the eigenvalue."""
    theta: Float[Tensor, " m"]
    """The phases."""
    log_gamma: Float[Tensor, " m"]
    r"""Logarithms of the input normalisation $\sqrt{1 - |\lambda|^2}$."""

    __repr__ = one_line

    @property
    def eigenvalues(self) -> Complex[Tensor, " m"]:
        r"""The eigenvalues $\lambda$."""
        return eigenvalues(self.nu, self.theta)


def lru_init(
    m: int,
    *,
    r_min: float = 0.0,
    r_max: float = 1.0,
    max_phase: float = 2 * math.pi,
    by: Literal["area", "modulus"] = "area",
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> LRUInit:
    r"""Draw eigenvalues on a ring inside the unit circle.

    Args:
        m: How many.
        r_min: The smallest modulus.
        r_max: The largest modulus; moduli near 1 remember for long.
        max_phase: Phases are uniform from 0 to this.
        by: What is uniform: "area" spreads the eigenvalues evenly over the ring, "modulus" draws
            $|\lambda|$ evenly from $[r_{\min}, r_{\max}]$, which puts more of them inside.
        generator: Where random numbers come from; torch's global generator by default.
        dtype: The dtype of the parameters, torch's default without one.

    Raises:
        ValueError: If not $0 \le r_{\min} \le r_{\max} \le 1$ with $r_{\min} < 1$ and
            $r_{\max} > 0$, or the phase is not in $[0, 2 \pi]$.

    References:
        Orvieto et al., Resurrecting recurrent neural networks for long sequences, ICML 2023.

    Example:
        >>> drawn = lru_init(3, r_min=0.5, r_max=0.5, max_phase=0.0)
        >>> drawn.eigenvalues.real, drawn.log_gamma.exp()  # the root of 3/4
        (tensor([0.5000, 0.5000, 0.5000]), tensor([0.8660, 0.8660, 0.8660]))
    """
    m = whole("m", m, low=1)
    number("r_max", r_max, above=0, high=1)
    number("r_min", r_min, low=0, high=r_max, below=1)
    number("max_phase", max_phase, low=0, high=2 * math.pi)
    choice("by", by, ("area", "modulus"))
    dtype = torch.get_default_dtype() if dtype is None else dtype
    where = whence(generator, torch.get_default_device())
    even = torch.rand(2, m, dtype=torch.float64, **source(generator, where))
    power = 2 if by == "area" else 1
    low, high = r_min**power, r_max**power
    r = (low + (high - low) * even[0]) ** (1 / power)
    nu = bounded((-r.log()).log(), dtype)
    log_gamma = (-torch.expm1(-2 * nu.exp())).log() / 2
    return LRUInit(*(p.to(dtype) for p in (nu, max_phase * even[1], log_gamma)))


def bounded(nu: Float[Tensor, " *shape"], dtype: torch.dtype) -> Float[Tensor, " *shape"]:
    """The nearest parameters whose eigenvalues a dtype keeps strictly inside the unit circle."""
    return nu.clamp(_SLOWEST.get(dtype, _SLOWEST[torch.float32]), _FASTEST)


_SLOWEST = {d: math.log(8 * torch.finfo(d).eps) for d in (torch.float32, torch.float64)}


def eigenvalues(
    nu: Float[Tensor, " *shape"], theta: Float[Tensor, " *shape"]
) -> Complex[Tensor, " *shape"]:
    r"""$\exp(-e^\nu + \mathrm i \theta)$, in single precision at least."""
    nu = _single_at_least(nu)
    return torch.polar((-bounded(nu, nu.dtype).exp()).exp(), _single_at_least(theta))


def time_scales(nu: Float[Tensor, " *shape"]) -> Float[Tensor, " *shape"]:
    r"""$e^{-\nu}$, in single precision at least: it may be a million."""
    nu = _single_at_least(nu)
    return (-bounded(nu, nu.dtype)).exp()


def _single_at_least(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
