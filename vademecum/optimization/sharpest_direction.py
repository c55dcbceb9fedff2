r"""Sharpness: the largest curvature of a loss, and the step size beyond which descent climbs.

The sharpness is the largest eigenvalue of the Hessian,

$$\lambda = \max_{\|v\| = 1} v^T H v, \qquad H = \nabla_\theta^2\, \ell(f(\theta, x), y),$$

and on the quadratic that the loss is nearby, gradient descent with the step $\eta$ multiplies the
component along $v$ by $1 - \eta \lambda$: it diverges beyond $\eta = 2 / \lambda$, the critical
step. Lanczos' method finds the pair $(\lambda, v)$ from some ten products with $H$. It ends when
$\|H v - \lambda v\|$ is small enough, so that an eigenvalue is known to be within that distance;
its error goes with the square of it. That it is the largest is as certain as that the random start
has a component along its vector.

For an optimiser that divides by a diagonal $D$, as Adam does, it is the largest eigenvalue of
$D^{-1/2} H D^{-1/2}$, which has those of $D^{-1} H$; and with momentum it bears more than
$2 / \lambda$.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from vademecum.arguments import number
from vademecum.foundations import LinearOperator, eigsh
from vademecum.models import Loss, Output
from vademecum.optimization._krylov import krylov_hessian
from vademecum.optimization._preconditioners import Preconditioner, preconditioner_of
from vademecum.randomness import given_back
from vademecum.results import one_line

__all__ = ["NotFinite", "Sharpness", "sharpness"]


class NotFinite(ValueError):
    """Curvature that is NaN or infinite, as that of a run that has diverged."""


class Sharpness(NamedTuple):
    """The largest curvature and its direction.

    Example:
        >>> x, y = torch.tensor([[3.0, 4.0]]), torch.zeros(1, 1)
        >>> found = sharpness(nn.Linear(2, 1, bias=False), x, y)  # 2 x x^T
        >>> round(found.value, 3), round(found.critical_step, 3)
        (50.0, 0.04)
    """

    value: float
    r"""The eigenvalue $\lambda$."""
    vector: Float[Tensor, " P"]
    """Its unit eigenvector, in the order of `functional(model).theta`."""
    residual: float
    r"""The norm of $H v - \lambda v$ (or with $D^{-1/2} H D^{-1/2}$)."""
    critical_step: float
    r"""The step size beyond which the method diverges: $2 / \lambda$ for plain descent."""
    applications: int
    """The number of products with the Hessian."""
    converged: bool
    """Whether the residual is below the tolerance."""

    __repr__ = one_line


def sharpness(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    preconditioner: Optimizer | None = None,
    v0: Float[Tensor, " P"] | None = None,
    tol: float = 1e-3,
    max_iter: int = 1000,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> Sharpness:
    r"""The largest eigenvalue of the loss's Hessian, its vector, and the critical step size.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed;
    random numbers go on afterwards as if nothing had been.

    Args:
        model: Any module in single or double precision.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels". A loader is run
            through at each product.
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        preconditioner: An optimiser (`HeavyBall`, or torch's SGD, Adagrad, RMSprop, Adam, AdamW)
            that has made steps, whose state is $D$ and whose momentum counts for the critical step;
            by default plain gradient descent. With groups of different rates the critical step is
            that of the first one, where the others keep their ratio to it. Weight decay is left
            out.
        v0: Where to start, such as the vector found a few steps before; by default at random.
        tol: Stop when the residual is at most `tol` times the largest $|\lambda|$ in sight.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a product.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            Vectors like the parameters, of which 28 are held by default, have half of it at most.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there are no parameters, or the loss is not one number, or the Hessian is not
            finite; if the optimiser is of another kind, or has made no step yet.

    References:
        Lewkowycz, Bahri, Dyer, Sohl-Dickstein and Gur-Ari, The large learning rate phase of deep
        learning, arXiv:2003.02218, 2020. Cohen et al., Adaptive gradient methods at the edge of
        stability, arXiv:2207.14484, 2022.

    Example:
        >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.zeros(2, 1)
        >>> found = sharpness(nn.Linear(2, 1, bias=False), x, y)  # 2 x^T x / 2 = diag(1, 4)
        >>> round(found.value, 3), found.vector.abs().round(decimals=3)
        (4.0, tensor([0., 1.]))
    """
    number("tol", tol, above=0)
    # The Hessian has its own test of symmetry, at the first product with a model.
    f, H, held, _ = krylov_hessian(
        model, x, y, loss=loss, memory=memory, frozen=frozen, output=output
    )
    D = None if preconditioner is None else preconditioner_of(preconditioner, f)
    with given_back(generator):
        found = eigsh(
            _scaled(H, D), 1, tol=tol, degenerate=False, v0=v0,
            subspace=held, max_iter=max_iter, symmetry_tol=math.inf, generator=generator,
            progress=progress,
        )  # fmt: skip
    value, bound = float(found.values[0]), 2.0 if D is None else D.bound
    return Sharpness(
        value=value,
        vector=found.vectors[:, 0],
        residual=float(found.residuals[0]),
        critical_step=bound / value if value > 0 else math.inf,
        applications=found.applications,
        converged=found.converged,
    )


def _scaled(H: LinearOperator, D: Preconditioner | None) -> LinearOperator:
    """The Hessian as the optimiser sees it, which says so if it is not finite."""
    s = 1 if D is None else D.scale[:, None]

    def product(v: Tensor) -> Tensor:
        found = s * (H @ (s * v))
        if not torch.isfinite(found.sum()):
            raise NotFinite("the Hessian must be finite, got NaN or infinity: has model diverged?")
        return found

    return LinearOperator(H.shape, product, product, dtype=H.dtype, device=H.device)
