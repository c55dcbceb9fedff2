r"""Gradient flow: descent with infinitely small steps.

The flow of $f$ is the solution of $\dot x = -\nabla f(x)$, $x(0) = x_0$. Along it

$$\frac{d}{dt} f(x(t)) = -\|\nabla f(x(t))\|^2 , \qquad
f(x_0) - f(x(t)) = \int_0^t \|\nabla f(x(s))\|^2\, ds ,$$

and gradient descent with step size $\eta$ is Euler's method for it, at a distance of $O(\eta)$
after a fixed time. The equation is stiff where curvatures differ much. SciPy's backward
differentiation formulas solve it, with the Hessian as the Jacobian, in double precision, together
with the integral. The error is estimated, not bounded: about `tol`, relative to the solution, for
each step that the solver takes. The claims are `optimization.gradient_flow` and
`optimization.euler_discretisation`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number
from vademecum.results import one_line

__all__ = ["GradientFlow", "gradient_flow"]


class GradientFlow(NamedTuple):
    """A solution of the gradient flow at some times.

    Example:
        >>> flow = gradient_flow(lambda x: x @ x / 2, torch.tensor([2.0]), torch.tensor([0.0, 1.0]))
        >>> flow.x  # 2 and 2 / e
        tensor([[2.0000], [0.7358]])
    """

    t: Float[Tensor, " T"]
    """The times."""
    x: Float[Tensor, " T d"]
    """The solution at each, a row each."""
    values: Float[Tensor, " T"]
    """The function there."""
    dissipated: Float[Tensor, " T"]
    r"""The integral of $\|\nabla f\|^2$ up to each time, by the solver."""

    __repr__ = one_line


def gradient_flow(
    f: Callable[[Tensor], Tensor],
    x0: Float[Tensor, " d"],
    t: Float[Tensor, " T"],
    *,
    tol: float = 1e-9,
) -> GradientFlow:
    r"""Solve $\dot x = -\nabla f(x)$ from $x_0$ on.

    Args:
        f: A function of a vector with one number as its value, twice differentiable by autograd.
        x0: The start.
        t: Times at which the solution is wanted, at least 0 and increasing; the start is at 0.
        tol: The relative error of a step of the solver; a hundredth of it, times the largest entry
            of the start, is allowed in entries that are small.

    Returns:
        The solution, in the dtype and place of `x0`.

    Raises:
        ValueError: If the solution does not exist up to the last time, since $f$ falls without
            bound, or the solver gives up.

    Example:
        >>> flow = gradient_flow(lambda x: x.prod(), torch.tensor([1.0, 1.0]), torch.tensor([1.0]))
        >>> flow.x, flow.values  # both entries are 1 / e
        (tensor([[0.3679, 0.3679]]), tensor([0.1353]))
        >>> flow.dissipated + flow.values
        tensor([1.])
    """
    from scipy.integrate import solve_ivp

    x0, t = floats("x0", x0, ndim=1).detach(), floats("t", t, ndim=1).detach()
    tol = number("tol", tol, above=0, below=1)
    times = t.double().cpu().numpy()
    if times[0] < 0 or (np.diff(times) <= 0).any():
        raise ValueError(f"t must be at least 0 and increasing, got {times.tolist()}")
    field = _Field(f, x0)
    start = np.append(field.start, 0.0)
    found = np.repeat(start[:, None], len(times), 1)
    later = times > 0
    if later.any():
        scale = float(np.abs(field.start).max()) or 1.0
        solved = solve_ivp(
            field, (0.0, times[-1]), start, "BDF", times[later], rtol=max(tol, 1e-13),
            atol=tol * scale / 100, jac=field.jacobian,
        )  # fmt: skip
        if not solved.success or not np.isfinite(solved.y).all():
            raise ValueError(f"f must have a flow up to t = {times[-1]:g}, got: {solved.message}")
        found[:, later] = solved.y
    x = torch.from_numpy(found[:-1].T.copy()).to(x0)
    dissipated = torch.from_numpy(found[-1]).to(x0)
    with torch.no_grad():
        values = torch.stack([f(row) for row in x])
    return GradientFlow(t, x, values, dissipated)


class _Field:
    """The right-hand side for x and the integral, as arrays, and its Jacobian."""

    def __init__(self, f: Callable[[Tensor], Tensor], x0: Tensor):
        self._f, self._device = f, x0.device
        self.start = x0.double().cpu().numpy()

    def __call__(self, _: float, state: np.ndarray) -> np.ndarray:
        g = self._gradient(self._point(state))
        return torch.cat([-g, (g @ g)[None]]).cpu().numpy()

    def jacobian(self, _: float, state: np.ndarray) -> np.ndarray:
        x = self._point(state)
        with torch.enable_grad():
            H = torch.autograd.functional.hessian(self._value, x, vectorize=False)
        H, g = torch.as_tensor(H), self._gradient(x)
        found = torch.zeros(len(state), len(state), dtype=H.dtype, device=H.device)
        found[:-1, :-1], found[-1, :-1] = -H, 2 * H @ g
        return found.cpu().numpy()

    def _point(self, state: np.ndarray) -> Tensor:
        return torch.from_numpy(state[:-1].copy()).to(self._device)

    def _gradient(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            here = x.requires_grad_()
            (g,) = torch.autograd.grad(self._value(here), here)
        return g

    def _value(self, x: Tensor) -> Tensor:
        value = self._f(x)
        if not isinstance(value, Tensor) or value.shape != ():
            shape = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
            raise ValueError(f"f must return one number as a tensor, got {shape}")
        if not value.requires_grad:
            raise ValueError("f must be differentiable, got a value that autograd cannot follow")
        return value
