r"""Curvature by layer: which parts of a network make the loss steep.

Let $H_{ll}$ be the block of the Hessian that belongs to the parameters of layer $l$ alone. Layer by
layer one can ask for

- its sharpness $\lambda_{\max}(H_{ll})$, the largest curvature if only this layer moves, at most
  the sharpness of the whole;
- its share $\operatorname{tr} H_{ll} / \operatorname{tr} H$ of all curvature; they sum to one;
- its part $\|v_l\|^2$ of the sharpest direction $v$ of the whole, which sum to one as well.

Traces are exact where `curvature_trace` is; else they come from random signs $\omega$: the sum of
$\omega \odot H \omega$ over the layer has the mean $\operatorname{tr} H_{ll}$. Eigenvalues are
exact up to their residuals.
"""

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.foundations import LinearOperator, eigsh
from vademecum.foundations.stochastic_trace import mean_and_error
from vademecum.gradients.network_function import Functional
from vademecum.models import Loss, Output, mean_over_batches
from vademecum.optimization._exact_traces import NoRule, exact_traces
from vademecum.optimization._krylov import krylov_hessian
from vademecum.randomness import given_back, source
from vademecum.results import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LayerCurvature", "draw_layer_curvature", "layer_curvature"]


class LayerCurvature(NamedTuple):
    """What each layer contributes to curvature.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
        >>> for layer, weight in zip(model, (3.0, 1.0)):
        ...     _ = nn.init.constant_(layer.weight, weight)
        >>> found = layer_curvature(model, torch.ones(1, 1), torch.zeros(1, 1))  # (v w)^2
        >>> found.names, found.traces, found.shares  # 2 v^2 and 2 w^2
        (('0', '1'), tensor([ 2., 18.]), tensor([0.1000, 0.9000]))
    """

    names: tuple[str, ...]
    """The modules that hold parameters, in the order of `functional(model).theta`."""
    sizes: Int[Tensor, " layers"]
    """How many parameters they hold."""
    sharpness: Float[Tensor, " layers"]
    """The largest eigenvalues of their blocks."""
    traces: Float[Tensor, " layers"]
    """The traces of their blocks."""
    standard_errors: Float[Tensor, " layers"]
    """The traces' standard errors over the probes; 0 where they are exact."""
    shares: Float[Tensor, " layers"]
    """What each has of the sum of all traces."""
    participation: Float[Tensor, " layers"]
    """What each has of the sharpest direction of all, squared."""
    applications: int
    """The number of products with the Hessian."""
    converged: bool
    """Whether all residuals are below the tolerance."""

    __repr__ = one_line


def layer_curvature(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    applications: int = 64,
    tol: float = 1e-3,
    max_iter: int = 1000,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> LayerCurvature:
    r"""Sharpness, trace and part in the sharpest direction of each layer's block of the Hessian.

    A layer is a module with parameters of its own; what several share belongs to the first. The
    model is taken in evaluation mode, with the parameters that it has now, and never changed.

    Args:
        model: Any module in single or double precision.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels". A loader is run
            through at each product.
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        applications: The most backward passes for exact traces, or else the number of vectors to
            estimate them from.
        tol: Stop when a residual is at most `tol` times the largest eigenvalue of its block.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a product,
            and each layer has as many.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there are no parameters, or the loss is not one number.

    References:
        Dong, Yao, Gholami, Mahoney and Keutzer, HAWQ: Hessian aware quantization of neural networks
        with mixed-precision, ICCV, 2019. Yao, Gholami, Keutzer and Mahoney, PyHessian: neural
        networks through the lens of the Hessian, IEEE Big Data, 2020.

    Example:
        >>> x, y = torch.tensor([[3.0, 4.0]]), torch.zeros(1, 1)
        >>> found = layer_curvature(nn.Linear(2, 1), x, y)  # 2 (x, 1) (x, 1)^T
        >>> found.sharpness.round(decimals=2), found.shares
        (tensor([52.]), tensor([1.]))
    """
    number("tol", tol, above=0)
    whole("applications", applications, low=2)
    f, H, held, left = krylov_hessian(
        model, x, y, loss=loss, memory=memory, frozen=frozen, output=output
    )
    layers = _layers(f)
    solve = partial(
        eigsh, k=1, tol=tol, subspace=held, max_iter=max_iter, degenerate=False,
        symmetry_tol=math.inf, generator=generator, progress=progress,
    )  # fmt: skip
    with given_back(generator):
        full = solve(H)
        blocks = [solve(_block(H, here)) for here in layers.values()]
        try:
            traces = _by_rules(f, x, y, loss, applications, left)
            errors, used = torch.zeros_like(traces), 0
        except NoRule:
            traces, errors = _by_probes(H, list(layers.values()), applications, generator)
            used = applications
    found = (full, *blocks)
    return LayerCurvature(
        names=tuple(layers),
        sizes=torch.tensor([here.stop - here.start for here in layers.values()]),
        sharpness=torch.cat([each.values for each in blocks]),
        traces=traces,
        standard_errors=errors,
        shares=traces / traces.sum(),
        participation=_sums(full.vectors.square(), list(layers.values()))[:, 0],
        applications=used + sum(each.applications for each in found),
        converged=all(each.converged for each in found),
    )


def _layers(f: Functional) -> dict[str, slice]:
    """Where the parameters of each module are in theta: side by side."""
    found: dict[str, slice] = {}
    start = 0
    for name, shape in f.shapes.items():
        path, stop = name.rpartition(".")[0], start + shape.numel()
        found[path] = slice(found[path].start if path in found else start, stop)
        start = stop
    return found


def _block(H: LinearOperator, here: slice) -> LinearOperator:
    """The rows and columns of an operator that belong to one layer."""
    size = here.stop - here.start

    def product(v: Tensor) -> Tensor:
        padded = v.new_zeros(H.shape[0], v.shape[1])
        padded[here] = v
        return (H @ padded)[here]

    return LinearOperator((size, size), product, product, dtype=H.dtype, device=H.device)


def _by_rules(
    f: Functional, x: Any, y: Any, loss: Loss | None, most: int, memory: int | None
) -> Tensor:
    """The traces of all layers' blocks by the layers' rules."""
    by_rules = partial(exact_traces, f, loss=loss, hessian=True, most=most, memory=memory)
    each = mean_over_batches(x, y, by_rules, device=f.device).to(f.dtype)
    paths = [name.rpartition(".")[0] for name in f.parameters]
    places = {path: i for i, path in enumerate(dict.fromkeys(paths))}
    index = torch.tensor([places[path] for path in paths], device=each.device)
    return each.new_zeros(len(places)).index_add_(0, index, each)


def _by_probes(
    H: LinearOperator, layers: list[slice], probes: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """The traces of all layers' blocks, estimated from the same products, and their errors."""
    samples = []
    for _ in range(probes):
        drawn = torch.randint(2, (H.shape[0], 1), **source(generator, H.device))
        omega = 2 * drawn.to(H.device, H.dtype) - 1
        samples.append(_sums(omega * (H @ omega).detach(), layers))
    return mean_and_error(torch.cat(samples, 1))


def _sums(rows: Tensor, layers: list[slice]) -> Tensor:
    return torch.stack([rows[here].sum(0) for here in layers])


def draw_layer_curvature(result: LayerCurvature, axes: "Axes | None" = None) -> "Figure":
    """Draw the layers' shares of the trace and of the sharpest direction as bars.

    Args:
        result: What `layer_curvature` found.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save. Lines show one standard error.

    Example:
        >>> found = layer_curvature(nn.Linear(2, 1), torch.ones(1, 2), torch.zeros(1, 1))
        >>> draw_layer_curvature(found).axes[0].get_ylabel()
        'share of the whole'
    """
    from matplotlib.figure import Figure

    if axes is None:
        size = min(max(5.0, 0.5 * len(result.names)), 24.0), 3.6
        axes = Figure(figsize=size, layout="constrained").subplots()
    at = torch.arange(len(result.names))
    errors = (result.standard_errors / result.traces.sum().abs()).tolist()
    axes.bar(at - 0.2, result.shares.tolist(), 0.4, yerr=errors, label="trace")
    axes.bar(at + 0.2, result.participation.tolist(), 0.4, label="sharpest direction")
    axes.set_xticks(at, [name or "model" for name in result.names], rotation=60, ha="right")
    axes.set_ylabel("share of the whole")
    axes.axhline(0, color="k", lw=0.5)
    axes.legend(frameon=False, fontsize="small")
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
