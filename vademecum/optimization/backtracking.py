r"""Backtracking line search: shorten a step until it pays.

Along a direction $d$ with slope $s = \langle \nabla f(x), d \rangle < 0$, start with a step size
$\eta_0$ and multiply it by $\rho < 1$ until Armijo's inequality holds,

$$f(x + \eta d) \le f(x) + c\, \eta\, s .$$

If $f$ is $L$-smooth, every $\eta \le \eta_L = 2 (1 - c) |s| / (L \|d\|^2)$ satisfies it, so the
step that is accepted is at least $\min(\eta_0, \rho\, \eta_L)$, after at most
$1 + \lceil \log_{1 / \rho} (\eta_0 / \eta_L) \rceil_+$ evaluations of $f$. Exact; the claim is
`optimization.line_search`.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.results import one_line

__all__ = ["LineSearch", "backtrack", "line_search"]


class LineSearch(NamedTuple):
    """A step that pays, and what it took to find it.

    Example:
        >>> line_search(lambda x: x @ x, torch.tensor([1.0]), torch.tensor([-2.0]))
        LineSearch(step=0.5, value=0.0, evaluations=2, converged=True)
    """

    step: float
    """The step size, 0 if none was found."""
    value: float
    """The value of the function there."""
    evaluations: int
    """How many step sizes were tried, each for one value of the function."""
    converged: bool
    """Whether the step satisfies Armijo's inequality."""

    __repr__ = one_line


def line_search(
    f: Callable[[Tensor], Any],
    x: Float[Tensor, " *shape"],
    direction: Float[Tensor, " *shape"],
    *,
    slope: float | None = None,
    step: float = 1.0,
    shrink: float = 0.5,
    c: float = 1e-4,
    max_iter: int = 60,
) -> LineSearch:
    r"""Shorten a step until the function falls by a share of what its slope promises.

    Args:
        f: A function of a tensor with one number as its value. A value that is not finite counts
            as too high.
        x: Where to start.
        direction: Where to go: downhill.
        slope: The derivative of `f` at `x` along the direction; by default from autograd.
        step: The step size to begin with.
        shrink: What it is multiplied by, $\rho$.
        c: The share of the promised decrease that is asked for.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each tries one
            step size.

    Returns:
        The step size and the value there; `f(x)` itself is not among the evaluations.

    Raises:
        ValueError: If the direction does not lead downhill, or `f(x)` is not finite.

    References:
        Armijo, Minimization of functions having Lipschitz continuous first partial derivatives,
        Pacific Journal of Mathematics 16, 1966.

    Example:
        >>> x, d = torch.tensor([3.0, 1.0]), torch.tensor([-6.0, -2.0])
        >>> line_search(lambda x: x @ x, x, d, c=0.25)  # 10, then at -x 10 again, then at 0
        LineSearch(step=0.5, value=0.0, evaluations=2, converged=True)
    """
    x, direction = floats("x", x).detach(), floats("direction", direction).detach()
    if direction.shape != x.shape or direction.dtype != x.dtype:
        raise ValueError(
            f"direction must be like x, {tuple(x.shape)} and {x.dtype}, got"
            f" {tuple(direction.shape)} and {direction.dtype}"
        )
    step, max_iter = number("step", step, above=0), whole("max_iter", max_iter, low=1)
    shrink, c = number("shrink", shrink, above=0, below=1), number("c", c, above=0, below=1)
    value, slope = _value_and_slope(f, x, direction, slope)
    if not slope < 0:
        raise ValueError(f"direction must lead downhill, got a slope of {slope:.6g}")

    def along(eta: float) -> float:
        with torch.no_grad():
            return _number(f(x + eta * direction))

    knobs: dict[str, Any] = {"step": step, "shrink": shrink, "c": c, "max_iter": max_iter}
    found = backtrack(along, value, slope, dtype=x.dtype, **knobs)
    if not found.converged:
        message = f"{max_iter} step sizes were tried, down to {step * shrink ** (max_iter - 1):.3g}"
        warnings.warn(f"{message}, and none pays", ConvergenceWarning, stacklevel=2)
    return found


def backtrack(
    along: Callable[[float], float],
    value: float,
    slope: float,
    *,
    step: float,
    shrink: float,
    c: float,
    max_iter: int,
    dtype: torch.dtype,
) -> LineSearch:
    """The search itself, on a function of the step size with this value and slope at 0.

    The bound is rounded to the dtype of the values: what they cannot show is not asked for.
    """
    for tried in range(1, max_iter + 1):
        there = along(step)
        bound = torch.tensor(value + c * step * slope, dtype=dtype).item()
        if there <= bound:  # never for NaN
            return LineSearch(step, there, tried, True)
        step *= shrink
    return LineSearch(0.0, value, max_iter, False)


def _value_and_slope(
    f: Callable[[Tensor], Any], x: Tensor, direction: Tensor, slope: float | None
) -> tuple[float, float]:
    if slope is not None:
        with torch.no_grad():
            value = _number(f(x))
        slope = number("slope", slope)
    else:
        with torch.enable_grad():
            here = x.clone().requires_grad_()
            loss = f(here)
            value = _number(loss)
            if not (isinstance(loss, Tensor) and loss.requires_grad):
                raise ValueError("f must be differentiable where no slope is given")
            (g,) = torch.autograd.grad(loss, here)
        slope = float((g * direction).sum())
    number("f(x)", value)
    return value, slope


def _number(loss: Any) -> float:
    if isinstance(loss, Tensor) and loss.numel() != 1:
        raise ValueError(f"f must return one number, got a tensor of shape {tuple(loss.shape)}")
    return loss.item() if isinstance(loss, Tensor) else float(loss)
