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
from vademecum.foundations._probes import lengths, random_block, square_operator
from vademecum.foundations.operators import aslinearoperator

__all__ = ["PowerIteration", "power_iteration"]


class PowerIteration(NamedTuple):
    r"""The value $\sigma$ or $\lambda$, its vectors, the residual norm, and all values on the way.

    For an eigenvalue u and v are the same vector.

    Example:
        >>> power_iteration(torch.diag(torch.tensor([3.0, 0.0]))).value
        tensor(3.)
    """

    value: Inexact[Tensor, ""]
    u: Inexact[Tensor, " m"]
    v: Inexact[Tensor, " n"]
    residual: Float[Tensor, ""]
    history: Inexact[Tensor, " rounds"]
    converged: bool


def power_iteration(
    op: Any,
    *,
    kind: str = "singular",
    v0: Inexact[Tensor, " n"] | None = None,
    tol: float | None = None,
    max_iter: int = 1000,
    generator: torch.Generator | None = None,
) -> PowerIteration:
    r"""The largest singular value of an operator, or its eigenvalue of largest modulus.

    Args:
        op: The operator, or anything that `aslinearoperator` takes.
        kind: "singular", which needs the adjoint, or "eigenvalue", which needs a square operator
            with a single dominant eigenvalue.
        v0: Where to start, not zero; by default at a random vector.
        tol: The residual norm at which to stop, relative to the value; by default the square root
            of the machine precision. Zero runs `max_iter` rounds whatever happens.
        max_iter: The most rounds; reaching it gives a `ConvergenceWarning`.
        generator: For the random vector.

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
    v, history = _unit(v), []
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
            break
        v = _unit(image)
    if tol > 0 and not converged:
        reached = float(residual / history[-1].abs())
        message = f"max_iter={max_iter} rounds reached a relative residual of {reached:.3g}"
        warnings.warn(f"{message}, for a tolerance of {tol:.3g}", ConvergenceWarning, stacklevel=2)
    return PowerIteration(history[-1], u, v, residual, torch.stack(history), converged)


def _unit(x: Tensor) -> Tensor:
    return x / lengths(x).clamp(min=torch.finfo(x.dtype).tiny)
