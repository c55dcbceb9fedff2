r"""Lasso on a few columns, in covariance form: coordinate descent that ends in an exact solve.

Given $G = \frac1n Z^\top Z$ and $c = \frac1n Z^\top y$, minimise

$$P(w) = \tfrac12 w^\top G w - c^\top w + \tfrac12 p + \alpha \|w\|_1, \qquad
p = \tfrac1n \|y\|^2,$$

which is $\frac1{2n} \|y - Z w\|^2 + \alpha \|w\|_1$. A sweep sets each coordinate in turn to its
optimum $S_\alpha(c_j - (G w)_j + G_{jj} w_j) / G_{jj}$ with the soft threshold $S_\alpha$, but
skips those that are zero and stay so. Sweeps take turns with Newton steps, such that both take
about as long: on the support $A$ with signs $s$ the optimum solves $G_{AA} u = c_A - \alpha s$,
and the step goes from $w_A$ towards $u$ to where $P$ is least on that line. Sweeps alone converge;
once the signs are found, the Newton step is exact.

With the residual $r = y - Z w$ and $g = \max_j |c - G w|_j$, every $\kappa$ with
$|\kappa|\, g \le \alpha$ gives a dual point $\kappa r$, and the *duality gap*

$$P(w) - \big(\kappa \tfrac1n \langle y, r \rangle - \tfrac12 \kappa^2 \tfrac1n \|r\|^2\big)$$

bounds how far $P(w)$ is from its minimum, however $w$ was found.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve, get_blas_funcs
from torch import Tensor

from vademecum import arguments

__all__ = ["descend", "duality_gap", "soft_threshold"]

UPDATE = 1e5  # operations of a decomposition that take as long as the update of a coordinate
JITTER = 1e-10  # of the diagonal


def soft_threshold(
    z: Float[Tensor, " *shape"], threshold: float | Float[Tensor, " ..."]
) -> Float[Tensor, " *shape"]:
    r"""The soft threshold $S_\tau(z) = \operatorname{sign}(z) (|z| - \tau)_+$ of every entry.

    It is the proximal map of $\tau \|\cdot\|_1$: the minimiser of $\frac12 (w - z)^2 + \tau |w|$.

    Args:
        z: The numbers.
        threshold: The $\tau \ge 0$: a number, or a tensor that broadcasts against `z`.

    Raises:
        ValueError: If a threshold is negative, or a number is not finite.

    References:
        Donoho and Johnstone, Ideal spatial adaptation by wavelet shrinkage, Biometrika, 1994.

    Example:
        >>> soft_threshold(torch.tensor([-3.0, -0.5, 2.0]), 1.0)
        tensor([-2., 0., 1.])
    """
    arguments.floats("z", z, empty=True)
    if isinstance(threshold, Tensor):
        least = arguments.floats("threshold", threshold).min().item()
    else:
        least = threshold
    arguments.number("threshold", least, low=0.0)
    return (z - threshold).clamp(min=0) - (-z - threshold).clamp(min=0)


def duality_gap(alpha: float, l1: float, fit: float, residual: float, steepest: float) -> float:
    r"""The gap at $w$, from numbers that do not depend on how $w$ is stored.

    Args:
        alpha: The penalty.
        l1: The norm $\|w\|_1$.
        fit: The $\frac1n \langle y, r \rangle$.
        residual: The $\frac1n \|r\|^2$.
        steepest: The largest $\frac1n |\langle z_j, r \rangle|$ over all columns.

    Example:
        >>> duality_gap(1.0, 0.0, 1.0, 1.0, 0.5)  # zero is optimal, as no column correlates
        0.0
    """
    limit = alpha / steepest if steepest > 0 else math.inf
    best = fit / residual if residual > 0 else 0.0
    kappa = min(max(best, -limit), limit)
    return residual / 2 + alpha * l1 - kappa * fit + kappa**2 * residual / 2


def descend(
    gram: Any, c: Any, w: Any, *, alpha: float, power: float, enough: float, max_iter: int
) -> int:
    """Improve `w`, a NumPy array, in place until the gap is at most `enough`; return the sweeps.

    Example:
        >>> w = np.zeros(2)
        >>> options = {"alpha": 1.0, "power": 10.0, "enough": 0.0, "max_iter": 9}
        >>> descend(np.eye(2), np.array([3.0, 0.5]), w, **options)
        1
        >>> w
        array([2., 0.])
    """
    add: Any = get_blas_funcs("axpy", dtype=np.float64)
    diagonal, saved = gram.diagonal().tolist(), 0.0
    for sweep in range(max_iter):
        slope = c - gram @ w  # afresh, so that rounding does not pile up
        fit = power - c @ w
        steepest = np.abs(slope).max(initial=0.0)
        gap = duality_gap(alpha, np.abs(w).sum(), fit, fit - slope @ w, steepest)
        if gap <= enough:
            return sweep
        moving = np.flatnonzero((w != 0) | (np.abs(slope) > alpha)).tolist()
        for j in moving:
            old, curvature = w.item(j), diagonal[j]
            z = slope.item(j) + curvature * old
            if curvature > 0:
                w[j] = new = (max(z - alpha, 0.0) - max(-z - alpha, 0.0)) / curvature
                add(gram[j], slope, a=old - new)  # in place
        saved, blocked = saved + UPDATE * len(moving), True
        while blocked and (cost := np.count_nonzero(w) ** 3 / 3) <= saved:
            saved, blocked = saved - cost, _newton(gram, c, w, alpha)
    return max_iter


def _newton(gram: Any, c: Any, w: Any, alpha: float) -> bool:
    """Go from `w` towards the optimum for its signs, as far as it pays; whether a sign changed."""
    support = np.flatnonzero(w)
    if not len(support):
        return False
    here, signs = w[support], np.sign(w[support])
    block = gram[np.ix_(support, support)]
    slope = c[support] - alpha * signs - block @ here
    # The jitter makes directions that change no prediction long ones: a sign ends them.
    factor = cho_factor(block + JITTER * np.diag(block.diagonal()), check_finite=False)
    step = cho_solve(factor, slope, check_finite=False)
    share, zero = _search(here, step, alpha, slope @ step, step @ block @ step)
    if share == np.inf:
        return False
    there = here + share * step
    there[zero] = 0.0
    w[support] = there
    return bool((np.sign(there) != signs).any())


def _search(here: Any, step: Any, alpha: float, fall: float, bend: float) -> tuple[float, Any]:
    r"""The best $t$ for the weights $w + t v$, and which of them are zero there.

    As a function of $t$ the objective has the slope $-\mathrm{fall} + \mathrm{bend}\, t$, and
    $2 \alpha |v_j|$ more from where weight $j$ has changed its sign.
    """
    turns = np.flatnonzero(here * step < 0)
    times = -here[turns] / step[turns]
    order = np.argsort(times)
    turns, times = turns[order], times[order]
    extra = np.cumsum(np.append(0.0, 2 * alpha * np.abs(step[turns])))
    k = int(np.searchsorted(bend * times + extra[1:], fall))  # from here on the objective rises
    best = (fall - extra[k]) / bend if bend > 0 else np.inf
    if k < len(times) and times[k] <= best:
        return times[k], turns[k]
    return best, turns[:0]
