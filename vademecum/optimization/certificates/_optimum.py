r"""The optimum to compare with: SciPy's quasi-Newton method, then Newton's own steps.

L-BFGS goes as far as line searches carry it; Newton's steps $x - H^+ \nabla f(x)$, with the least
solution where the Hessian is singular, finish while they shorten the gradient, up to 256 variables.
On a convex quadratic the result is the minimiser next to the start. Neither shares code with the
methods that are certified.
"""

import warnings

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.optimization.certificates._objectives import Objective

__all__ = ["find_minimiser"]

_DENSE = 256  # variables: then a Hessian takes that many gradients, less than L-BFGS did
_POLISH = 20  # Newton's steps at most: from where L-BFGS ends three are enough


def find_minimiser(f: Objective) -> tuple[Tensor, bool]:
    r"""Where f is least, and whether $\|\nabla f\|$ fell to the root of the machine precision."""
    from scipy.optimize import minimize

    start = f.start
    as_tensor = lambda z: torch.as_tensor(z, dtype=start.dtype, device=start.device)  # noqa: E731

    def both(z: np.ndarray) -> tuple[float, np.ndarray]:
        x = as_tensor(z).requires_grad_()
        value = f.value(x)
        (g,) = torch.autograd.grad(value, x)
        return float(value.detach()), g.double().cpu().numpy()

    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 0.0, "gtol": 0.0, "maxcor": 20}
    with torch.enable_grad(), np.errstate(all="ignore"):  # it divides by steps of length 0
        found = minimize(
            both, start.double().cpu().numpy(), jac=True, method="L-BFGS-B", options=options
        )
    x = _polished(f, as_tensor(found.x))
    size = float(f.gradient(x).norm())
    limit = torch.finfo(start.dtype).eps ** 0.5 * max(float(f.gradient(start).norm()), 1e-300)
    if size > limit:
        warnings.warn(
            f"no minimiser was found: the gradient's norm is {size:.3g} where {limit:.3g} was"
            " wanted; the gap is that to the lowest point found, and a violation is inconclusive",
            ConvergenceWarning,
            stacklevel=4,
        )
    return x, size <= limit


def _polished(f: Objective, x: Tensor) -> Tensor:
    g = f.gradient(x)
    for _ in range(_POLISH if len(x) <= _DENSE else 0):
        H = torch.stack([f.turned(x, e) for e in torch.eye(len(x), dtype=x.dtype, device=x.device)])
        if not bool(torch.isfinite(H).all()):
            break
        better = x - torch.linalg.pinv(H, hermitian=True) @ g
        slope = f.gradient(better)
        here, there = float(f.value(x)), float(f.value(better))
        lower = there <= here + (len(x) + 8) * torch.finfo(x.dtype).eps * abs(here)
        if not (lower and float(slope.norm()) < float(g.norm())):
            break
        x, g = better, slope
    return x
