r"""The divergence of two coins, accurate where they are almost equal, with a bound on its error.

$$\mathrm{kl}(q \| p) = q \ln \frac qp + (1 - q) \ln \frac{1 - q}{1 - p}
= q\, h\Big(\frac{p - q}q\Big) + (1 - q)\, h\Big(\frac{q - p}{1 - q}\Big), \qquad
h(x) = x - \ln(1 + x) \ge 0.$$

The two terms of the second form have one sign. With $z = x / (2 + x)$ and $\ln(1 + x) = 2
\operatorname{artanh} z$,

$$h(x) = z\, \big(x - 2 z^2 (\tfrac13 + \tfrac15 z^2 + \tfrac17 z^4 + \dots)\big),$$

which does not cancel for $-\frac12 \le x \le 1$, where $z^2 \le \frac19$ and 17 terms leave less
than $10^{-17}$ of it. Elsewhere $h$ is a difference of numbers of which the larger is at most 3.6
times the difference.

Rounding: with the unit $u = 2^{-53}$, $x$ is off by $3 u$ at most ($1 - q$, $p - q$, the quotient),
which $h$ amplifies at most 2.6 times; the series costs $11 u$, the logarithm for $x < -\frac12$,
taken to be right within four units in the last place, $48 u$ altogether. So the relative error is
below $32 \cdot 2^{-52}$, `ERROR`, beside what underflows, `UNDERFLOW`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["ERROR", "UNDERFLOW", "bernoulli_divergence"]

ERROR = 32 * 2.0**-52
"""What a divergence is off by at most, relative to it."""
UNDERFLOW = 32 * 5e-324
"""What it may be off by beside: products below the smallest normal number lose half of the
smallest one."""
_MOST = torch.finfo(torch.float64).max
_TERMS = [1 / (2 * k + 3) for k in range(17)]


def bernoulli_divergence(
    q: Float[Tensor, " *shape"], p: Float[Tensor, " *shape"]
) -> Float[Tensor, " *shape"]:
    r"""The divergences $\mathrm{kl}(q \| p)$ in double precision, for $0 < q, p < 1$, unchecked.

    Example:
        >>> half, third = torch.tensor([0.5]).double(), torch.tensor([0.25]).double()
        >>> bernoulli_divergence(half, third).item()  # ln(4 / 3) / 2
        0.1438...
    """
    d = p - q
    both = (torch.stack(pair) for pair in ((q, 1 - q), (p, 1 - p), (d, -d)))
    return _term(*both).sum(0)


def _term(q: Tensor, p: Tensor, d: Tensor) -> Tensor:
    """The terms q h(d / q), where p = q + d."""
    x = (d / q).clamp_(max=_MOST)  # infinite for a subnormal q alone
    z = x / (2 + x)
    t = z * z
    series = t * _TERMS[-1]
    for a in reversed(_TERMS[1:-1]):
        series.add_(a).mul_(t)
    near = series.add_(_TERMS[0]).mul_(t).mul_(-2).add_(x).mul_(z).mul_(q)
    far = (p / q).clamp_(max=_MOST).log_().mul_(-q).add_(d)
    return torch.where((x < -0.5) | (x > 1), far, near)
