"""The loss at many points of a plane of parameters: several at once, or one after the other.

Where the activations of several networks fit into a cache (or are small for a GPU) they run side by
side; else one after the other, with the layers that read the data done once for all.
"""

from collections.abc import Callable
from contextlib import closing
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.generalization.planes._first_layers import FirstLayers
from vademecum.gradients import functional
from vademecum.gradients.network_function import Functional
from vademecum.models import (
    Loss,
    ModelState,
    Output,
    batches,
    call_arguments,
    cannot_be_mapped,
    chosen_output,
    described,
    evaluation,
    loss_for,
    map_tensors,
    mean_over_batches,
    recorded,
    refuse_nan,
    warn_of_slow_path,
)
from vademecum.optimization._forward_loss import loss_without_graph

__all__ = ["PlaneTask", "grid_losses", "grid_losses_of_copy"]

_TOGETHER = {"cpu": 2**23, "cuda": 2**28}  # bytes of activations and weights that run side by side
_MOST = 64  # networks at once
_LEAST = (
    32  # fewer cost more than one by one: 0.3 ms a point at 4, 0.19 at 1, 0.1 at 64 (2-32-32-2)
)


class PlaneTask(NamedTuple):
    """A network, a plane of its parameters, and the data."""

    model: nn.Module
    directions: Float[Tensor, " 2 P"]
    x: Any
    y: Any
    loss: Loss | None
    frozen: bool
    output: Output
    memory: int | None


def grid_losses_of_copy(task: PlaneTask, points: Float[Tensor, " k 2"]) -> Float[Tensor, " k"]:
    """The losses by a copy of the network, since threads would swap each other's tensors."""
    return grid_losses(task._replace(model=deepcopy(task.model)), points)


@torch.no_grad()
def grid_losses(
    task: PlaneTask, points: Float[Tensor, " k 2"], tick: Callable[[int], None] = lambda done: None
) -> Float[Tensor, " k"]:
    """The loss at each of some points of the plane, given by their two coordinates."""
    f = functional(task.model, frozen=task.frozen, output=task.output)
    together = _together(f, task)
    if together > 1:
        try:
            parts = points.split(together)
            return torch.cat([_ticked(tick, _side_by_side(f, task, part)) for part in parts])
        except RuntimeError as error:
            if not cannot_be_mapped(error):
                raise
            warn_of_slow_path("each point of the plane runs alone", error)
    if isinstance(task.x, DataLoader) or task.memory is not None:
        return torch.cat([_ticked(tick, _alone(f, task, point)) for point in points])
    return _one_by_one(f, task, points, tick)


def _ticked(tick: Callable[[int], None], found: Tensor) -> Tensor:
    tick(len(found))
    return found


def _together(f: Functional, task: PlaneTask) -> int:
    """How many networks to run side by side, from what one run makes."""
    with closing(batches(task.x, task.y, device=f.device)) as each:
        x = next(iter(each))[0]
    run = ModelState(f.model).run(recorded, f.model, map_tensors(x, Tensor.clone))
    made = [v.tensor for call in run.calls for v in call.outputs if v is not None]
    size = sum(t.numel() * t.element_size() for t in made) + f.size * f.dtype.itemsize
    room = _TOGETHER.get(f.device.type, _TOGETHER["cpu"])
    room = room if task.memory is None else min(room, task.memory // 2)
    together = min(_MOST, room // max(size, 1))
    return together if together >= _LEAST else 1


def _side_by_side(f: Functional, task: PlaneTask, points: Tensor) -> Tensor:
    thetas = f.theta + points.to(f.theta) @ task.directions

    def of_batch(x: Any, y: Any) -> Tensor:
        refuse_nan(x)

        def of_one(theta: Tensor) -> Tensor:
            return _value(f(theta, x), y, task.loss)

        return torch.func.vmap(of_one, randomness="same")(thetas)

    return mean_over_batches(task.x, task.y, of_batch, device=f.device).double()


def _alone(f: Functional, task: PlaneTask, point: Tensor) -> Tensor:
    theta = f.theta + point.to(f.theta) @ task.directions
    found = loss_without_graph(f, theta, task.x, task.y, task.loss)
    return torch.tensor([found], dtype=torch.float64, device=f.device)


def _one_by_one(
    f: Functional, task: PlaneTask, points: Tensor, tick: Callable[[int], None]
) -> Tensor:
    refuse_nan(task.x)
    x = map_tensors(task.x, Tensor.clone)
    args, kwargs = call_arguments(x)
    copy = functional(deepcopy(f.model), frozen=task.frozen)  # whose weights can be written to
    parts = [f.unravel(v) for v in (f.theta, *task.directions)]
    reusing, found = FirstLayers(x, copy.parameters, parts), []
    written = [(p.data, *(part[name] for part in parts)) for name, p in copy.parameters.items()]
    with evaluation(copy.model, fused=True):
        for alpha, beta in points.tolist():
            reusing.at = alpha, beta
            for p, origin, one, other in written:
                torch.add(origin, one, alpha=alpha, out=p).add_(other, alpha=beta)
            with reusing:
                z = copy.model(*args, **kwargs)
            if reusing.changed:  # then what it gives next is of other data
                break
            found.append(_value(chosen_output(z, task.output), task.y, task.loss))
            tick(1)
    if len(found) < len(points):
        return torch.cat([_alone(f, task, each) for each in points])
    return torch.stack(found).double()


def _value(z: Any, y: Any, loss: Loss | None) -> Tensor:
    value = loss_for(y, loss)(z, y)
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise ValueError(f"loss must give one number, got {described(value)}")
    return value.sum()
