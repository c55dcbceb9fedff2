r"""Evidence: a comparison that survives as numbers, never a bare boolean.

A piece of evidence is the worst of many comparisons $m \mathrel{R} b$ of something measured with a
bound, $R \in \{\le, \ge, =\}$. Its signed *margin* is $b - m$, $m - b$ or $-|b - m|$; it **holds**
if the margin is at least $-\mathrm{tol}$ and **refutes** if it is below. NaN does neither.

Integers are compared exactly, whatever their size. Floating-point numbers are compared up to
$\mathrm{tol} \cdot (1 + |b|)$, with $10^{-9}$ by default: double precision with room for the
rounding of some $10^6$ operations.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "Evidence", "at_least", "at_most", "consistent", "equals", "in_mean", "rejects", "short",
    "slope",
]  # fmt: skip

Relation = Literal["<=", ">=", "=="]
_NEGATED = {"<=": ">", ">=": "<", "==": "!="}
_ALARM = 1e-6


@dataclass(frozen=True, slots=True)
class Evidence:
    """The worst of `cases` comparisons `measured <relation> bound`, at the coordinates `at`."""

    relation: Relation
    measured: float
    bound: float
    tol: float = 0.0
    cases: int = 1
    at: dict[str, Any] = field(default_factory=dict)

    @property
    def margin(self) -> float:
        """Signed distance to the bound: negative if the comparison fails, NaN if either side is."""
        gap = 0 if self.measured == self.bound else self.bound - self.measured
        return {"<=": gap, ">=": -gap, "==": -abs(gap)}[self.relation]

    @property
    def holds(self) -> bool:
        """Whether the comparison is true up to the tolerance."""
        return self.margin >= -self.tol

    @property
    def refutes(self) -> bool:
        """Whether the comparison is false beyond the tolerance."""
        return self.margin < -self.tol  # not `not holds`: NaN neither holds nor refutes

    def __str__(self) -> str:
        sign = _NEGATED[self.relation] if self.refutes else self.relation
        at = ", ".join(f"{k}={short(v)}" for k, v in self.at.items())
        return f"{short(self.measured)} {sign} {short(self.bound)}" + (f" at {at}" if at else "")


def short(value: Any) -> str:
    """A number of any size in a few characters; integers as they are while they are short.

    Example:
        >>> short(2**40), short(1 / 3), short(10**400)
        ('1099511627776', '0.333333', 'a huge number')
    """
    if isinstance(value, int) and abs(value) < 10**15:
        return str(value)
    if isinstance(value, int | float):
        return f"{value:.6g}" if abs(value) < 1e300 else "a huge number"
    return str(value)


def at_most(measured: Any, bound: Any, *, tol: float | None = None, **at: Any) -> Evidence:
    """Every entry of `measured` is at most its `bound`.

    Example:
        >>> print(at_most([1, 2, 5], [3, 3, 3], d=2))
        5 > 3 at d=2
    """
    return _worst("<=", measured, bound, tol, at)


def at_least(measured: Any, bound: Any, *, tol: float | None = None, **at: Any) -> Evidence:
    """Every entry of `measured` is at least its `bound`.

    Example:
        >>> at_least(torch.tensor([3.0, 4.0]), 3.0).holds
        True
    """
    return _worst(">=", measured, bound, tol, at)


def equals(measured: Any, target: Any, *, tol: float | None = None, **at: Any) -> Evidence:
    """Every entry of `measured` equals its `target`: integers exactly, floats up to `tol`.

    Example:
        >>> print(equals(2**70 + 1, 2**70))
        1.18059e+21 != 1.18059e+21
    """
    return _worst("==", measured, target, tol, at)


def in_mean(samples: Tensor, target: float, *, sigmas: float = 5.0, **at: Any) -> Evidence:
    """The mean of a sample, its size fixed beforehand, lies within `sigmas` standard errors.

    Example:
        >>> print(in_mean(torch.tensor([0.0, 1.0, 0.0, 1.0]), 0.5))
        0.5 == 0.5
    """
    x = samples.detach().double().flatten()
    error = sigmas * float(x.std()) / math.sqrt(len(x)) if len(x) > 1 else math.nan
    rounding = 1e-12 * (1 + abs(target))  # of a sample whose entries are all equal
    return Evidence("==", float(x.mean()), float(target), error + rounding, len(x), at)


def slope(
    x: Any, y: Any, rate: float, *, relation: Relation = "==", tol: float = 0.0, **at: Any
) -> Evidence:
    r"""The exponent fitted to $y \propto x^{\mathrm{rate}}$ agrees with `rate`.

    Least squares of $\log y$ on $\log x$. The tolerance is the fit's standard error times the
    quantile of Student's distribution at a false-alarm rate of $10^{-6}$, plus `tol` for a bias
    that the caller has derived.

    Example:
        >>> print(slope([1, 2, 4, 8], [3, 12, 48, 192], 2))
        2 == 2
    """
    from scipy.special import stdtrit

    u, v = (np.log(np.asarray(torch.as_tensor(s).detach().double())).ravel() for s in (x, y))
    if len(u) < 3 or len(u) != len(v):
        raise ValueError(f"slope needs three or more pairs, got {len(u)} of x and {len(v)} of y")
    centred = u - u.mean()
    fitted = centred @ v / (centred @ centred)
    residual = v - v.mean() - fitted * centred
    error = math.sqrt(residual @ residual / (len(u) - 2) / (centred @ centred))
    quantile = -stdtrit(len(u) - 2, _ALARM / 2)
    slack = float(quantile * error + tol + 1e-12 * (1 + abs(rate)))
    return Evidence(relation, float(fitted), float(rate), slack, len(u), at)


def rejects(p_value: float, *, alpha: float = _ALARM, **at: Any) -> Evidence:
    """A statistical test rejects its null hypothesis, with a false-alarm rate of `alpha`.

    Example:
        >>> rejects(1e-9).holds, rejects(0.2).holds
        (True, False)
    """
    return Evidence("<=", float(p_value), _stated(alpha), at=at)


def consistent(p_value: float, *, alpha: float = _ALARM, **at: Any) -> Evidence:
    """A statistical test does not reject: true claims fail here at a rate of at most `alpha`.

    Example:
        >>> consistent(0.2).holds, consistent(1e-9).refutes
        (True, True)
    """
    return Evidence(">=", float(p_value), _stated(alpha), at=at)


def _stated(alpha: float) -> float:
    if not 0 < alpha <= _ALARM:
        raise ValueError(f"alpha must be in (0, {_ALARM:g}], got {alpha}")
    return alpha


def _worst(relation: Relation, measured: Any, bound: Any, tol: float | None, at: dict) -> Evidence:
    if isinstance(measured, int) and isinstance(bound, int):  # of any size
        return Evidence(relation, int(measured), int(bound), tol or 0.0, 1, at)
    m, b = (v.flatten() for v in torch.broadcast_tensors(_tensor(measured), _tensor(bound)))
    if not len(m):
        return Evidence(relation, math.nan, math.nan, 0.0, 0, at)
    exact = not (m.is_floating_point() or b.is_floating_point())
    if not exact:
        m, b = m.double(), b.double()
    tol = (0.0 if exact else 1e-9) if tol is None else tol
    slack = tol * (1 + b.abs().double().nan_to_num(posinf=0.0))
    gap = torch.where(m == b, 0, b - m)
    room = {"<=": gap, ">=": -gap, "==": -gap.abs()}[relation] + slack
    # A refuting entry first, then a NaN, then the tightest of those that hold.
    order = torch.where(room.isnan(), torch.full_like(room, -1e-300), room)
    i = int(order.argmin())
    return Evidence(relation, m[i].item(), b[i].item(), float(slack[i]), len(m), at)


def _tensor(value: Any) -> Tensor:
    tensor = (
        value.detach().cpu() if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    )
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.long() if tensor.dtype == torch.bool else tensor
