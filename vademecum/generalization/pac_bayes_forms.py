r"""PAC-Bayes bounds: from the risk on $n$ examples and a divergence to the risk.

Fix a prior $P$ on functions before seeing the data. For losses in $[0, 1]$ and $n$ independent
examples, with probability at least $1 - \delta$, for all posteriors $Q$ at once, with $\hat r$ the
mean risk under $Q$ on the examples, $r$ the mean risk and $B = \mathrm{KL}(Q \| P) +
\ln(2 \sqrt n / \delta)$:

| kind | bound |
|---|---|
| "kl" | $\mathrm{kl}(\hat r \| r) \le B / n$, inverted (Langford and Seeger, Maurer) |
| "quadratic" | $r \le (\sqrt{\hat r + B / (2n)} + \sqrt{B / (2n)})^2$ (Rivasplata et al.) |
| "mcallester" | $r \le \hat r + \sqrt{B / (2n)}$ |
| "catoni" | $r \le (1 - \exp(-C \hat r - (\mathrm{KL} + \ln(1 / \delta)) / n)) / (1 - e^{-C})$ |

The second and third follow from the first, and are never below it. The last holds for one $C > 0$
fixed before the data; without one, the least over $C = 8 \cdot 2^{-j/2}$, $j < J = 2 \lceil \log_2
(8 \sqrt n) \rceil + 1$, at $\delta / J$ each: a union bound, in which the data may choose.

Everything is computed in double precision from arguments taken as exact, and rounded up: no bound
is below what its formula says. Above 1 a bound says nothing; it is not cut there, so that there is
a gradient to follow.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.arguments import choice, number, whole
from vademecum.generalization._real_arguments import Real, real_tensors
from vademecum.generalization.kl_inversion import kl_inverse

__all__ = ["pac_bayes_bound"]

Result = Any  # a number for numbers, a tensor for tensors
Kind = Literal["kl", "quadratic", "mcallester", "catoni"]

_ROUNDING = 1 + 2.0**-48  # some ten operations, each right within a few units of 2**-53


def pac_bayes_bound(
    risk: Real, kl: Real, n: int, *, delta: float, kind: Kind = "kl", C: float | None = None
) -> Result:
    r"""An upper bound of the mean risk under a posterior, with confidence $1 - \delta$.

    Numbers give a number, tensors, which broadcast, a tensor: of double precision if one of them
    is. Differentiable in `risk` and `kl`.

    Args:
        risk: The mean risk under the posterior on the `n` examples, in [0, 1].
        kl: The divergence $\mathrm{KL}(Q \| P)$ of the posterior from the prior, in nats.
        n: The number of examples, none of which the prior has seen.
        delta: The probability with which the bound may fail, in (0, 1).
        kind: Which bound.
        C: Catoni's parameter, > 0 and fixed before the data; by default the best of a grid, with a
            union bound.

    Raises:
        ValueError: If an argument is outside its range, or `C` is given for another kind.

    References:
        Maurer, A note on the PAC Bayesian theorem, arXiv, 2004.
        Catoni, PAC-Bayesian supervised classification, IMS Lecture Notes, 2007.
        Perez-Ortiz, Rivasplata, Shawe-Taylor and Szepesvari, Tighter risk certificates for neural
        networks, JMLR, 2021.

    Example:
        >>> kinds = "kl", "quadratic", "mcallester", "catoni"
        >>> [round(pac_bayes_bound(0.02, 50.0, 10_000, delta=0.05, kind=k), 4) for k in kinds]
        [0.039, 0.0422, 0.074, 0.0386]
    """
    choice("kind", kind, ("kl", "quadratic", "mcallester", "catoni"))
    n, delta = whole("n", n, low=1), number("delta", delta, above=0, below=1)
    if C is not None and kind != "catoni":
        raise ValueError(f"C must be None for the kind {kind!r}, got {C}")
    given = [x for x in (risk, kl) if isinstance(x, Tensor)]
    r, divergence = (t.double() for t in real_tensors(risk=risk, kl=kl))
    _insist("risk", r, (r >= 0) & (r <= 1), "in [0, 1]")
    _insist("kl", divergence, divergence >= 0, ">= 0")
    if kind == "catoni":
        bound = _catoni(r, divergence, n, delta, C)
    else:
        B = (divergence + math.log(2 * math.sqrt(n) / delta)) / n * _ROUNDING
        bound = _FORMS[kind](r, B)
    if not given:
        return bound.item()
    dtype = given[0].dtype
    return _rounded_up(bound, torch.promote_types(dtype, given[-1].dtype))


def _quadratic(r: Tensor, B: Tensor) -> Tensor:
    return ((r + B / 2).sqrt() + (B / 2).sqrt()).square() * _ROUNDING


def _mcallester(r: Tensor, B: Tensor) -> Tensor:
    return (r + (B / 2).sqrt()) * _ROUNDING


def _langford_seeger(r: Tensor, B: Tensor) -> Tensor:
    return kl_inverse(r, B, side="upper")


_FORMS = {"kl": _langford_seeger, "quadratic": _quadratic, "mcallester": _mcallester}


def _catoni(r: Tensor, kl: Tensor, n: int, delta: float, C: float | None) -> Tensor:
    """Catoni's bound for one C, or the least over the grid."""
    if C is None:
        J = 2 * math.ceil(math.log2(8 * math.sqrt(n))) + 1
        grid = [8 * 2 ** (-j / 2) for j in range(J)]
    else:
        J, grid = 1, [number("C", C, above=0)]
    rest = (kl + math.log(J / delta)) / n * _ROUNDING
    found = [-(-(c * r + rest)).expm1() / -math.expm1(-c) for c in grid]
    return torch.stack(torch.broadcast_tensors(*found)).amin(0) * _ROUNDING


def _insist(name: str, x: Tensor, good: Tensor, rule: str) -> None:
    if not good.all():
        raise ValueError(f"{name} must be {rule}, got {x[~good][0].item():g}")


def _rounded_up(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The next number of a dtype that is not below; the derivative is that of the identity."""
    found = x.to(dtype)
    with torch.no_grad():
        up = torch.where(
            found.double() < x, found.nextafter(torch.full_like(found, torch.inf)), found
        )
        gap = up - found
    return found + gap
