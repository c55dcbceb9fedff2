r"""What a critical point is, by the signs of the Hessian's eigenvalues.

At a point $\theta$ where the gradient $g$ of a loss vanishes, let $\lambda_{\min}$ and
$\lambda_{\max}$ be the extreme eigenvalues of its Hessian:

| eigenvalues | the point is |
|---|---|
| all positive | a strict local minimum |
| all negative | a strict local maximum |
| of both signs | a saddle |
| of one sign, and zero | undecided: $x^2 + y^4$ and $x^2 - y^4$ have the same Hessian at 0 |

On a computer nothing vanishes, so what counts as zero is said: eigenvalues up to $\tau = $ `tol`
times $\Lambda = \max |\lambda|$, and gradients up to `tol` times $\Lambda (1 + \|\theta\|)$, which
means that a Newton step of the length $\|g\| / \Lambda$ is short beside $\theta$. Hessians that are
zero up to the rounding of the loss itself, $\Lambda \le P \epsilon\, |\ell| / (1 + \|\theta\|)^2$,
are taken as zero.

With few parameters all eigenvalues are computed. Else Lanczos' method finds both ends: the Ritz
values it gives are values of $v^\top H v$ for unit vectors $v$, so that those of both signs prove a
saddle whether or not they have converged; a minimum needs $\lambda_{\min}$ less its residual to be
above $\tau \Lambda$, and is as certain as that the random start had a component along the lowest
eigenvector. The claim is `hessian_test`.
"""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from vademecum.arguments import floats, number, whole
from vademecum.foundations import LinearOperator, eigsh
from vademecum.gradients import gradient
from vademecum.models import Loss, Output
from vademecum.optimization._forward_loss import loss_without_graph
from vademecum.optimization._krylov import krylov_hessian
from vademecum.randomness import given_back
from vademecum.results import one_line

__all__ = ["HessianTest", "classify_critical_point"]

Kind = Literal["minimum", "maximum", "saddle", "undecided", "not critical"]
_DENSE = 256  # parameters up to which all eigenvalues are computed
_COARSE = 1e-3  # of the largest eigenvalue: enough to see most saddles


class HessianTest(NamedTuple):
    """What a point is, and the numbers that say so.

    Example:
        >>> found = classify_critical_point(lambda v: v[0] ** 2 - 3 * v[1] ** 2, torch.zeros(2))
        >>> found.kind, found.largest, found.smallest, found.saddle_index
        ('saddle', 2.0, -6.0, 1)
    """

    kind: Kind
    """One of "minimum", "maximum" (strict, local), "saddle", "undecided" and "not critical"."""
    gradient_norm: float
    r"""The norm of the gradient."""
    largest: float
    r"""The largest eigenvalue $\lambda_{\max}$; from below, where it has not converged."""
    smallest: float
    r"""The smallest eigenvalue $\lambda_{\min}$; from above, where it has not converged."""
    zero: float
    r"""What counts as zero: eigenvalues up to this, and gradients up to this times $1 +
    \|\theta\|$."""
    saddle_index: int | None
    """The number of negative eigenvalues; None where not all eigenvalues were computed."""
    residual: float
    """The larger of the residual norms of both eigenvalues; 0 where all were computed."""
    applications: int
    """The number of products with the Hessian."""
    converged: bool
    """Whether more iterations would change nothing."""

    __repr__ = one_line


class _Ends(NamedTuple):
    """Both ends of a spectrum: values, residual norms; all values, if they are known."""

    top: float
    low: float
    top_residual: float
    low_residual: float
    everything: Tensor | None
    applications: int
    converged: bool


def classify_critical_point(
    model: nn.Module | Callable[[Tensor], Tensor],
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    tol: float | None = None,
    max_iter: int = 1000,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> HessianTest:
    r"""Minimum, maximum or saddle, by the eigenvalues of the Hessian; "undecided" where these fail.

    A model is taken in evaluation mode, with the parameters that it has now, and never changed. At
    a kink, as that of a ReLU at 0, derivatives are those of autograd and decide nothing.

    Args:
        model: Any module in single or double precision, whose loss is looked at where its
            parameters are; or a twice differentiable function of one tensor with one number.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels". For a function, the
            point.
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        tol: What counts as zero, as a share of the largest absolute eigenvalue; by default the
            square root of the machine precision. A trained network, whose gradient is small and not
            zero, needs more.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a product,
            and each end of the spectrum has as many.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there are no parameters, the loss is not one number, or something is not
            finite.

    Example:
        >>> bowl, monkey = lambda v: (v**2).sum(), lambda v: v[0] ** 3 - 3 * v[0] * v[1] ** 2
        >>> [classify_critical_point(f, torch.zeros(2)).kind for f in (bowl, monkey)]
        ['minimum', 'undecided']
    """
    whole("max_iter", max_iter, low=1)
    if not isinstance(model, nn.Module):
        model, x, y, loss = _AtPoint(model, x), x.detach(), None, _itself
    how: dict[str, Any] = {"loss": loss, "frozen": frozen, "output": output}
    f, H, held, _ = krylov_hessian(model, x, y, memory=memory, **how)
    eps = torch.finfo(f.dtype).eps
    tol = number("tol", eps**0.5 if tol is None else tol, above=0, below=1)
    g = gradient(model, x, y, **how).double().norm().item()
    value, size = loss_without_graph(f, f.theta, x, y, loss), 1 + f.theta.double().norm().item()
    if not math.isfinite(g + value):
        raise ValueError(f"loss and gradient must be finite, got {value} and a norm of {g}")
    floor = f.size * eps * abs(value) / size**2
    dense = f.size <= _DENSE and memory is None
    find = partial(
        eigsh, H, max_iter=max_iter, symmetry_tol=math.inf, degenerate=False, generator=generator,
        progress=progress,
    )  # fmt: skip
    with given_back(generator), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ends = _all(H) if dense else _both(find, max(tol, _COARSE), held)
        kind, zero = _kind(ends, g / size, tol, floor)
        if not dense and kind == "undecided" and tol < _COARSE:
            finer = _both(find, tol, held)
            ends = finer._replace(applications=finer.applications + ends.applications)
            kind, zero = _kind(ends, g / size, tol, floor)
    settled = ends.converged or kind == "saddle"
    if not settled:
        warnings.warn(
            f"max_iter={max_iter} reached with a residual norm of"
            f" {max(ends[2:4]):.3g}, for a tolerance of {zero:.3g}",
            ConvergenceWarning,
            stacklevel=2,
        )
    index = None if ends.everything is None else int((ends.everything < -zero).sum())
    return HessianTest(
        kind, g, ends.top, ends.low, zero, index, max(ends[2:4]), ends.applications, settled
    )


def _kind(ends: _Ends, newton: float, tol: float, floor: float) -> tuple[Kind, float]:
    """What the ends of the spectrum say, and what counted as zero."""
    zero = max(tol * max(abs(ends.top), abs(ends.low)), floor)
    if newton > zero:
        return "not critical", zero
    if ends.top > zero and ends.low < -zero:
        return "saddle", zero
    if ends.converged and ends.low - ends.low_residual > zero:
        return "minimum", zero
    if ends.converged and ends.top + ends.top_residual < -zero:
        return "maximum", zero
    return "undecided", zero


def _all(H: LinearOperator) -> _Ends:
    """All eigenvalues, of the symmetric part of the dense Hessian."""
    A = H.dense().detach()
    values = torch.linalg.eigvalsh(_finite((A + A.mT) / 2))
    return _Ends(float(values[-1]), float(values[0]), 0.0, 0.0, values, len(A), True)


def _both(find: Callable[..., Any], tol: float, held: int) -> _Ends:
    top, low = (find(1, which=end, tol=tol, subspace=held) for end in ("largest", "smallest"))
    _finite(torch.cat([top.values, low.values]))
    (one, off), (other, missed) = ((float(e.values[0]), float(e.residuals[0])) for e in (top, low))
    used = top.applications + low.applications
    return _Ends(one, other, off, missed, None, used, top.converged and low.converged)


def _finite(values: Tensor) -> Tensor:
    if not bool(torch.isfinite(values).all()):
        raise ValueError("the Hessian must be finite, got NaN or infinity")
    return values


class _AtPoint(nn.Module):
    """A function of one tensor as a module whose parameter is that tensor."""

    def __init__(self, f: Callable[[Tensor], Tensor], point: Tensor):
        super().__init__()
        if not callable(f):
            raise ValueError(f"model must be a module or a function, got {type(f).__name__}")
        self.f, self.point = f, nn.Parameter(floats("x", point).detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.f(self.point)


def _itself(z: Tensor, _: Any) -> Tensor:
    return z
