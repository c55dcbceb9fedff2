r"""The loss on a plane of a network's parameters, and how much of the curvature that shows.

$$L(\alpha, \beta) = \ell(\theta + \alpha u + \beta v)$$

on a grid, along two directions:

* random ones, each filter scaled to the norm of the network's own (see `_parameter_scales`), so
  that networks of different scales can be compared;
* the eigenvectors of the Hessian $H$ with the two largest eigenvalues;
* or any two that are given.

In some million dimensions two random directions are nearly orthogonal to every sharp one, and such
a plane looks flat whatever the minimum is. So beside the plane stands what it shows: with an
orthonormal basis $Q$ of it, $C = Q^\top H Q$ is its curvature, and

$$\frac{\lambda_{\max}(C)}{\lambda_{\max}(H)}, \qquad \frac{\operatorname{tr} C}{\operatorname{tr}
H}$$

are its shares of the sharpness and of the trace. The losses are exact; the sharpness is known up to
`tol`, and the trace has a standard error where the rules of layers do not serve.

References:
    Li, Xu, Taylor, Studer and Goldstein, Visualizing the loss landscape of neural nets, NeurIPS,
    2018. Boettcher and Wheeler, Visualizing high-dimensional loss landscapes with Hessian
    directions, Journal of Statistical Mechanics, 2024.
"""

import math
from concurrent.futures import Executor
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, floats, number, whole
from vademecum.foundations import eigsh
from vademecum.generalization._parameter_scales import filter_norms
from vademecum.generalization.planes._grid_losses import (
    PlaneTask,
    grid_losses,
    grid_losses_of_copy,
)
from vademecum.gradients import functional, hvp
from vademecum.gradients.network_function import Functional
from vademecum.models import Loss, Output, unwrapped
from vademecum.optimization import curvature_trace, sharpness
from vademecum.optimization._krylov import krylov_hessian
from vademecum.progress import ticking
from vademecum.randomness import given_back, source
from vademecum.results import one_line

__all__ = ["LossPlane", "loss_plane"]

_PARTS = 16  # of the grid, for an executor: several for each of a few workers


class LossPlane(NamedTuple):
    """The loss on a plane of parameters.

    Example:
        >>> model = nn.Linear(2, 1, bias=False)
        >>> _ = nn.init.ones_(model.weight)
        >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0], [2.0]])
        >>> found = loss_plane(model, x, y, directions="hessian", points=3)  # H = diag(1, 4)
        >>> found.losses  # (4 alpha^2 + beta^2) / 2
        tensor([[2.5000, 2.0000, 2.5000],
                [0.5000, 0.0000, 0.5000],
                [2.5000, 2.0000, 2.5000]], dtype=torch.float64)
        >>> round(found.sharpness_share, 4), round(found.trace_share, 4)
        (1.0, 1.0)
    """

    steps: Float[Tensor, " points"]
    r"""The coordinates $\alpha$, and $\beta$, of the grid."""
    losses: Float[Tensor, " points points"]
    r"""The loss, $\alpha$ along the first axis."""
    directions: Float[Tensor, " 2 P"]
    """The directions $u$ and $v$, in the order of `functional(model).theta`."""
    curvature: Float[Tensor, " 2 2"]
    r"""The Hessian on the plane, $C = Q^\top H Q$; the first column of $Q$ is along $u$."""
    sharpness: float
    """The largest eigenvalue of the whole Hessian."""
    trace: float
    """The trace of the whole Hessian."""
    trace_error: float
    """Its standard error; 0 where it is exact."""
    sharpness_share: float
    """The largest eigenvalue on the plane over that of the whole Hessian."""
    trace_share: float
    """The trace on the plane over that of the whole Hessian."""
    converged: bool
    """Whether the sharpness is known up to the tolerance."""

    __repr__ = one_line


def loss_plane(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    directions: str | Float[Tensor, " 2 P"] = "random",
    extent: float = 1.0,
    points: int = 25,
    executor: Executor | None = None,
    curvature: bool = True,
    applications: int = 64,
    tol: float = 1e-3,
    max_iter: int = 1000,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> LossPlane:
    r"""The loss on a grid of a plane through the parameters, and the curvature that it shows.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed.

    Args:
        model: Any module.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels". A loader is run
            through for every few points.
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        directions: "random" for two random ones, filter by filter as long as the network's own
            weights; "hessian" for the unit eigenvectors with the two largest eigenvalues; or two
            rows in the order of `functional(model).theta`, which are taken as they are.
        extent: How far the grid goes to each side, in units of the directions.
        points: How many points the grid has along each axis.
        executor: Where parts of the grid are computed, such as a `ProcessPoolExecutor`; model, data
            and loss must be what it can send. By default here.
        curvature: Whether to measure the curvature; else all of it is NaN.
        applications: The most products with the Hessian, or backward passes, for its trace.
        tol: Stop when the residual of the sharpness is at most `tol` times the largest eigenvalue
            in sight.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a product.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there are fewer than two parameters, the directions are not independent, or
            the loss is not one number.

    Example:
        >>> x, y = torch.eye(3), torch.tensor([0, 1, 2])
        >>> found = loss_plane(nn.Linear(3, 3), x, y, points=5, generator=torch.Generator())
        >>> found.losses.shape, bool(found.sharpness_share <= 1.001)
        (torch.Size([5, 5]), True)
    """
    number("extent", extent, above=0)
    whole("points", points, low=2)
    number("tol", tol, above=0)
    whole("applications", applications, low=4)
    model = unwrapped(model)
    f = functional(model, frozen=frozen, output=output)
    if f.size < 2:
        raise ValueError(f"model must have two parameters or more, got {f.size}")
    data: Any = {"loss": loss, "memory": memory, "frozen": frozen, "output": output}
    krylov: Any = {"tol": tol, "max_iter": max_iter, "generator": generator}
    with given_back(generator):
        plane = _directions(f, directions, x, y, data, krylov)
    Q = _basis(plane)
    task = PlaneTask(model, plane, x, y, loss, frozen, output, memory)
    steps = torch.linspace(-extent, extent, points, dtype=torch.float64)
    losses = _grid(task, steps, executor, progress)
    if not curvature:
        nan = math.nan
        C = torch.full((2, 2), nan, dtype=f.dtype, device=f.device)
        return LossPlane(steps, losses, plane, C, nan, nan, nan, nan, nan, True)
    C = Q.T @ hvp(model, x, y, Q, **data)
    top = sharpness(model, x, y, **data, **krylov)
    whole_trace = curvature_trace(
        model, x, y, applications=applications, generator=generator, **data
    )
    return LossPlane(
        steps=steps,
        losses=losses,
        directions=plane,
        curvature=C,
        sharpness=top.value,
        trace=whole_trace.value,
        trace_error=whole_trace.standard_error,
        sharpness_share=_over(float(torch.linalg.eigvalsh((C + C.T) / 2)[-1]), top.value),
        trace_share=_over(float(C.trace()), whole_trace.value),
        converged=top.converged,
    )


def _directions(
    f: Functional, directions: str | Tensor, x: Any, y: Any, data: Any, krylov: Any
) -> Tensor:
    if isinstance(directions, Tensor):
        plane = floats("directions", directions, ndim=2, width=f.size)
        if len(plane) != 2:
            raise ValueError(f"directions must have 2 rows, got {len(plane)}")
        return plane.detach().to(f.device, f.dtype)
    if choice("directions", directions, ("random", "hessian")) == "hessian":
        H = krylov_hessian(f.model, x, y, **data)
        found = eigsh(H.H, 2, degenerate=False, symmetry_tol=math.inf, **krylov)
        return found.vectors.T.contiguous()
    generator = krylov["generator"]
    drawn = torch.randn(2, f.size, dtype=f.dtype, **source(generator, f.device)).to(f.device)
    theta = f.theta.detach()
    rows = [d * filter_norms(f, theta) / _positive(filter_norms(f, d)) for d in drawn]
    return torch.stack(rows)


def _positive(norms: Tensor) -> Tensor:
    return torch.where(norms > 0, norms, 1)


def _basis(plane: Tensor) -> Tensor:
    """Orthonormal columns, the first along the first direction."""
    Q, R = torch.linalg.qr(plane.T.double())
    sizes = R.diagonal().abs()
    if not float(sizes.min()) > 1e-6 * float(torch.linalg.vector_norm(plane.double(), dim=1).max()):
        raise ValueError("directions must be independent, got two that span no plane")
    return (Q * R.diagonal().sign()).to(plane.dtype)


def _grid(
    task: PlaneTask, steps: Tensor, executor: Executor | None, progress: bool
) -> Float[Tensor, " points points"]:
    points = torch.cartesian_prod(steps, steps)
    with ticking("points of the grid", len(points), progress=progress) as tick:
        if executor is None:
            return grid_losses(task, points, tick).view(len(steps), len(steps))
        parts = points.tensor_split(min(_PARTS, len(points)))
        jobs = [executor.submit(grid_losses_of_copy, task, part) for part in parts]
        found = []
        for job, part in zip(jobs, parts, strict=True):
            found.append(job.result())
            tick(len(part))
    return torch.cat(found).view(len(steps), len(steps))


def _over(part: float, total: float) -> float:
    return part / total if total else math.nan
