r"""The critical step: how far one may go along a direction until the loss is where it was.

Along a direction $d$ that leads downhill the loss falls first and rises later, and

$$\eta_c = \min \{\eta > 0 : \ell(\theta + \eta d) \ge \ell(\theta)\}$$

is the step that wins nothing. On a quadratic along $d = -g$ it is $2 g^T g / g^T H g$, so that
$2 / \eta_c$ is the curvature along the gradient, at most the sharpness; it takes a dozen forward
passes, where an eigenvalue takes as many products with the Hessian. The mean slope $h(\eta) =
(\ell(\theta + \eta d) - \ell(\theta)) / \eta$ is linear in $\eta$ on a quadratic: its zero is
bracketed by steps that grow, then found by Brent's method.

The zero is exact up to `tol`. That it is the first one holds where the loss falls and rises once on
the way there: a hump between two steps of the search is overlooked.

References:
    Kalra and Barkeshli, Why warmup the learning rate? Underlying mechanisms and improvements,
    NeurIPS, 2024. Roulet, Agarwala and Pedregosa, Stepping on the edge: curvature aware learning
    rate tuners, NeurIPS, 2024.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import floats, number, whole
from vademecum.arrays import lengths
from vademecum.estimators.convergence import warn_unconverged
from vademecum.gradients import functional, gradient
from vademecum.models import Loss, Output
from vademecum.optimization._forward_loss import loss_without_graph
from vademecum.results import one_line

__all__ = ["CriticalStep", "critical_step"]

_FIRST = 1e-3  # of the length of theta, or the root of its rounding: the first step by default
_FARTHER = 8.0  # times as far at most, from one step of the search to the next
_LEAST = 1e-9  # of the first step: if the loss is not lower there, it is nowhere on the way


class CriticalStep(NamedTuple):
    """A step that wins nothing.

    Example:
        >>> x, y = torch.tensor([[1.0]]), torch.zeros(1, 1)  # (w - 0)^2, of curvature 2
        >>> found = critical_step(nn.Linear(1, 1, bias=False), x, y)
        >>> round(found.value, 3), round(found.curvature, 3)
        (1.0, 2.0)
    """

    value: float
    r"""The step size $\eta_c$; infinity where the loss did not come back."""
    curvature: float
    r"""The curvature $2 / \eta_c$ of a quadratic with this step."""
    loss: float
    r"""The loss $\ell(\theta)$ at the start."""
    passes: int
    """The number of forward passes over the data."""
    converged: bool
    """Whether the step is known up to the tolerance."""

    __repr__ = one_line


def critical_step(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    direction: Float[Tensor, " P"] | None = None,
    loss: Loss | None = None,
    start: float | None = None,
    tol: float = 1e-3,
    max_iter: int = 50,
    frozen: bool = True,
    output: Output = None,
) -> CriticalStep:
    r"""The step size at which the loss along a direction comes back to its value at the start.

    Forward passes alone are made, beside one backward pass for the gradient where no direction is
    given. The model is taken in evaluation mode and never changed.

    Args:
        model: Any module.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels". A loader is run
            through at each pass.
        y: The targets.
        direction: Where the parameters go, downhill, in the order of `functional(model).theta`; by
            default against the gradient. The last update of any optimiser will do, over its rate.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        start: The first step to try, such as one found a while ago; by default one that moves the
            parameters by a thousandth of their length, in half precision by some hundredths.
        tol: The relative error allowed.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a pass.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If the loss does not fall along the direction, or is not one finite number at
            the start, or is no number between steps where it is one.

    Example:
        >>> x, y = torch.tensor([[1.0]]), torch.zeros(1, 1)
        >>> model = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(model.weight, 3.0)  # at 3, the loss is the same at -3
        >>> round(critical_step(model, x, y, direction=torch.tensor([-2.0])).value, 3)
        3.0
    """
    number("tol", tol, above=0, below=1)
    whole("max_iter", max_iter, low=1)
    f = functional(model, frozen=frozen, output=output)
    if direction is None:
        direction = -gradient(model, x, y, loss=loss, frozen=frozen, output=output)
    d = floats("direction", direction, ndim=1, width=f.size).to(f.device, f.dtype)
    size, theta = float(lengths(d)), float(lengths(f.theta))
    if not size:
        raise ValueError(f"direction must not be zero, got {f.size} zeros")
    share = max(_FIRST, torch.finfo(f.dtype).eps ** 0.5)  # or rounding hides what it wins
    first = share * (theta or 1.0) / size if start is None else start
    search = _Search(lambda eta: loss_without_graph(f, f.theta + eta * d, x, y, loss), max_iter)
    value = search.zero(number("start", first, above=0), tol)
    if not search.converged:
        far = f"the loss is still below its start at eta = {search.low:.3g}"
        at = far if value == math.inf else f"the step is known to be within {search.ends}"
        end = (
            f"max_iter={max_iter} reached" if search.passes >= max_iter else "no finite loss beyond"
        )
        warn_unconverged(f"{end}: {at}")
    return CriticalStep(value, 2 / value, search.at_start, search.passes, search.converged)


class _Search:
    """Steps that grow, or shrink, until the loss is above its start; then the zero between two."""

    def __init__(self, value: Callable[[float], float], most: int):
        self._value, self._most = value, most
        self._known: dict[float, float] = {}  # slopes
        self.passes, self.low, self.high = 1, 0.0, math.inf
        self._wall = math.inf  # where the loss is no number
        self.at_start, self.converged = value(0.0), False
        if not math.isfinite(self.at_start):
            raise ValueError(f"loss must be finite at the start, got {self.at_start}")

    @property
    def ends(self) -> str:
        return f"{self.low:.6g} and {self.high:.6g}"

    def zero(self, eta: float, tol: float) -> float:
        """The step at which the loss comes back to its start, looked for from `eta` on."""
        from scipy.optimize import brentq

        before, least = None, eta * _LEAST
        while self.passes < self._most and not (self.low and self.high < math.inf):
            if eta < least:
                raise ValueError("direction must lead downhill, got one along which loss rises")
            if eta in self._known:  # nothing lies between the last loss that is lower and the wall
                break
            slope = self._slope(eta)
            before, eta = (eta, slope), self._next(eta, slope, before)
        if not self.low or self.high == math.inf:
            return math.inf
        found, report = brentq(
            self._slope, self.low, self.high, xtol=tol * self.low / 4, rtol=np.float64(1e-15),
            maxiter=max(self._most - self.passes, 1), full_output=True, disp=False,
        )  # fmt: skip
        self.converged = bool(report.converged)
        return float(found)

    def _next(self, eta: float, slope: float, before: tuple[float, float] | None) -> float:
        """A step beyond the zero of the line through two slopes, or a shorter one."""
        end = min(self.high, self._wall)
        if end < math.inf:
            return math.sqrt(self.low * end) if self.low else end / _FARTHER
        rise = (slope - before[1]) / (eta - before[0]) if before else 0.0
        guess = 1.1 * (eta - slope / rise) if rise > 0 else math.inf
        return min(max(guess, 1.5 * eta), _FARTHER * eta)

    def _slope(self, eta: float) -> float:
        """The mean slope on the way to `eta`, which bounds the zero from one side."""
        if eta not in self._known:
            self.passes += 1
            gain = self._value(eta) - self.at_start
            if 0 < self.low < eta < self.high < math.inf and math.isnan(gain):
                raise ValueError(
                    f"loss must be a number within {self.ends}, got nan at eta = {eta:.3g}"
                )
            self._known[eta] = gain / eta or math.ulp(0.0)  # or any such step would be the zero
            if not math.isfinite(gain):
                self._wall = min(self._wall, eta)
            elif gain < 0:
                self.low = max(self.low, eta)
            else:
                self.high = min(self.high, eta)
        return self._known[eta]
