r"""Climbing the likelihood of loadings and noise: EM first, then a quasi-Newton method.

A step of EM sets loadings and noise to what maximises the expected complete-data likelihood
(`Moments`), and never lowers the likelihood. It is quick at first; near the top its steps shrink by
a factor that may be close to one, and where a noise variance tends to zero (a Heywood case) it
falls like $1 / t$. So after `EM` steps the limited-memory quasi-Newton method with bounds of Byrd,
Lu, Nocedal and Zhu takes over, on the same moments: they give the gradient as well. Its variables
are loadings in units of the noise's standard deviation, and the logarithms of noise variances, so
that curvatures are of order one.

Both stop when no entry of the gradient of the mean log-likelihood of a row, in those variables and
without what leads beyond the bounds, exceeds `tol`. What is found is a local maximum up to that.

References:
    Rubin and Thayer, EM algorithms for ML factor analysis, Psychometrika, 1982.
    Byrd, Lu, Nocedal and Zhu, A limited memory algorithm for bound constrained optimization, SIAM
    Journal on Scientific Computing, 1995.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from vademecum.generative.factors._expected_moments import Covariance, Incomplete, Moments

__all__ = ["Climb", "Rules", "climb"]

EM = 30  # steps before the quasi-Newton method; on images and digits 10 to 100 took as long
PHASE, AGAIN = 100, 3  # iterations of it until units are chosen anew, and steps of EM in between
SMALL = 30.0  # it begins with a step of length 1, which should change nothing by more than a share


class Rules(NamedTuple):
    """What the noise may be, and when to stop."""

    common: bool  # all features have the same noise
    floor: float  # what no noise variance falls below
    tol: float  # the largest entry of the gradient at which it stops
    max_iter: int
    fixed: bool = False  # the noise stays as it is
    quasi_newton: bool = True  # the quasi-Newton method takes over from EM

    def rise(self, m: Moments, loadings: Tensor, noise: Tensor) -> Tensor:
        """The gradient in the logarithm of the noise, one entry for each that is free."""
        if self.fixed:
            return noise[:0]
        rise = (m.residual(loadings) / noise - m.present) / 2
        return rise.sum()[None] if self.common else rise

    def slope(self, m: Moments, loadings: Tensor, noise: Tensor) -> float:
        """The largest entry of the gradient, without what leads beyond the bounds."""
        turn = m.pull(loadings) / noise.sqrt()[:, None]
        rise = self.rise(m, loadings, noise)
        held = (noise[: len(rise)] <= self.floor) & (rise < 0)
        return float(torch.cat([turn.flatten(), rise.masked_fill(held, 0)]).abs().amax())

    def step(self, m: Moments, noise: Tensor) -> tuple[Tensor, Tensor]:
        """One step of EM."""
        loadings = m.maximiser()
        if self.fixed:
            return loadings, noise
        left = m.residual(loadings).clamp(min=0)
        share = left.sum() / m.present.sum() if self.common else left / m.present
        return loadings, share.clamp(min=self.floor).expand_as(noise).contiguous()


class Climb(NamedTuple):
    """Where the climb ended, and how."""

    loadings: Tensor
    noise: Tensor
    path: list[float]  # mean log-likelihood of a row, after each iteration
    slope: float  # the largest entry of the projected gradient


def climb(data: Covariance | Incomplete, loadings: Tensor, noise: Tensor, rules: Rules) -> Climb:
    """Maximise the likelihood from a start.

    Args:
        data: What gives moments.
        loadings: The loadings at the start, of shape (d, q).
        noise: The noise variances at the start, of shape (d,).
        rules: What the noise may be, and when to stop.
    """
    steps = min(EM, rules.max_iter) if rules.quasi_newton else rules.max_iter
    found = _em(data, Climb(loadings, noise, [], math.inf), rules, steps)
    while found.slope > rules.tol and (left := rules.max_iter - len(found.path)) > 0:
        before = len(found.path)
        found = _quasi_newton(data, found, rules, min(left, PHASE))
        found = _em(data, found, rules, min(AGAIN, rules.max_iter - len(found.path)))
        if len(found.path) <= before + 1 + AGAIN:  # rounding lets it go no further
            break
    return found


def _em(data: Covariance | Incomplete, start: Climb, rules: Rules, steps: int) -> Climb:
    loadings, noise, path, _ = start
    m = data.moments(loadings, noise)
    slope, left = rules.slope(m, loadings, noise), steps
    while left > 0 and slope > rules.tol:
        loadings, noise = rules.step(m, noise)
        m = data.moments(loadings, noise)
        slope, left = rules.slope(m, loadings, noise), left - 1
        path = [*path, m.log_likelihood]
    return Climb(loadings, noise, path or [m.log_likelihood], slope)


def _quasi_newton(data: Covariance | Incomplete, start: Climb, rules: Rules, steps: int) -> Climb:
    """The quasi-Newton method, from where EM ended."""
    shape, unit = start.loadings.shape, start.noise.sqrt()[:, None] / SMALL
    size, base = start.loadings.numel(), start.noise
    free = 0 if rules.fixed else 1 if rules.common else len(base)
    path = list(start.path)

    def unpacked(v: np.ndarray) -> tuple[Tensor, Tensor]:
        t = torch.from_numpy(v).to(base)
        loadings, change = t[:size].view(shape) * unit, t[size:] / SMALL
        if not free:
            return loadings, base
        return loadings, (base * change.exp()).clamp(min=rules.floor)  # no rounding below it

    def minus(v: np.ndarray) -> tuple[float, np.ndarray]:
        loadings, noise = unpacked(v)
        m = data.moments(loadings, noise)
        turn = m.pull(loadings) / noise[:, None] * unit
        rise = rules.rise(m, loadings, noise) / SMALL
        return -m.log_likelihood, -torch.cat([turn.flatten(), rise]).cpu().numpy()

    low = ((rules.floor / base[:free]).log() * SMALL).tolist()
    first = (start.loadings / unit).flatten().cpu().numpy()
    first = np.concatenate([first, np.zeros(free)])
    # The default `ftol` would end it where gains are small, which says nothing of the slope.
    options = {"maxiter": steps, "gtol": rules.tol / SMALL, "ftol": 0.0, "maxcor": 20}
    end = minimize(
        minus, first, jac=True, method="L-BFGS-B", options=options,
        bounds=[(None, None)] * size + [(bound, None) for bound in low],
        callback=lambda intermediate_result: path.append(-float(intermediate_result.fun)),
    )  # fmt: skip
    return Climb(*unpacked(end.x), path, math.inf)
