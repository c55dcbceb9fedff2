"""Python itself: rounding, comprehensions and conditions."""

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import torch

from vademecum.claims import at_most, claim, equals


def raises(error: type[Exception] | tuple[type[Exception], ...], call: Callable[[], Any]) -> int:
    """Whether a call raises this error, as 0 or 1.

    Example:
        >>> raises(ZeroDivisionError, lambda: 1 / 0)
        1
    """
    try:
        call()
    except error:
        return 1
    return 0


def half_up(x: float, k: int) -> float:
    """Rounding as in school, with ties going up."""
    return math.floor(x * 10**k + 0.5) / 10**k


@claim(by="identity", sources=("A-408",), budget=0.5)
def python_round(rounding: Callable[[float, int], float] = round, numbers: int = 300):
    r"""Rounding in Python.

    `round(x, k)` rounds the binary value of `x` to $k$ decimals, and exact ties go to the even
    neighbour: `round(5.76543, 2)` is 5.77, `round(2.5)` is 2, `round(0.125, 2)` is 0.12; and
    `round(2.675, 2)` is 2.67, because the stored double lies below 2.675.

    Knobs:
        rounding: The rule that rounds a number to some decimals.
        numbers: How many numbers are drawn for each count of decimals, half of them ties.
    """
    for x, k, rounded in ((5.76543, 2, 5.77), (2.5, 0, 2.0), (0.125, 2, 0.12), (2.675, 2, 2.67)):
        yield equals("x rounded to k decimals", rounding(x, k), rounded, tol=0.0, x=x, k=k)
    yield equals("round(2.5) without decimals", round(2.5), 2)
    gap = float((Decimal.from_float(2.675) - Decimal("2.675")) * 10**17)
    yield at_most("stored double of 2.675 less 2.675, times 1e17", gap, -1.0, tol=0.0)
    for k in (0, 1, 2):
        x = [
            m / 2 ** (k + 1) for m in torch.randint(-9999, 9999, (numbers,)).tolist()
        ]  # ties for odd m
        exact = [float(Decimal(v).quantize(Decimal(1).scaleb(-k), ROUND_HALF_EVEN)) for v in x]
        found = [rounding(v, k) for v in x]
        yield equals("random numbers rounded to k decimals", found, exact, tol=0.0, k=k)


python_round.foil("ties do not go up: 3 for 2.5, and 0.13 for 0.125", rounding=half_up)


@claim(by="identity", sources=("A-409", "A-410"), budget=0.5)
def python_expressions(
    conditional: Callable[[bool, Callable[[], Any], Callable[[], Any]], Any] = (
        lambda condition, a, b: a() if condition else b()
    ),
):
    r"""List comprehension and conditional expression.

    `[f(x) for x in xs]` builds the list of $f$-values in order; `a if condition else b` evaluates
    only the chosen branch, so that the other may even be undefined.

    Knobs:
        conditional: The choice between two branches, which are functions here so that one can see
            which of them are evaluated.
    """
    xs = torch.randint(-100, 100, (50,)).tolist()
    squares = []
    for x in xs:
        squares.append(x**2)
    yield equals("entries of a list comprehension", [x**2 for x in xs], squares)
    for condition in (True, False):
        visited = []
        value = conditional(condition, lambda v=visited: v.append(1) or 1,
                            lambda v=visited: v.append(2) or 2)  # fmt: skip
        yield equals("branch chosen", value, 1 if condition else 2, condition=condition)
        yield equals("branches evaluated", len(visited), 1, condition=condition)
        zero = (lambda: 1, lambda: 1 / 0) if condition else (lambda: 1 / 0, lambda: 1)
        for wanted, branches in ((0, zero), (1, zero[::-1])):
            found = raises(ZeroDivisionError, lambda b=branches, c=condition: conditional(c, *b))
            name = f"errors of dividing by zero in the {'chosen' if wanted else 'other'} branch"
            yield equals(name, found, wanted, condition=condition)


python_expressions.foil(
    "choosing from a tuple, (b, a)[condition], evaluates both",
    conditional=lambda condition, a, b: (b(), a())[condition],
)
