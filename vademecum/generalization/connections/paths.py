r"""How high the loss climbs between two minima, along a segment or a curve.

A path $\phi$ from $\theta_a$ to $\theta_b$ has the barrier

$$\max_{t \in [0, 1]} \ell(\phi(t)) - \big((1 - t)\, \ell(\theta_a) + t\, \ell(\theta_b)\big) \ge
0,$$

on a grid of $t$ that has both ends. Networks that were trained apart are mostly divided by a high
one on the segment $\phi(t) = (1 - t)\, \theta_a + t\, \theta_b$, and by a low one or none after
`align`, which puts the units of the second in the order of the first, or on a curve that was
trained (see `_bezier`). Statistics of batch normalisation are renewed at each point (see
`_walker`).

Exact on the grid; between its points the path may climb higher. The claim is `mode_connectivity`.

References:
    Garipov, Izmailov, Podoprikhin, Vetrov and Wilson, Loss surfaces, mode connectivity, and fast
    ensembling of DNNs, NeurIPS, 2018. Draxler, Veschgini, Salmhofer and Hamprecht, Essentially no
    barriers in neural network energy landscape, ICML, 2018. Frankle, Dziugaite, Roy and Carbin,
    Linear mode connectivity and the lottery ticket hypothesis, ICML, 2020.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.generalization.alignment import Alignment, align
from vademecum.generalization.connections._bezier import bezier, trained_bend
from vademecum.generalization.connections._walker import Walker
from vademecum.gradients import functional
from vademecum.models import Loss, Output, unwrapped
from vademecum.progress import ticking
from vademecum.randomness import given_back
from vademecum.results import one_line

__all__ = ["ModeConnectivity", "mode_connectivity"]


class ModeConnectivity(NamedTuple):
    """The loss along a path between two networks.

    Example:
        >>> a, b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(a.weight, 1.0), nn.init.constant_(b.weight, -1.0)
        >>> found = mode_connectivity(a, b, torch.ones(1, 1), torch.zeros(1, 1), points=3)
        >>> found.losses, found.barrier  # w^2, which is convex: no barrier
        (tensor([1., 0., 1.], dtype=torch.float64), 0.0)
    """

    t: Float[Tensor, " points"]
    """How far along the path, from 0 to 1."""
    losses: Float[Tensor, " points"]
    """The loss there."""
    errors: Float[Tensor, " points"]
    """The share of wrong answers there; NaN where the targets are no classes."""
    barrier: float
    """How far the loss climbs above the line between its values at the ends."""
    error_barrier: float
    """The same for the share of wrong answers."""
    bend: Float[Tensor, " P"] | None
    """The bend of the curve, in the order of `functional(a).theta`; None for a segment."""
    alignment: Alignment | None
    """What `align` found, where the second network was aligned."""
    middle: nn.Module
    """The network halfway: a copy of the first with other parameters, statistics renewed."""

    __repr__ = one_line


def mode_connectivity(
    a: nn.Module,
    b: nn.Module,
    x: Any,
    y: Any = None,
    *,
    path: str = "line",
    loss: Loss | None = None,
    points: int = 25,
    updates: int = 500,
    eta: float = 0.01,
    batch: int | None = 128,
    generator: torch.Generator | None = None,
    progress: bool = False,
    output: Output = None,
) -> ModeConnectivity:
    r"""The loss and the error on a path between two networks, and its barrier.

    The networks are taken in evaluation mode and never changed. Batch normalisation goes by
    statistics that are renewed on the data at each point, the ends among them.

    Args:
        a: Any module.
        b: Another one of the same architecture.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels". A loader is run
            through at each point.
        y: The targets.
        path: "line" for the segment; "aligned" for the segment to the second network with its
            units in the order of the first one's; "curve" for a quadratic Bezier curve whose bend
            is trained.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        points: How many points of the path are looked at, the ends among them.
        updates: How many steps of Adam train the curve.
        eta: Their step size.
        batch: How many examples each of them sees; None for all. A loader has its own.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back. Only a curve draws any.
        progress: Whether to show a progress bar on standard error.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If the networks differ in their parameters, or the loss is not one number.

    Example:
        >>> x = torch.linspace(-1, 1, 9)[:, None]
        >>> one, two = nn.Linear(1, 2, bias=False), nn.Linear(2, 1, bias=False)
        >>> one.weight.data = torch.tensor([[1.0], [-1.0]])
        >>> two.weight.data = torch.tensor([[1.0, -1.0]])
        >>> a = nn.Sequential(one, nn.ReLU(), two)  # (x)_+ - (-x)_+ = x
        >>> from vademecum.regularization import permute_units
        >>> b = permute_units(a, x, permutations={"0": torch.tensor([1, 0])}).model
        >>> for path in ("line", "aligned"):  # halfway all weights vanish: the mean of x^2
        ...     print(round(mode_connectivity(a, b, x, x, path=path).barrier, 4))
        0.4167
        0.0
    """
    choice("path", path, ("line", "aligned", "curve"))
    whole("points", points, low=2)
    whole("updates", updates, low=1)
    number("eta", eta, above=0)
    if batch is not None:
        whole("batch", batch, low=1)
    a, b = unwrapped(a), unwrapped(b)
    alignment = align(a, b, x) if path == "aligned" else None
    b = b if alignment is None else alignment.model
    walker = Walker(a, x, y, loss=loss, output=output)
    ends = _ends(a, b)
    bend = None
    if path == "curve":
        with given_back(generator):
            bend = trained_bend(
                walker, *ends, x, y, updates=updates, eta=eta, batch=batch,
                generator=generator, progress=progress,
            )  # fmt: skip
    return _walked(walker, a, b, ends, bend, alignment, points, progress)


def _walked(
    walker: Walker,
    a: nn.Module,
    b: nn.Module,
    ends: tuple[Tensor, Tensor],
    bend: Tensor | None,
    alignment: Alignment | None,
    points: int,
    progress: bool,
) -> ModeConnectivity:
    buffers = [[t.detach().clone() for t in walker.buffers(model)] for model in (a, b)]

    def go(t: float) -> None:
        straight = [_between(one, other, t) for one, other in zip(*buffers, strict=True)]
        walker.move(
            _between(*ends, t) if bend is None else bezier(ends[0], bend, ends[1], t), straight
        )
        walker.renew()

    seen = []
    steps = torch.linspace(0, 1, points, dtype=torch.float64)
    with ticking("points of the path", points, progress=progress) as tick:
        for t in steps.tolist():
            go(t)
            seen.append(walker.look())
            tick(1)
    go(0.5)
    losses, errors = torch.tensor(seen, dtype=torch.float64).T
    for p, own in zip(walker.model.parameters(), a.parameters(), strict=True):
        p.requires_grad_(own.requires_grad)
    kept = {"bend": bend, "alignment": alignment, "middle": walker.model}
    return ModeConnectivity(
        steps, losses, errors, _barrier(steps, losses), _barrier(steps, errors), **kept
    )


def _between(one: Tensor, other: Tensor, t: float) -> Tensor:
    """A point of the segment, which is its ends at 0 and 1."""
    return torch.lerp(one, other, t)


def _barrier(t: Tensor, values: Tensor) -> float:
    return float((values - ((1 - t) * values[0] + t * values[-1])).max())


def _ends(a: nn.Module, b: nn.Module) -> tuple[Tensor, Tensor]:
    f, g = functional(a), functional(b)
    if f.shapes != g.shapes:
        odd = [k for k in {**f.shapes, **g.shapes} if f.shapes.get(k) != g.shapes.get(k)]
        raise ValueError(f"b must have the parameters of a, not so: {odd[:3]}")
    if (f.dtype, f.device) != (g.dtype, g.device):
        raise ValueError(f"b must be on {f.device} in {f.dtype} as a is, got {g.device}, {g.dtype}")
    return f.theta, g.theta
