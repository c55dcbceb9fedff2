r"""Curvature: the largest eigenvalues of the loss's Hessian, its trace and density, and the noise.

Gradient descent on a quadratic with the largest eigenvalue $\lambda$ diverges for steps beyond
$2 / \lambda$. Within the residual $\|H v - \lambda v\|$ of a Ritz value there is an eigenvalue of
$H$ as it is computed, whose rounding is added to the error. The trace and the density come from
random probes, with standard errors over them (or exactly up to rounding, where the layers' rules
serve); which eigenvalues are below the resolution of the density is told no more sharply than that.
The noise scale $\operatorname{tr} \Sigma / \|G\|^2$ of gradients
has an interval of 95 %. All of it is of the loss on the examples that are named, in the
parameters that are trained.
"""

import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from sklearn.exceptions import ConvergenceWarning

from vademecum.examine._clock import Clock
from vademecum.examine._section import Drawing, Item, NotApplicable, Sentence, optional
from vademecum.examine._study import Study
from vademecum.examine.dossier import Measurement
from vademecum.examine.sections._counts import counted
from vademecum.foundations import (
    Eigenpairs,
    LinearOperator,
    SpectralDensity,
    eigsh,
    spectral_density,
)
from vademecum.gradients import gradient, hessian
from vademecum.optimization import GradientNoise, critical_step, curvature_trace, gradient_noise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CLAIMS", "curvature"]

CLAIMS = (
    "optimization.curvature_threshold", "foundations.lanczos_residual_bound",
    "foundations.hutchinson_variance", "foundations.spectral_quadrature",
    "optimization.minibatch_variance",
)  # fmt: skip
"""Claims of the course that stand behind it."""
_FIRST, _LAST = 8, 1000
"""Examples that it takes at least, and at most: fewer of large networks."""
_PRODUCTS = 220  # with the Hessian, that all parts of it but the density take together
_GRAPH = 6.0  # times the graph of a forward pass that a product holds at its peak: observed 1.0 to
# 4.6 for perceptron, convolutions, LSTM and GPT with 256 examples, 6.3 for one of 225 parameters
_STAGES = (16, 64, 256, 1024)  # products for the largest eigenvalues
_FLAT = 1e-4  # of the largest curvature: what counts as none. Most directions are so flat that a
# coarser search for the smallest eigenvalue ends among them, wherever it begins
_EXACT: Any = {"error_of": "arithmetic"}  # for the examples that were taken
_ROUNDING = 32.0  # times the machine precision of what is largest: beside double precision up to
# 4.1 were observed for the largest eigenvalue, 13.0 for the smallest, 11.7 for a trace, over
# perceptrons, convolutions, LSTM and transformer, where inputs are 30 spreads away from zero
_MANY, _TOL, _PROBES, _STEPS, _VECTORS = 5, 1e-3, 4, 32, 64


def curvature(study: Study, clock: Clock) -> Iterator[Item]:
    """Eigenvalues of the Hessian, what they mean for the step, and the noise of gradients."""
    loss = study.aim.loss
    if loss is None:
        raise NotApplicable(f"because there is no loss: {study.aim.why}; give y or loss")
    if study.dtype not in (torch.float32, torch.float64):
        kind = str(study.dtype).removeprefix("torch.")
        raise NotApplicable(f"because second derivatives in {kind} are mostly rounding")
    if not study.trained:
        raise NotApplicable("because it has no parameters")
    m = _examples(study, clock)
    x, y = study.take(m)
    knobs: Any = {"loss": loss, "output": study.loss_output, "frozen": study.frozen}
    yield from _first_order(study, x, y, m, knobs)
    H = _watched(hessian(study.model, x, y, **knobs), clock)
    found = None
    for found in _largest(study, clock, H):
        yield from _told(found, m)
        yield Sentence(_sentence(found, None, None))
    assert found is not None
    low = _smallest(study, H, found)
    how = "of the Hessian, or a little above it; the error is the residual, and rounding"
    value, error = float(low.values[0]), float(low.residuals[0]) + _rounding(found, low)
    yield Measurement("smallest_eigenvalue", value, error, "loss", m, how, **_EXACT)
    yield Sentence(_sentence(found, low, None))
    with optional("the gradient noise scale"):
        noise = _noise(study, x, y, m, knobs)
        how, span = "trace of the gradients' covariance over the squared gradient", noise[1:3]
        yield Measurement(
            "gradient_noise_scale", noise.scale, span, "examples", noise.examples, how
        )
        seen = math.isfinite(noise.high)  # else the gradient cannot be told from zero
        yield Sentence(_sentence(found, low, noise.scale if seen else math.inf))
    clock.check()
    yield from _whole_spectrum(study, clock, H, x, y, m, knobs)


def _examples(study: Study, clock: Clock) -> int | None:
    """How many examples there is time and memory for."""
    most = study.fitting(_GRAPH)
    if most is None:
        return None
    knobs: Any = {"loss": study.aim.loss, "output": study.loss_output, "frozen": study.frozen}
    operators: dict[int, LinearOperator] = {}

    def product(m: int) -> None:
        if m not in operators:
            operators[m] = hessian(study.model, *study.take(m), **knobs)
        _ = operators[m] @ torch.ones(operators[m].shape[1]).to(study.device, study.dtype)

    last = min(most, study.planned(_LAST))
    return clock.affordable(product, _FIRST, last, times=_PRODUCTS + math.prod(_density(study)))


def _first_order(study: Study, x: Any, y: Any, m: int | None, knobs: Any) -> Iterator[Item]:
    slope = gradient(study.model, x, y, **knobs)
    length = float(torch.linalg.vector_norm(slope.double()))
    yield Measurement("gradient_norm", length, None, "loss", m, "of the mean loss")
    with optional("the step at which the loss is back at its start"):
        found = critical_step(study.model, x, y, **knobs)
        yield Measurement("loss", found.loss, None, "", m, "mean over these examples")
        how = "step against the gradient after which the loss is back at its start"
        yield Measurement("break_even_step", found.value, 1e-3 * found.value, "", m, how, **_EXACT)


def _noise(study: Study, x: Any, y: Any, m: int | None, knobs: dict[str, Any]) -> GradientNoise:
    """The noise of gradients, also of a loss that takes no targets."""
    if y is None and m is not None:
        loss, y = knobs["loss"], torch.zeros(m, device=study.device)
        knobs = knobs | {"loss": lambda z, _: loss(z, None)}
    return gradient_noise(study.model, x, y, memory=study.room // 4, **knobs)


def _held(study: Study) -> int:
    """How many vectors like the parameters there is room for."""
    size = sum(p.numel() * p.element_size() for p in study.trained)
    return max(int(study.room / max(size, 1)), 6)


def _density(study: Study) -> tuple[int, int]:
    """Probes of the density, and the steps of each: as many vectors as there is room for."""
    held, most = _held(study), sum(p.numel() for p in study.trained)
    probes = max(min(_PROBES, held // _STEPS), min(2, most))
    return probes, min(_STEPS, most, max((held - 2) // probes, 4))


def _largest(study: Study, clock: Clock, H: LinearOperator) -> Iterator[Eigenpairs]:
    """The largest eigenvalues, from more products while they have not converged."""
    many = min(_MANY, H.shape[0]) if _held(study) >= 2 * _MANY + 24 else 1
    space = min(2 * many + 24, max(_held(study) - 2, many + 2))
    for products in clock.stages(_STAGES, what="products with the Hessian"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the residual is told
            found = eigsh(
                H, many, tol=_TOL, degenerate=False, max_iter=products, subspace=space,
                symmetry_tol=math.inf, generator=study.generator("largest eigenvalues"),
            )  # fmt: skip
        yield found
        if found.converged:
            return


def _smallest(study: Study, H: LinearOperator, found: Eigenpairs) -> Eigenpairs:
    space = min(26, max(_held(study) - 2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return eigsh(
            H, 1, which="smallest", tol=_FLAT, degenerate=False, subspace=space,
            max_iter=max(_STAGES[2], found.applications), symmetry_tol=math.inf,
            generator=study.generator("smallest eigenvalue"),
        )  # fmt: skip


def _rounding(*found: Eigenpairs) -> float:
    """What rounding adds to the error of eigenvalues: no residual of rounded products shows it."""
    largest = max(float(each.values.abs().max()) for each in found)
    return _ROUNDING * torch.finfo(found[0].values.dtype).eps * largest


def _told(found: Eigenpairs, m: int | None) -> Iterator[Item]:
    top, rounding = float(found.values[0]), _rounding(found)
    error = float(found.residuals[0]) + rounding
    how = f"of the Hessian, by {found.applications} products; the error is the residual"
    yield Measurement("largest_eigenvalue", top, error, "loss", m, f"{how}, and rounding", **_EXACT)
    how = "the largest, of which those closer to each other than"
    how += f" {4 * _TOL:.1%} of the first may be one; the error is the largest residual"
    most = float(found.residuals.max()) + rounding
    every = tuple(found.values.tolist())
    yield Measurement("eigenvalues", every, most, "loss", m, f"{how}, and rounding", **_EXACT)
    if top > 0:
        how = "2 over the largest eigenvalue, beyond which plain gradient descent diverges"
        error = 2 * error / top**2
        yield Measurement("critical_learning_rate", 2 / top, error, "", m, how, **_EXACT)


def _whole_spectrum(
    study: Study, clock: Clock, H: LinearOperator, x: Any, y: Any, m: int | None, knobs: Any
) -> Iterator[Item]:
    """The trace, and the density of all eigenvalues."""
    with optional("the trace"):
        total = curvature_trace(
            study.model, x, y, applications=max(4, min(_VECTORS, _held(study) // 2)),
            memory=None if m is None else study.room, generator=study.generator("trace"), **knobs,
        )  # fmt: skip
        how = "exact up to rounding, by the layers' rules"
        if not total.exact:
            how = f"{total.applications} random vectors"
        rounding = _ROUNDING * torch.finfo(H.dtype).eps * abs(total.value)
        error = rounding if total.exact else math.hypot(total.standard_error, rounding)
        how = f"of the Hessian, {how}"
        yield Measurement("trace", total.value, error, "loss", m, how, **_EXACT)
    clock.check()
    probes, steps = _density(study)
    density = spectral_density(H, probes=probes, steps=steps, symmetry_tol=math.inf,
                               generator=study.generator("density"))  # fmt: skip
    yield _negative(density)
    yield Drawing(lambda: _drawn(density))


def _negative(density: SpectralDensity) -> Measurement:
    """The share of negative eigenvalues; its error is of the probes, and of where the edge is."""
    edge = density.resolution or 1e-6 * float(density.nodes.abs().max())
    nodes, weights = density.nodes.double(), density.weights.double()
    below, least, most = ((weights * (nodes < -k * edge)).sum(-1) for k in (1.0, 1.5, 0.5))
    error = 0.0
    if not density.exact:  # a node stands for all that is closer to it than the resolution
        error = math.hypot(float(below.std()) / len(below) ** 0.5, float((most - least).mean()) / 2)
    how = f"share of eigenvalues below {-edge:.3g}, which can be told from zero; n products"
    share, n = float(below.mean()), density.applications
    return Measurement("negative_share", share, error, "", n, how, **_EXACT)


def _watched(H: LinearOperator, clock: Clock) -> LinearOperator:
    """The operator, whose products ask the clock."""

    def product(v: torch.Tensor) -> torch.Tensor:
        clock.check()
        return H @ v

    return LinearOperator(H.shape, product, product, dtype=H.dtype, device=H.device)


def _sentence(found: Eigenpairs, low: Eigenpairs | None, scale: float | None) -> str:
    top = float(found.values[0])
    words = "No direction of upward curvature was found"
    if top > 0:
        words = f"Plain gradient descent diverges beyond a learning rate of {2 / top:.3g}"
    if low is not None:
        bottom = float(low.values[0])
        convex = bottom >= -float(low.residuals[0]) - _FLAT * abs(top)
        words += "; no direction of downward curvature was found" if convex else (
            f"; there is a way down with curvature {bottom:.3g}"
        )  # fmt: skip
    if scale is not None:
        many = counted(max(scale, 1.0))  # no batch is smaller
        words += (
            f"; batches of more than about {many} example{'s' * (many != '1')} are mostly wasted"
            if math.isfinite(scale)
            else "; among the noise of these examples no gradient is seen"
        )
    return words + "."


def _drawn(density: SpectralDensity) -> "Figure":
    """The density of eigenvalues, on a logarithmic scale."""
    from vademecum.canvas import panels

    nodes = density.nodes.double().cpu()
    low, high = float(nodes.min()), float(nodes.max())
    margin = 0.05 * max(high - low, 1e-12)
    grid = torch.linspace(low - margin, high + margin, 400, dtype=density.nodes.dtype)
    values, errors = (t.double().cpu() for t in density(grid.to(density.nodes.device)))
    figure, axes = panels((6.4, 3.2))
    floor = float(values.max()) * 1e-7
    axes.semilogy(grid, values.clamp(min=floor))
    axes.fill_between(
        grid, (values - 2 * errors).clamp(min=floor), (values + 2 * errors).clamp(min=floor),
        alpha=0.25, lw=0,
    )  # fmt: skip
    axes.set_xlabel("eigenvalue of the Hessian")
    axes.set_ylabel("density")
    return figure
