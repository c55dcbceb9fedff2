"""Reading a network: from any module to steps whose bounds are known.

The calls of a module's forward code (`vademecum.models.Trace`) are followed one by one; what is not
known is refused by name. The steps are compared with the model on five inputs before they are
handed out, again in double precision where they differ, and hold its parameters, or wider ones.
"""

import math
from functools import partial
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.models import (
    Call,
    Entangled,
    ModelState,
    Output,
    Trace,
    Value,
    insist_on_place,
    refuse_batch_statistics,
    trace_of_rows,
    unwrapped,
)
from vademecum.robustness.bounds._affine_forms import AFFINE_CALLS, affine_steps
from vademecum.robustness.bounds._affine_steps import AffineStep
from vademecum.robustness.bounds._pooling_steps import POOLS, PoolStep, pooling
from vademecum.robustness.bounds._unit_rules import UNITS
from vademecum.robustness.bounds._unit_steps import UnitStep

__all__ = ["Network", "Step", "read_network"]

Step = AffineStep | UnitStep | PoolStep
"""A step, whatever its kind."""
_READING = RLock()  # a model is changed while it is read, by one thread at a time


class Network:
    """The steps of a network in the order of their evaluation; values go by number.

    Args:
        steps: The steps.
        source: The input.
        result: The output.
        shapes: Those of all values, for one example.
    """

    def __init__(self, steps: list[Step], source: int, result: int, shapes: dict[int, tuple]):
        self.steps, self.source, self.result, self.shapes = steps, source, result, shapes
        self.maker = {step.output: at for at, step in enumerate(steps)}
        self.uses: dict[int, int] = {}
        for step in steps:
            for name in step.inputs:
                self.uses[name] = self.uses.get(name, 0) + 1

    @property
    def width(self) -> int:
        """The most numbers that a value has for an example."""
        return max(math.prod(shape) for shape in self.shapes.values())

    @property
    def convolves(self) -> bool:
        """Whether there are convolutions, for which other algorithms exist."""
        return any(isinstance(s, AffineStep) and s.form.product == "conv" for s in self.steps)

    def __call__(self, x: Tensor) -> Tensor:
        """The output for points."""
        values = {self.source: x}
        for step in self.steps:
            values[step.output] = step(*(values[name] for name in step.inputs))
        return values[self.result]


def read_network(model: nn.Module, x: Tensor, dtype: torch.dtype, output: Output = None) -> Network:
    """The steps of a model for inputs like x, in a dtype.

    Raises:
        ValueError: If a step is not known, which it names; if the code cannot be traced; if the
            model does not take such inputs, or mixes the examples of a batch; if it is elsewhere
            than x or in another dtype.
    """
    model = unwrapped(model)
    refuse_batch_statistics(model)
    insist_on_place(model, "x", x, wider=False)
    probe = torch.arange(5 * x[0].numel(), dtype=torch.float64, device=x.device).mul_(0.7).sin_()
    probe = probe.view(5, *x.shape[1:]).to(dtype)
    state = ModelState(model, dtype=dtype)
    with _READING, torch.no_grad():
        traced = partial(trace_of_rows, output=output, check=_insist_on_rule)
        trace = state.run(traced, model, probe)
        network = _Reader(trace).network()
        alike = _alike(network, probe, torch.cat(trace.outputs))
    if not alike and dtype != torch.float64:  # large numbers that cancel, perhaps
        read_network(model, x, torch.float64, output)
    elif not alike:
        raise Entangled(
            "model must be a function of one example at a time, got outputs that are not those of"
            " its code for each: are examples mixed, or outputs random?"
        )
    return network


def _insist_on_rule(call: Call) -> None:
    if call.name not in AFFINE_CALLS and call.name not in UNITS and call.name not in POOLS:
        raise _unknown(call)


def _unknown(call: Call) -> ValueError:
    return ValueError(f"model must consist of steps whose bounds are known, got {call.place}")


def _alike(network: Network, probe: Tensor, expected: Tensor) -> bool:
    """Whether the steps give what the model does, up to rounding."""
    found = torch.cat([network(probe[:2]), network(probe[2:])])
    if found.shape == expected.shape and not bool(expected.isfinite().all()):
        raise ValueError("outputs of model must be finite, got NaN or inf for inputs of size one")
    close = torch.finfo(probe.dtype).eps ** 0.5 * (1 + expected.abs().amax())
    return found.shape == expected.shape and bool(((found - expected).abs() <= close).all())


class _Reader:
    """Turns the calls of a trace into steps."""

    def __init__(self, trace: Trace):
        self.trace = trace
        (source,) = trace.sources
        self.steps: list[Step] = []
        self.shapes = {source.index: tuple(source.tensor.shape[1:])}

    def network(self) -> Network:
        for call in self.trace.calls:
            for out in call.outputs:
                if out is not None:
                    self.steps += self._steps(call, out)
                    self.shapes[out.index] = tuple(out.tensor.shape[1:])
        return Network(
            self.steps, self.trace.sources[0].index, self.trace.result.index, self.shapes
        )

    def _steps(self, call: Call, out: Value) -> list[Step]:
        name, inputs = str(call), tuple(value.index for value in call.tensors)
        try:
            made = self._made(call, out, name, inputs)
        except ValueError as error:
            raise ValueError(f"{call.place} {error}") from error
        except TypeError as error:
            raise ValueError(f"{call.place} is not known in this form: {error}") from error
        if made is None:
            raise _unknown(call)
        return [made]

    def _made(self, call: Call, out: Value, name: str, inputs: tuple[int, ...]) -> Step | None:
        if not all(v.tensor.is_floating_point() for v in (out, *call.tensors)):
            return None
        if call.name in POOLS:
            options: dict[str, Any] | None = pooling(call, out)
            axes = int(call.name.removesuffix("_with_indices")[-2])
            return None if options is None else PoolStep(name, inputs, out.index, options, axes)
        if call.name in UNITS:
            unit = UNITS[call.name](call, out, *call.args, **call.kwargs)
            same = out.tensor.shape == call.tensors[0].tensor.shape
            return UnitStep(name, inputs, out.index, unit) if unit and same else None
        maps = affine_steps(call, out)
        if not maps:
            return None
        ((map, form),) = maps
        return AffineStep(name, inputs, out.index, map, form, call)
