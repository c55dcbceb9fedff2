r"""Power iteration: the largest singular value, or the dominant eigenvalue, of an operator.

$$u \leftarrow \frac{J v}{\|J v\|}, \quad v \leftarrow \frac{J^H u}{\|J^H u\|} \qquad\text{or}\qquad
v \leftarrow \frac{A v}{\|A v\|} .$$

If $\sigma_1 > \sigma_2$ and $v^{(0)}$ is not orthogonal to $v_1$, the tangent of the angle between
$v^{(k)}$ and $v_1$ falls at least by the factor $(\sigma_2 / \sigma_1)^2$ a round, and $\sigma =
\|J v^{(k)}\|$ rises to $\sigma_1$. For a normal $A$ whose dominant eigenvalue is alone the factor
is $|\lambda_2 / \lambda_1|$, and $\lambda = v^H A v$.

The iteration stops when the residual $\|J^H u - \sigma v\|$, or $\|A v - \lambda v\|$, is at most
`tol` times $\sigma$ or $|\lambda|$: then there is a singular value, or for a normal $A$ an
eigenvalue, within that distance. It is the method with the least memory, three vectors; where more
is at hand, `eigsh` needs far fewer products. The claim is `power_iteration`.
"""

import warnings
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Inexact
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.arguments import choice, floats, number, whole
from vademecum.arrays import lengths
from vademecum.foundations._probes import random_block, square_operator, watched
from vademecum.foundations.operators import LinearOperator, aslinearoperator
from vademecum.results import one_line

__all__ = ["PowerIteration", "power_iteration"]


class PowerIteration(NamedTuple):
    """A dominant value with its vectors.

    Example:
        >>> power_iteration(torch.diag(torch.tensor([3.0, 0.0]))).value
        tensor(3.)
    """

    value: Inexact[Tensor, ""]
    r"""The singular value $\sigma$ or the eigenvalue $\lambda$."""
    u: Inexact[Tensor, " m"]
    """The left singular vector, or the eigenvector."""
    v: Inexact[Tensor, " n"]
    """The right singular vector, or the eigenvector."""
    residual: Float[Tensor, ""]
    r"""The norm of $J^H u - \sigma v$ or $A v - \lambda v$."""
    history: Inexact[Tensor, " t"]
    """The values on the way, the last one included."""
    converged: bool
    """Whether the residual is below the tolerance."""

    __repr__ = one_line


def power_iteration(
    op: Any,
    *,
    kind: str = "singular",
    v0: Inexact[Tensor, " n"] | None = None,
    tol: float | None = None,
    max_iter: int = 1000,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> PowerIteration:
    r"""The largest singular value of an operator, or its eigenvalue of largest modulus.

    Args:
        op: The operator, or anything that `aslinearoperator` takes.
        kind: "singular", which needs the adjoint, or "eigenvalue", which needs a square operator
            with a single dominant eigenvalue.
        v0: Where to start, not zero; by default at a random vector.
        tol: The residual norm at which to stop, relative to the value; by default the square root
            of the machine precision. Zero runs `max_iter` iterations whatever happens.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.

    References:
        von Mises and Pollaczek-Geiringer, Praktische Verfahren der Gleichungsauflösung, ZAMM 9,
        1929.

    Example:
        >>> A = torch.tensor([[1.0, 5.0], [0.0, 0.5]])  # sigma^2 is a root of s^2 - 26.25 s + 0.25
        >>> power_iteration(A).value, power_iteration(A, kind="eigenvalue").value
        (tensor(5.1225), tensor(1.00...))
    """
    choice("kind", kind, ("singular", "eigenvalue"))
    op = aslinearoperator(op) if kind == "singular" else square_operator("op", op)
    tol = number("tol", torch.finfo(op.dtype).eps ** 0.5 if tol is None else tol, low=0)
    whole("max_iter", max_iter, low=1)
    v = random_block(op, 1, generator)[:, 0] if v0 is None else floats("v0", v0, ndim=1).detach()
    if not v.any():
        raise ValueError(f"v0 must not be zero, got {len(v)} zeros")
    twice = 1 + (kind == "singular")
    with watched(op, twice * (max_iter + 1), progress=progress) as op:
        found = _iterate(op, _unit(v), kind, tol, max_iter)
    if tol > 0 and not found.converged:
        reached = float(found.residual / found.value.abs())
        message = f"max_iter={max_iter} iterations reached a relative residual of {reached:.3g}"
        warnings.warn(f"{message}, for a tolerance of {tol:.3g}", ConvergenceWarning, stacklevel=2)
    return found


def _iterate(op: LinearOperator, v: Tensor, kind: str, tol: float, max_iter: int) -> PowerIteration:
    history = []
    while True:
        image = (op @ v).detach()
        if kind == "singular":
            u, value = _unit(image), lengths(image)
            image = (op.H @ u).detach()
        else:
            u, value = v, torch.vdot(v, image)
        residual = lengths(image - value * v)
        if not torch.isfinite(residual):
            raise ValueError(f"op must return finite numbers, got a residual of {residual.item()}")
        history.append(value)
        converged = bool(residual <= tol * value.abs())
        if (converged and tol > 0) or len(history) > max_iter:
            return PowerIteration(value, u, v, residual, torch.stack(history), converged)
        v = _unit(image)


def _unit(x: Tensor) -> Tensor:
    return x / lengths(x).clamp(min=torch.finfo(x.dtype).tiny)
