"""Carrying boxes forward through a network, and what all bounds begin with."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import choice, floats
from vademecum.models import Output
from vademecum.robustness._threat import as_threat
from vademecum.robustness.bounds._affine_steps import AffineStep, Ends
from vademecum.robustness.bounds._descent import Descent
from vademecum.robustness.bounds._network import Network, Step, read_network
from vademecum.robustness.bounds._region import Region, as_region
from vademecum.robustness.bounds._rounding import Arithmetic, down, gamma, read_arithmetic, up

__all__ = [
    "Question", "balls_at_first", "balls_of", "box_after", "boxes_of", "functions_of",
    "read_question",
]  # fmt: skip


class Question(NamedTuple):
    """What bounds are asked for, looked at and read."""

    network: Network
    """The steps of the model."""
    region: Region
    """Where inputs may be."""
    arithmetic: Arithmetic
    """How the model runs."""
    spec: Tensor | None
    """The linear functions of its output `(n, m, k)`, or None for the entries of it."""
    wider: Callable[[], Network]
    """What reads the model in double precision."""


def read_question(
    model: nn.Module,
    x: Tensor,
    *,
    norm: str,
    radius: float | Tensor,
    box: tuple[float, float] | None,
    spec: Tensor | None,
    arithmetic: str,
    output: Output,
) -> Question:
    """Refuse what makes no sense, and read the model."""
    choice("arithmetic", arithmetic, ("float", "real"))
    threat = as_threat(x, norm, radius, box, outward=True)
    how = read_arithmetic(arithmetic, x)
    network = read_network(model, x, how.own, output)
    functions = None if spec is None else _spec(spec, x, network.shapes[network.result], how)
    return Question(
        network, as_region(x, threat, how), how, functions,
        lambda: read_network(model, x, torch.float64, output),
    )  # fmt: skip


def _spec(spec: Any, x: Tensor, shape: tuple[int, ...], arithmetic: Arithmetic) -> Tensor:
    spec = floats("spec", spec)
    wanted = f"(m, {shape[-1] if shape else 1}) or ({len(x)}, m, {shape[-1] if shape else 1})"
    fits = len(shape) == 1 and spec.ndim in (2, 3) and spec.shape[-1] == shape[0]
    if not fits or (spec.ndim == 3 and len(spec) != len(x)):
        raise ValueError(f"spec must have shape {wanted}, got {tuple(spec.shape)}")
    if spec.device != x.device:
        raise ValueError(f"spec must be on {x.device} as x is, got {spec.device}")
    exact = spec.to(arithmetic.own)
    if not torch.equal(exact.to(spec.dtype), spec):
        raise ValueError(f"spec must be exact in {arithmetic.own}, got {spec.dtype} that is not")
    return exact.detach().expand(len(x), *spec.shape[-2:])


def boxes_of(network: Network, region: Region, arithmetic: Arithmetic) -> dict[int, Ends]:
    """The boxes of all values, by intervals."""
    boxes, balls = {network.source: region.ends}, balls_at_first(network, region)
    for step in network.steps:
        boxes[step.output] = box_after(step, boxes, balls, arithmetic)
        balls_of(step, balls)
    return boxes


def balls_at_first(network: Network, region: Region) -> dict[int, Region]:
    """The input, if it is in balls that boxes do not describe."""
    return {} if region.norm == "linf" else {network.source: region}


def box_after(
    step: Step, boxes: dict[int, Ends], balls: dict[int, Region], arithmetic: Arithmetic
) -> Ends:
    """The box of what a step makes of boxes; for the first layer after a ball, by its dual norm.

    Args:
        step: The step.
        boxes: Those of the values so far.
        balls: The values that are the input itself, moved about, and where it is.
        arithmetic: How the network runs.
    """
    ends = [boxes[name] for name in step.inputs]
    if not isinstance(step, AffineStep):
        low, high = step.box(ends[0], arithmetic)
    else:
        low, high = step.box(ends, arithmetic)
        region = balls.get(step.inputs[0]) if len(step.inputs) == 1 else None
        lengths = None if region is None else step.lengths(region.dual)
        if region is not None and lengths is not None:
            size = torch.maximum(-ends[0][0], ends[0][1])
            slack = step.slack([size], arithmetic)
            r = region.radius.view(-1, *[1] * (low.ndim - 1))
            count = 2 * gamma(region.x[0].numel() + 8, arithmetic.own)
            reach = lengths * r * (1 + count) + slack
            middle = step(region.x)
            low, high = torch.maximum(low, middle - reach), torch.minimum(high, middle + reach)
    _insist_on_finite(step.name, low, high, arithmetic)
    return low, high


def balls_of(step: Step, balls: dict[int, Region]) -> None:
    """Note that a step only moves the entries of a ball, if so."""
    if not isinstance(step, AffineStep) or len(step.inputs) != 1 or not step.moves:
        return
    region = balls.get(step.inputs[0])
    if region is not None and step.form.back == 0 and step.map.offset is None:
        balls[step.output] = region._replace(x=step(region.x))


def _insist_on_finite(name: str, low: Tensor, high: Tensor, arithmetic: Arithmetic) -> None:
    """Refuse a step whose values may overflow in the run."""
    most = torch.finfo(arithmetic.run).max / 2
    if not bool((low.amin() >= -most) & (high.amax() <= most)):  # also for NaN
        raise ValueError(
            f"model must not overflow for any input, got values between {float(low.amin()):.3g} and"
            f" {float(high.amax()):.3g} in {name}"
        )


def functions_of(question: Question, boxes: dict[int, Ends]) -> Ends:
    """Bounds of linear functions of the output, folded into the last step if that is affine."""
    network, region, how, spec, _ = question
    assert spec is not None
    rows, value, spent = torch.cat([spec, -spec], 1), network.result, None
    last = network.steps[-1] if network.steps else None
    if isinstance(last, AffineStep) and last.output == value and len(last.inputs) == 1:
        descent = Descent(network, region, how)
        descent.boxes = boxes
        at = len(network.steps) - 1
        descent.learn(at)
        ((rows, _),), spent = descent.through(at, rows)
        value = last.inputs[0]
    least = Region(region.x, region.radius, "linf", boxes[value]).least(rows, None, how)
    least = least if spent is None else least + spent - (least.abs() + spent.abs()) * 2.0**-50
    m = spec.shape[1]
    return down(least[:, :m].to(how.own)), up((-least[:, m:]).to(how.own))
