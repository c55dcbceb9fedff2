r"""The rate of a power law, fitted: evidence that $y \propto x^r$.

Least squares of $v = \log y$ on $u = \log x$ gives the exponent $\hat r$ and its standard error.
Agreement with a rate means little where points are few, noisy or bent, so

- there are at least eight points over two decades of $x$;
- the tolerance is the standard error times Student's quantile at a false-alarm rate of $10^{-6}$,
  but no more than a tenth of the rate, $0.1 \max\{|r|, 1/2\}$, plus a bias that the caller derived:
  noise beyond that is a reason to draw more, not to accept more;
- the points are straight: a parabola $v = a + b u + c u^2$ fitted to them changes its local
  exponent $b + 2 c u$ from end to end by no more than that, beyond its own error. Where they are
  bent, the local exponent at the worse end is what was measured.

What is accepted can still be a power law with another exponent within the tolerance.
"""

import math
from typing import Any

import numpy as np
import torch

from vademecum.claims.evidence import ALARM, Evidence, Relation

__all__ = ["slope"]

_POINTS, _DECADES, _SHARE = 8, 2.0, 0.1


def slope(
    name: str,
    x: Any,
    y: Any,
    rate: float,
    /,
    *,
    relation: Relation = "==",
    tol: float = 0.0,
    **at: Any,
) -> Evidence:
    r"""The exponent fitted to $y \propto x^{\mathrm{rate}}$ agrees with `rate`.

    Args:
        name: What decays or grows, and with what.
        x: At least eight positive places over at least two decades.
        y: The positive value at each.
        rate: The exponent.
        relation: "==", or "<=" or ">=" where the statement bounds the exponent.
        tol: A bias of the exponent that the caller has derived.
        at: Coordinates.

    Example:
        >>> x = torch.logspace(0, 2, 8)
        >>> print(slope("cost", x, 3 * x**2, 2))
        cost: 2 == 2
        >>> slope("cost", x, 1 / x + 0.01, -1).refutes
        True
    """
    u, v = (np.log(np.asarray(torch.as_tensor(s).detach().double())).ravel() for s in (x, y))
    _insist_on_range(u, v)
    cap = _SHARE * max(abs(rate), 0.5) + tol
    (_, fitted), (_, error) = _polynomial(u, v, 1)
    quantile = _quantile(len(u) - 2)
    slack = min(quantile * error + tol, cap) + 1e-12 * (1 + abs(rate))
    measured = fitted
    (_, b, c), (_, _, c_error) = _polynomial(u, v, 2)
    span = float(np.ptp(u))
    bend, bend_error = 2 * abs(c) * span, 2 * c_error * span
    if bend - _quantile(len(u) - 3) * bend_error > cap + 1e-9:
        ends = [b + 2 * c * (end - u.mean()) for end in (u.min(), u.max())]
        worst = {"<=": max, ">=": min, "==": lambda e: max(e, key=lambda r: abs(r - rate))}
        measured, slack = worst[relation](ends), min(slack, bend / 4)
    return Evidence(
        name, relation, float(measured), float(rate), float(slack), len(u), at, sampled=True
    )


def _insist_on_range(u: np.ndarray, v: np.ndarray) -> None:
    if len(u) != len(v) or len(u) < _POINTS:
        raise ValueError(
            f"slope needs at least {_POINTS} pairs, got {len(u)} of x and {len(v)} of y"
        )
    decades = float(np.ptp(u)) / math.log(10)
    if not decades >= _DECADES - 1e-9:
        raise ValueError(f"slope needs x over at least {_DECADES:g} decades, got {decades:.3g}")


def _polynomial(u: np.ndarray, v: np.ndarray, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients of least squares in powers of the centred u, and their standard errors."""
    powers = np.vander(u - u.mean(), degree + 1, increasing=True)
    coefficients, *_ = np.linalg.lstsq(powers, v, rcond=None)
    residual = v - powers @ coefficients
    variance = residual @ residual / (len(u) - degree - 1)
    return coefficients, np.sqrt(variance * np.diag(np.linalg.inv(powers.T @ powers)))


def _quantile(freedom: int) -> float:
    from scipy.special import stdtrit

    return float(-stdtrit(freedom, ALARM / 2))
