r"""Evidence: a named comparison that survives as numbers, never a bare boolean.

A piece of evidence is the worst of many comparisons $m \mathrel{R} b$ of something measured with a
bound, $R \in \{\le, \ge, =\}$, under a name that tells a reader what was measured. Its signed
*margin* is $b - m$, $m - b$ or $-|b - m|$; it **holds** if the margin is at least $-\mathrm{tol}$
and **refutes** if it is below. NaN does neither.

Integers are compared exactly, whatever their size. Floating-point numbers are compared up to
$\mathrm{tol} \cdot (1 + |b|)$, with $10^{-9}$ by default: double precision with room for the
rounding of some $10^6$ operations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "Evidence", "at_least", "at_most", "consistent", "equals", "in_mean", "rejects", "short",
]  # fmt: skip

Relation = Literal["<=", ">=", "=="]
_NEGATED = {"<=": ">", ">=": "<", "==": "!="}
_WORDS = {"<=": "at most ", ">=": "at least ", "==": ""}
ALARM = 1e-6
"""How often a check that relies on random draws may fail although the claim is true."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The worst of `cases` comparisons `measured <relation> bound`, at the coordinates `at`.

    `sampled` says that the tolerance is that of random draws, and not of rounding.
    """

    name: str
    relation: Relation
    measured: float
    bound: float
    tol: float = 0.0
    cases: int = 1
    at: dict[str, Any] = field(default_factory=dict)
    sampled: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise TypeError(f"evidence begins with the name of what is compared, got {self.name!r}")

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

    @property
    def excess(self) -> float:
        """By how many tolerances the comparison fails; infinite if there is no tolerance."""
        violation = max(-self.margin, 0)
        return violation / self.tol if self.tol else math.inf if violation else 0.0

    @property
    def place(self) -> str:
        """The coordinates, as in "n = 4, d = 2"."""
        return ", ".join(f"{k} = {short(v)}" for k, v in self.at.items())

    def in_words(self, number: Callable[[Any], str] | None = None) -> str:
        """The comparison for somebody who has not seen the check.

        Args:
            number: How to write a number; `short` by default.
        """
        write = number or short
        where = ", ".join(f"{k} = {write(v)}" for k, v in self.at.items())
        measured, bound = self._numbers(write)
        verb = "where the formula demands" if self.refutes else "as it must be"
        at = f" at {where}" if where else ""
        return f"{self.name}{at}: {measured}, {verb} {_WORDS[self.relation]}{bound}"

    def _numbers(self, write: Callable[[Any], str]) -> tuple[str, str]:
        measured, bound = write(self.measured), write(self.bound)
        if self.refutes and measured == bound:
            bound += f" (they differ by {write(self.measured - self.bound)})"
        return measured, bound

    def __str__(self) -> str:
        sign = _NEGATED[self.relation] if self.refutes else self.relation
        measured, bound = self._numbers(short)
        at = f" at {self.place}" if self.at else ""
        return f"{self.name}: {measured} {sign} {bound}{at}"


def short(value: Any) -> str:
    """A number of any size in a few characters; integers as they are while they are short.

    Example:
        >>> short(2**40), short(1 / 3), short(10**400), short(-0.0), short(float("inf"))
        ('1099511627776', '0.333333', 'a huge number', '0', 'infinity')
    """
    if isinstance(value, int) and abs(value) < 10**15:
        return str(value)
    if isinstance(value, float) and math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    if isinstance(value, int | float):
        return f"{value + 0:.6g}" if not abs(value) >= 1e300 else "a huge number"  # no -0
    return str(value)


def at_most(
    name: str, measured: Any, bound: Any, /, *, tol: float | None = None, **at: Any
) -> Evidence:
    """Every entry of `measured` is at most its `bound`.

    Example:
        >>> print(at_most("mistakes", [1, 2, 5], [3, 3, 3], d=2))
        mistakes: 5 > 3 at d = 2
    """
    return _worst(name, "<=", measured, bound, tol, at)


def at_least(
    name: str, measured: Any, bound: Any, /, *, tol: float | None = None, **at: Any
) -> Evidence:
    """Every entry of `measured` is at least its `bound`.

    Example:
        >>> at_least("eigenvalues", torch.tensor([3.0, 4.0]), 3.0).holds
        True
    """
    return _worst(name, ">=", measured, bound, tol, at)


def equals(
    name: str, measured: Any, target: Any, /, *, tol: float | None = None, **at: Any
) -> Evidence:
    """Every entry of `measured` equals its `target`: integers exactly, floats up to `tol`.

    Example:
        >>> print(equals("labellings", 2**70 + 1, 2**70))
        labellings: 1.18059e+21 != 1.18059e+21 (they differ by 1)
    """
    return _worst(name, "==", measured, target, tol, at)


def in_mean(
    name: str, samples: Tensor, target: float, /, *, sigmas: float = 5.0, **at: Any
) -> Evidence:
    """The mean of a sample, its size fixed beforehand, lies within `sigmas` standard errors.

    Example:
        >>> print(in_mean("heads", torch.tensor([0.0, 1.0, 0.0, 1.0]), 0.5))
        heads: 0.5 == 0.5
    """
    x = samples.detach().double().flatten()
    error = sigmas * float(x.std()) / math.sqrt(len(x)) if len(x) > 1 else math.nan
    rounding = 1e-12 * (1 + abs(target))  # of a sample whose entries are all equal
    tol = error + rounding
    return Evidence(name, "==", float(x.mean()), float(target), tol, len(x), at, sampled=True)


def rejects(name: str, p_value: float, /, *, alpha: float = ALARM, **at: Any) -> Evidence:
    """A statistical test rejects its null hypothesis, with a false-alarm rate of `alpha`.

    Example:
        >>> rejects("p-value of a fair coin", 1e-9).holds, rejects("the same", 0.2).holds
        (True, False)
    """
    return Evidence(name, "<=", float(p_value), _stated(alpha), at=at, sampled=True)


def consistent(name: str, p_value: float, /, *, alpha: float = ALARM, **at: Any) -> Evidence:
    """A statistical test does not reject: true claims fail here at a rate of at most `alpha`.

    Example:
        >>> consistent("p-value", 0.2).holds, consistent("p-value", 1e-9).refutes
        (True, True)
    """
    return Evidence(name, ">=", float(p_value), _stated(alpha), at=at, sampled=True)


def _stated(alpha: float) -> float:
    if not 0 < alpha <= ALARM:
        raise ValueError(f"alpha must be in (0, {ALARM:g}], got {alpha}")
    return alpha


def _worst(
    name: str, relation: Relation, measured: Any, bound: Any, tol: float | None, at: dict
) -> Evidence:
    if isinstance(measured, int) and isinstance(bound, int):  # of any size
        return Evidence(name, relation, int(measured), int(bound), tol or 0.0, 1, at)
    m, b = (v.flatten() for v in torch.broadcast_tensors(_tensor(measured), _tensor(bound)))
    if not len(m):
        return Evidence(name, relation, math.nan, math.nan, 0.0, 0, at)
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
    return Evidence(name, relation, m[i].item(), b[i].item(), float(slack[i]), len(m), at)


def _tensor(value: Any) -> Tensor:
    tensor = (
        value.detach().cpu() if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    )
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.long() if tensor.dtype == torch.bool else tensor
