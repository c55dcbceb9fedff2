r"""Hyperparameters that maximise a likelihood: L-BFGS over their logarithms, from several starts.

The objective is $-\frac1{n t} \log p(Y)$, whose derivatives do not grow with the data, so that one
tolerance serves all sizes. A value known to the precision $\varepsilon$ cannot tell points with
derivatives of $\sqrt\varepsilon$ from a minimum, so where a search along a line fails there, it has
converged; where it fails elsewhere, rounding is to blame, and it goes on in double precision.
The first step has the length of the derivatives, which without noise may be thousands and lead to
an end of the range where nothing moves any more: they are divided by the largest, if that is > 1.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from vademecum.progress import ticking

__all__ = ["Learnt", "learnt"]

SPREAD = 2.0  # of the logarithms about the first start, where others are drawn from

Objective = Callable[[np.ndarray, bool], tuple[float, np.ndarray]]


class Learnt(NamedTuple):
    """The best end of all runs."""

    theta: np.ndarray
    value: float
    n_iter: int
    """Iterations of the run that was best."""
    slope: float
    """The largest derivative there, less what ends of the range hold back."""
    converged: bool


def learnt(
    objective: Objective,
    start: np.ndarray,
    bounds: list[tuple[float, float]],
    *,
    tol: float,
    eps: float,
    max_iter: int,
    restarts: int,
    refinable: bool,
    random: np.random.RandomState,
    progress: bool,
) -> Learnt:
    """Minimise, from the start given and from others near it.

    Args:
        objective: Gives value and derivatives, more precisely where its second argument is true.
        start: Where to start.
        bounds: The range of each entry.
        tol: The largest derivative at which a run stops.
        eps: The relative precision of the values.
        max_iter: The most iterations of a run.
        restarts: How many more runs there are.
        refinable: Whether values can be had more precisely, where a search along a line fails.
        random: Where their starts come from.
        progress: Whether to show a progress bar on standard error.
    """
    low, high = np.array(bounds).T
    starts = [start, *(start + random.uniform(-SPREAD, SPREAD, (restarts, len(start))))]
    best = None
    with ticking("likelihoods", None, progress=progress) as tick:

        def counted(theta: np.ndarray, refined: bool) -> tuple[float, np.ndarray]:
            tick(1)
            return objective(theta, refined)

        for first in starts:
            run = partial(_run, counted, bounds=bounds, tol=tol, eps=eps)
            found = run(np.clip(first, low, high), False, max_iter=max_iter)
            left = max_iter - found.n_iter
            if refinable and left > 0 and not found.converged:
                again = run(found.theta, True, max_iter=left)
                found = again._replace(n_iter=found.n_iter + again.n_iter)
            best = found if best is None or found.value < best.value else best
    assert best is not None
    return best


def _run(
    objective: Objective,
    start: np.ndarray,
    refined: bool,
    *,
    bounds: list[tuple[float, float]],
    tol: float,
    eps: float,
    max_iter: int,
) -> Learnt:
    known = [objective(start, refined)]
    unit = max(1.0, float(np.abs(known[0][1]).max()))

    def scaled(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, slopes = known.pop() if known else objective(theta, refined)
        return value / unit, slopes / unit

    run = minimize(
        scaled, start, jac=True, method="L-BFGS-B", bounds=bounds,
        options={"maxiter": max_iter, "gtol": tol / unit, "ftol": eps / unit},
    )  # fmt: skip
    low, high = np.array(bounds).T
    slope = float(np.abs(run.x - np.clip(run.x - unit * run.jac, low, high)).max())
    ended = run.success or (run.nit < max_iter and slope <= max(tol, eps**0.5))
    return Learnt(run.x, unit * float(run.fun), int(run.nit), slope, bool(ended))
