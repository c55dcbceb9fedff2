r"""The Lipschitz constant of a network, from below and from above.

The least $\Lambda$ with $\|f(a) - f(b)\| \le \Lambda \|a - b\|$, in the same norm on both sides,

* is at least the slope of any pair of points; the pair that was found attains the lower bound. It
  is looked for by gradient ascent from pairs along the directions in which Jacobians stretch most,
  and its slope is then bounded from below, rounding included. What rounding may add at most grows
  with each layer: of a deep network nothing is left, and `slope` is the one that was computed;
* is at most the product of the layers' norms, each bounded from above
  (`vademecum.robustness._torus_norms`), which holds for all inputs; it may be arbitrarily loose;
* is at most the norm of any matrix in a box that holds all Jacobians, for inputs of a ball
  (`vademecum.robustness._interval_jacobian`), which is convex.

Both are for the function of real numbers of the stored weights: its run in floats jumps. The claim
is `robustness.lipschitz_product`.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, whole
from vademecum.models import Output
from vademecum.randomness import source
from vademecum.results import one_line
from vademecum.robustness._interval_jacobian import jacobian_norms
from vademecum.robustness._steepest_pairs import steepest_pairs
from vademecum.robustness._threat import NORMS, Threat, as_threat
from vademecum.robustness._torus_norms import network_norm
from vademecum.robustness.bounds._enclosures import boxes_of
from vademecum.robustness.bounds._network import Network, read_network
from vademecum.robustness.bounds._region import as_region
from vademecum.robustness.bounds._rounding import full_precision, read_arithmetic
from vademecum.robustness.bounds._solver import Solver

__all__ = ["Lipschitz", "lipschitz"]

_STARTS = 32  # random points to look from where none are given


class Lipschitz(NamedTuple):
    """What the Lipschitz constant of a network lies between.

    Example:
        >>> slope = torch.tensor(2.0)
        >>> Lipschitz(slope, torch.tensor(3.0), torch.zeros(2, 1), [], slope).gap
        tensor(1.5000)
    """

    lower: Float[Tensor, " *n"]
    """What it is at least: the slope of the pair of points, less what rounding may have added."""
    upper: Float[Tensor, " *n"]
    """What it is at most."""
    points: Float[Tensor, " *points"]
    """The pair of points, for all inputs or for each ball."""
    layers: list[tuple[str, float]]
    """The steps of the network with their own constants, from above."""
    slope: Float[Tensor, " *n"]
    """The slope of the pair as computed in double precision, which nothing proves."""

    __repr__ = one_line

    @property
    def gap(self) -> Tensor:
        """How many times the upper bound exceeds the lower one."""
        return self.upper / self.lower


def lipschitz(
    model: nn.Module,
    x: Float[Tensor, " n *shape"] | None = None,
    *,
    norm: str,
    radius: float | Float[Tensor, " n"] | None = None,
    box: tuple[float, float] | None = (0.0, 1.0),
    output: Output = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> Lipschitz:
    r"""Bounds on the Lipschitz constant of a network, on all inputs or on a ball around each.

    Args:
        model: As `interval_bounds` takes it; taken in evaluation mode and left as it is.
        x: Inputs. Without a radius they only say where to look for pairs and what shape inputs
            have; by default there are none, and the model begins with a dense layer.
        norm: The norm of inputs and of outputs: "l2", "linf" or "l1".
        radius: The radius of the balls, or one for each example; None for all inputs.
        box: The least and the largest value of an entry of inputs in balls, or None.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            Jacobians of balls come in portions.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        One pair of bounds, or one for each ball.

    Raises:
        ValueError: If a step of the model is not known, which is named; if an argument makes no
            sense; if `memory` is too small for one example.

    Example:
        >>> torch.manual_seed(0)
        <torch...>
        >>> doubled = nn.Linear(3, 3, bias=False)
        >>> doubled.weight.data = 2 * torch.eye(3)
        >>> found = lipschitz(nn.Sequential(doubled, nn.ReLU(), doubled), norm="l2")
        >>> found.lower.round(decimals=4), found.upper.round(decimals=4)
        (tensor(4., dtype=torch.float64), tensor(4., dtype=torch.float64))
    """
    choice("norm", norm, ("linf", "l2", "l1"))
    if x is None and radius is not None:
        raise ValueError("x must be given with radius: the centres of the balls")
    draw = source(generator, _device(model))
    given = _some_inputs(model, draw) if x is None else x
    threat = as_threat(given, norm, 0.0 if radius is None else radius, box if radius is not None
                       else None, outward=False)  # fmt: skip
    given = given.detach()
    with torch.no_grad():
        network = read_network(model, given, torch.float64, output)
        product, layers = network_norm(network, norm)
        above = torch.tensor(product, dtype=torch.float64, device=given.device)
        if radius is not None:
            local = _in_balls(network, given, radius, box, norm, memory)
            above = torch.minimum(local, above)
        pairs = steepest_pairs(network, given, None if radius is None else threat, norm, draw)
        below, slope = _slopes(network, pairs, norm)
    if radius is None:
        best = int((below if below.any() else slope).argmax())
        return Lipschitz(below[best], above, pairs[best], layers, slope[best])
    return Lipschitz(below, above, pairs, layers, slope)


def _device(model: nn.Module) -> torch.device:
    return next(iter([*model.parameters(), *model.buffers()]), torch.empty(0)).device


def _some_inputs(model: nn.Module, draw: dict) -> Tensor:
    """Random inputs for a model that begins with a dense layer."""
    first = next((m for m in model.modules() if isinstance(m, nn.Linear)), None)
    other = next((m for m in model.modules() if m._parameters), None)
    if first is None or other is not first:
        raise ValueError("x must be given for a model that does not begin with a dense layer")
    weight = first.weight
    return torch.randn(_STARTS, first.in_features, dtype=weight.dtype, **draw).to(weight.device)


def _in_balls(
    network: Network,
    x: Tensor,
    radius: float | Tensor,
    box: tuple[float, float] | None,
    norm: str,
    memory: int | None,
) -> Tensor:
    """Upper bounds for each ball, by boxes of Jacobians."""
    how = read_arithmetic("real", x)
    region = as_region(x, as_threat(x, norm, radius, box, outward=True), how)
    outputs = math.prod(network.shapes[network.result])
    each = 6 * outputs * network.width * 8
    limit = max(2**28, each) if memory is None else whole("memory", memory, low=1)
    if limit < each:
        raise ValueError(f"memory must be >= {each} bytes for one example, got {memory}")
    found = []
    with full_precision():
        for start in range(0, len(x), max(1, limit // each)):
            part = region.rows(slice(start, start + max(1, limit // each)))
            found.append(jacobian_norms(network, Solver(network, part, how).sweep(), norm))
    return torch.cat(found)


def _slopes(network: Network, pairs: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """The slopes of pairs `(n, 2, *shape)` from below, as values are enclosed, and as computed."""
    how = read_arithmetic("real", pairs)
    flat = pairs.flatten(0, 1)
    point = as_region(flat, Threat(norm, torch.zeros(len(flat)).to(flat), None), how)
    with full_precision():
        low, high = boxes_of(network, point, how)[network.result]
        out = network(flat.double()).view(len(pairs), 2, -1)
    low, high = (end.view(len(pairs), 2, -1) for end in (low, high))
    apart = torch.maximum(low[:, 0] - high[:, 1], low[:, 1] - high[:, 0]).clamp(min=0)
    p, size = NORMS[norm], pairs[0, 0].numel() + apart.shape[1]
    gap = (pairs[:, 0].double() - pairs[:, 1].double()).flatten(1)
    length = torch.linalg.vector_norm(gap, p, dim=1)
    proven, plain = (
        torch.where(length > 0, torch.linalg.vector_norm(moved, p, dim=1) / length, 0.0)
        for moved in (apart, out[:, 0] - out[:, 1])
    )
    return proven * (1 - 4 * (size + 8) * 2.0**-52), plain
