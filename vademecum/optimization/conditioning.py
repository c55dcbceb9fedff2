r"""How well a loss is conditioned: the ratio of its curvatures, and its gradient against its gap.

With the extreme eigenvalues of the Hessian $H$ the **condition number** is

$$\kappa = \lambda_{\max} / \lambda_{\min},$$

the number of steps that gradient descent needs for a digit, up to a factor, where $H$ is positive
definite; elsewhere it is infinite. The **Polyak-Łojasiewicz** ratio at a point,

$$\mu(\theta) = \frac{\|\nabla \ell(\theta)\|^2}{2\, (\ell(\theta) - \ell^*)},$$

needs no convexity. Where it is at least $\mu$ all along a path and the gradient is
$L$-Lipschitz, steps $1 / L$ shrink the gap by $1 - \mu / L$ each.

Eigenvalues are exact up to their residuals, the ratio up to rounding.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from vademecum.arguments import number
from vademecum.foundations import Eigenpairs, eigsh
from vademecum.gradients import functional, gradient
from vademecum.models import Loss, Output
from vademecum.optimization._forward_loss import loss_without_graph
from vademecum.optimization._krylov import krylov_hessian
from vademecum.randomness import given_back
from vademecum.results import one_line

__all__ = ["ConditionNumber", "PLConstant", "condition_number", "pl_constant"]

_DENSE = 256  # parameters up to which the Hessian is made dense


class ConditionNumber(NamedTuple):
    """The extreme curvatures and their ratio.

    Example:
        >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.zeros(2, 1)
        >>> found = condition_number(nn.Linear(2, 1, bias=False), x, y)  # diag(1, 9)
        >>> round(found.value, 3)
        9.0
    """

    value: float
    r"""The ratio $\kappa$; infinity unless the smallest eigenvalue is positive, beyond doubt."""
    largest: float
    r"""The largest eigenvalue $\lambda_{\max}$."""
    smallest: float
    r"""The smallest eigenvalue $\lambda_{\min}$."""
    residual: float
    """The larger of the two residual norms, which bounds the errors of the eigenvalues."""
    applications: int
    """The number of products with the Hessian."""
    converged: bool
    """Whether both residuals are below the tolerance."""

    __repr__ = one_line


class PLConstant(NamedTuple):
    """The gradient against the gap.

    Example:
        >>> x, y = torch.tensor([[1.0]]), torch.tensor([[5.0]])
        >>> pl_constant(nn.Linear(1, 1, bias=False), x, y).value.__round__(3)  # a parabola's: 2
        2.0
    """

    value: float
    r"""The ratio $\mu(\theta)$."""
    squared_norm: float
    r"""The squared norm of the gradient."""
    gap: float
    r"""The gap $\ell(\theta) - \ell^*$."""

    __repr__ = one_line


def condition_number(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    tol: float | None = None,
    max_iter: int = 2000,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> ConditionNumber:
    r"""The condition number of the loss's Hessian, with its extreme eigenvalues.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed.
    Up to 256 parameters the Hessian is made dense, unless memory is limited, and all is exact;
    else ratios above `1 / tol` cannot be told from infinity.

    Args:
        model: Any module in single or double precision.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels". A loader is run
            through at each product.
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        tol: Stop when residuals are at most `tol` times the largest eigenvalue; by default the
            square root of the machine precision.
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
        ValueError: If there are no parameters, or the loss is not one number.

    Example:
        >>> x, y = torch.tensor([[1.0, 1.0]]), torch.zeros(1, 1)  # one example, two weights
        >>> condition_number(nn.Linear(2, 1, bias=False), x, y).value
        inf
    """
    f, H, held, _ = krylov_hessian(
        model, x, y, loss=loss, memory=memory, frozen=frozen, output=output
    )
    solve = partial(
        eigsh, tol=tol, max_iter=max_iter, symmetry_tol=math.inf, degenerate=False,
        generator=generator, progress=progress,
    )  # fmt: skip
    with given_back(generator):
        if f.size <= _DENSE and memory is None:
            both = solve(H, f.size, subspace=f.size + 2)
            top, low = (_end(both, i) for i in (0, -1))
            used = both.applications
        else:
            found = [solve(H, 1, which=which, subspace=held) for which in ("largest", "smallest")]
            top, low = (_end(each, 0) for each in found)
            used = sum(each.applications for each in found)
    residual, goal = max(top[1], low[1]), torch.finfo(f.dtype).eps * f.size * abs(top[0])
    definite = low[0] > max(low[1], goal)
    return ConditionNumber(
        value=top[0] / low[0] if definite else math.inf,
        largest=top[0],
        smallest=low[0],
        residual=residual,
        applications=used,
        converged=top[2] and low[2],
    )


def _end(found: Eigenpairs, i: int) -> tuple[float, float, bool]:
    return float(found.values[i]), float(found.residuals[i]), found.converged


def pl_constant(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    minimum: float = 0.0,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> PLConstant:
    r"""The Polyak-Łojasiewicz ratio $\|\nabla \ell\|^2 / 2 (\ell - \ell^*)$ where the model is.

    The constant of a path, or of a region, is the least of its points' ratios. The model is taken
    in evaluation mode and never changed.

    Args:
        model: Any module.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels", whose losses count by
            their numbers of terms, or of examples where the loss is none of torch's.
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        minimum: The least value $\ell^*$ that the loss can take, or a bound of it from below, with
            which the ratio is a bound from below, too.
        progress: Whether to show a progress bar on standard error. It counts batches.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If the loss is not above its minimum, where the ratio means nothing.

    References:
        Karimi, Nutini and Schmidt, Linear convergence of gradient and proximal-gradient methods
        under the Polyak-Łojasiewicz condition, ECML PKDD, 2016.

    Example:
        >>> x, y = torch.tensor([[3.0, 4.0]]), torch.tensor([[7.0]])
        >>> model = nn.Linear(2, 1, bias=False)  # (w x - y)^2 has the ratio 2 |x|^2, wherever w is
        >>> round(pl_constant(model, x, y).value, 3)
        50.0
    """
    number("minimum", minimum)
    f = functional(model, frozen=frozen, output=output)
    value = loss_without_graph(f, f.theta, x, y, loss)
    if not value > minimum:
        raise ValueError(f"loss must be above minimum={minimum:g}, got {value:g}")
    g = gradient(model, x, y, loss=loss, progress=progress, frozen=frozen, output=output)
    square, gap = float(g.double().square().sum()), value - minimum
    return PLConstant(square / (2 * gap), square, gap)
