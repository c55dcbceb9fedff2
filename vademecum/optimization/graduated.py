r"""Continuation: minimise something easier first, and follow its minimum.

A family $f_s$, $s = s_1, \dots, s_K$, begins with a function whose minimum is found from
everywhere (a smoothed one, say $f_s = f * \mathcal N(0, s^2)$) and ends with the one in question.
Stage $k$ descends on $f_{s_k}$ from where stage $k - 1$ has ended,

$$x \leftarrow x - \eta \nabla f_{s_k}(x) .$$

It can reach a global minimum where descent on $f_{s_K}$ alone stops in the nearest local one, and
comes with no guarantee in general. The claim is `optimization.continuation`.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.results import one_line

__all__ = ["Continuation", "continuation"]


class Continuation(NamedTuple):
    """Where continuation has led, and over what.

    Example:
        >>> square = lambda x, s: (x - s).square().sum(-1)
        >>> continuation(square, torch.zeros(1), [2.0, 1.0], lr=0.5).path
        tensor([[2.], [1.]])
    """

    x: Float[Tensor, " *n d"]
    """The end of the last stage."""
    values: Float[Tensor, " *n"]
    """The last function there."""
    path: Float[Tensor, " stages *n d"]
    """The end of each stage."""
    converged: Bool[Tensor, " *n"]
    """Whether the gradient of the last function is at most the tolerance there."""

    __repr__ = one_line


def continuation(
    f: Callable[[Tensor, Any], Tensor],
    x0: Float[Tensor, " *n d"],
    levels: Any,
    *,
    lr: float,
    max_iter: int = 200,
    tol: float | None = None,
) -> Continuation:
    r"""Minimise a family of functions one after the other, each from where the last has led.

    Args:
        f: A function of `x` and a level, with one number as its value, or, for several starts, with
            one for each row.
        x0: The start, or several ones as rows.
        levels: What to hand to `f`, stage by stage, the easiest first.
        lr: The step size $\eta$ of gradient descent.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. It is the number of
            steps in each stage, and the last one is warned of.
        tol: A stage ends when no gradient is longer than this; by default the square root of the
            machine precision.

    Raises:
        ValueError: If a gradient is not finite, as happens with too large a step size.

    References:
        Blake and Zisserman, Visual reconstruction, 1987. Mobahi and Fisher, On the link between
        Gaussian homotopy continuation and convex envelopes, EMMCVPR, 2015.

    Example:
        >>> def wavy(x, s):  # the cosine smoothed by a Gaussian
        ...     return (x**2 / 20 - np.exp(-4.5 * s * s) * (3 * x).cos()).sum(-1)
        >>> starts = torch.tensor([[-8.0], [5.0]])
        >>> continuation(wavy, starts, [2.0, 1.0, 0.5, 0.2, 0.0], lr=0.1).x.abs().max() < 1e-4
        tensor(True)
        >>> continuation(wavy, starts, [0.0], lr=0.1).x.round(decimals=1)  # descent alone stays
        tensor([[-8.3000], [ 4.1000]])
    """
    x, stages = floats("x0", x0).detach().clone(), list(levels)
    tol = number("tol", torch.finfo(x.dtype).eps ** 0.5 if tol is None else tol, above=0)
    lr = number("lr", lr, above=0)
    max_iter = whole("max_iter", max_iter, low=1)
    if not stages or x.ndim not in (1, 2):
        raise ValueError(
            f"levels must not be empty and x0 be (d,) or (n, d), got {len(stages)} levels and shape"
            f" {tuple(x.shape)}"
        )
    path = []
    for level in stages:
        x = _descend(f, x, level, lr, max_iter, tol)
        path.append(x)
    values, g = _value_and_gradient(f, x, stages[-1])
    converged = g.norm(dim=-1) <= tol
    if not bool(converged.all()):
        longest = float(g.norm(dim=-1).max())
        message = f"{max_iter} steps left a gradient of norm {longest:.3g} in the last stage"
        warnings.warn(f"{message}, for a tolerance of {tol:g}", ConvergenceWarning, stacklevel=2)
    return Continuation(x, values, torch.stack(path), converged)


def _descend(
    f: Callable[[Tensor, Any], Tensor], x: Tensor, level: Any, lr: float, max_iter: int, tol: float
) -> Tensor:
    for _ in range(max_iter):
        _, g = _value_and_gradient(f, x, level)
        if float(g.norm(dim=-1).max()) <= tol:
            break
        x = x - lr * g
    return x


def _value_and_gradient(
    f: Callable[[Tensor, Any], Tensor], x: Tensor, level: Any
) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        here = x.detach().requires_grad_()
        values = f(here, level)
        if values.shape != x.shape[:-1]:
            raise ValueError(
                f"f must return shape {tuple(x.shape[:-1])} for x of {tuple(x.shape)}, got"
                f" {tuple(values.shape)}"
            )
        (g,) = torch.autograd.grad(values.sum(), here)
    if not bool(g.isfinite().all()):
        raise ValueError(f"f must have finite gradients, got one that is not at level {level!r}")
    return values.detach(), g
