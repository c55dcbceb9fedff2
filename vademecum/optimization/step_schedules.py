r"""Robbins' and Monro's conditions on step sizes: enough to arrive, little enough to settle.

$$\sum_t \alpha_t = \infty \quad \text{(any distance can be covered)}, \qquad
\sum_t \alpha_t^2 < \infty \quad \text{(the accumulated noise is finite)} .$$

For $\alpha_t = \alpha_0\, t^{-a} (\ln t)^{-b}$ exponents alone decide (Bertrand's series):
$\sum_t t^{-a} (\ln t)^{-b}$ is infinite if and only if $a < 1$, or $a = 1$ and $b \le 1$. So
$t^{-a}$ satisfies both for $\frac12 < a \le 1$, and so does $t^{-1/2} (\ln t)^{-b}$ for
$b > \frac12$. Exponents are compared as they are, without rounding: `Fraction(1, 2)` and 0.5 are
one half. Of any other schedule finitely many terms say nothing, and there is no verdict. The claims
are `optimization.robbins_monro`, `robbins_monro_powers` and `summable_steps`.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.results import one_line

__all__ = ["RobbinsMonro", "robbins_monro"]


class RobbinsMonro(NamedTuple):
    """What is known of a schedule of step sizes, and partial sums to look at.

    Example:
        >>> found = robbins_monro(1, terms=1000)
        >>> found.satisfied, found.terms
        (True, tensor([   1,   10,  100, 1000]))
        >>> found.sums
        tensor([1.0000, 2.9290, 5.1874, 7.4855], dtype=torch.float64)
    """

    satisfied: bool | None
    """Whether both conditions hold; None if that is not known."""
    sum_diverges: bool | None
    """Whether the sum of the steps is infinite."""
    squares_converge: bool | None
    """Whether the sum of their squares is finite."""
    terms: Int[Tensor, " k"]
    """Numbers of terms: powers of ten, and the last one."""
    sums: Float[Tensor, " k"]
    """The sums of so many steps."""
    squares: Float[Tensor, " k"]
    """The sums of so many squares of steps."""

    __repr__ = one_line


def robbins_monro(
    schedule: float | Fraction | Callable[[Tensor], Tensor],
    *,
    log: float | Fraction = 0,
    terms: int = 10**6,
) -> RobbinsMonro:
    r"""Decide Robbins' and Monro's conditions for $\alpha_t = t^{-a} (\ln t)^{-b}$.

    Args:
        schedule: The exponent $a$; or a function of a tensor of step numbers $t = 1, 2, \dots$ that
            gives the step sizes, for which there are partial sums and no verdict.
        log: The exponent $b$ of the logarithm. Where it is not 0, steps are counted from 2 on,
            since $\ln 1 = 0$.
        terms: How many terms the partial sums have at most.

    Raises:
        ValueError: If a step size is not finite and at least 0.

    Example:
        >>> from fractions import Fraction
        >>> robbins_monro(0.5).satisfied, robbins_monro(Fraction(2, 3)).satisfied
        (False, True)
        >>> robbins_monro(0.5, log=1).satisfied, robbins_monro(0.5, log=0.5).satisfied
        (True, False)
        >>> robbins_monro(lambda t: 1 / (t + 10)).satisfied is None
        True
    """
    terms = whole("terms", terms, low=1)
    b = _exact("log", log)
    if callable(schedule):
        if b:
            raise ValueError(f"log must be 0 for a schedule that is a function, got {log!r}")
        return RobbinsMonro(None, None, None, *_partial(schedule, 1, terms))
    a = _exact("schedule", schedule)
    far, settling = _diverges(a, b), not _diverges(2 * a, 2 * b)

    def power(t: Tensor) -> Tensor:
        return t ** -float(a) * (t.log() ** -float(b) if b else 1)

    sums = _partial(power, 2 if b else 1, terms)
    return RobbinsMonro(far and settling, far, settling, *sums)


def _diverges(a: Fraction, b: Fraction) -> bool:
    return a < 1 or (a == 1 and b <= 1)


def _exact(name: str, exponent: Any) -> Fraction:
    if isinstance(exponent, Fraction):
        return exponent
    return Fraction(number(name, exponent))


def _partial(
    schedule: Callable[[Tensor], Tensor], first: int, terms: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of terms, and the sums of so many steps and squares."""
    t = torch.arange(first, first + terms, dtype=torch.float64)
    steps = schedule(t)
    if not isinstance(steps, Tensor) or steps.shape != t.shape:
        raise ValueError(f"schedule must give a step size for each of {terms}, got {steps!r:.80}")
    if not bool(((steps >= 0) & steps.isfinite()).all()):
        raise ValueError("schedule must give finite step sizes >= 0, got others")
    counts = sorted({10**k for k in range(len(str(terms)))} | {terms})
    at = torch.tensor(counts)
    s = steps.double()
    return at, s.cumsum(0)[at - 1], s.square().cumsum(0)[at - 1]
