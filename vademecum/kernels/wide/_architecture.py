"""A network as a limit needs it: traced once for each shape of inputs, and read."""

from typing import Any

import torch
from torch import Tensor, nn

from vademecum.kernels.wide._calls import read_call
from vademecum.kernels.wide._program import Program
from vademecum.kernels.wide._reader import Entry, Reader
from vademecum.kernels.wide._unary import IDENTITY
from vademecum.models import (
    Output,
    Trace,
    evaluation,
    out_of_memory,
    run_with,
    tensor_places,
)

__all__ = ["Network"]


class Network:
    """A network whose architecture is read when inputs of a shape are first met.

    Args:
        model: The module.
        tol: The tolerance of integrals without closed form.
        memory: Bytes to use, or None.
        output: What counts of what the module gives.
    """

    def __init__(self, model: nn.Module, tol: float, memory: int | None, output: Output = None):
        self.model, self.tol, self.memory, self.output = model, tol, memory, output
        self._programs: dict[Any, Program] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_programs": {}}  # which are read anew elsewhere

    def program(self, x: Tensor) -> Program:
        """The steps for inputs of this shape.

        Raises:
            ValueError: If a layer has no limit, or none that is known.
        """
        parameters = tuple((id(p), p.requires_grad) for p in self.model.parameters())
        key = (x.shape[1:], parameters, tuple(map(id, self.model.modules())))
        if key not in self._programs:
            self._programs[key] = _read(self.model, x, self.tol, self.output)
        return self._programs[key]


def _traced(model: nn.Module, a: Tensor, b: Tensor, output: Output) -> Trace:
    shape = tuple(a.shape[1:])
    own = {id(t): t.detach().clone() for _, t in tensor_places(model, "buffers")}
    buffers = {place: own[id(t)] for place, t in tensor_places(model, "buffers")}
    try:
        with evaluation(model), torch.enable_grad():  # so that calls show where gradients end
            return run_with(model, buffers, lambda: Trace(model, a, b, output=output))
    except (RuntimeError, TypeError, IndexError) as error:
        if out_of_memory(error):
            raise
        raise ValueError(
            f"model does not take inputs of shape {shape}, one example at a time: {error}"
        ) from error


def _read(model: nn.Module, x: Tensor, tol: float, output: Output) -> Program:
    place = next(iter(model.parameters()), x)
    dtype = place.dtype if place.is_floating_point() else x.dtype
    chance = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, *x.shape[1:], generator=chance).to(place.device, dtype) for n in (2, 3))
    trace = _traced(model, a, b, output)
    reader = Reader(model, tol)
    source = trace.sources[0].index
    reader.program.source = source
    reader.entries[source] = Entry(source, -1, (), IDENTITY)
    for call in trace.calls:
        read_call(reader, call)
    result = reader.entry(trace.result)
    if result.raw is not None:
        raise ValueError("model must have a layer with weights, got none that its output needs")
    if trace.calls:
        result = reader.settled(trace.calls[-1], result)
    register = reader.register_of(result)
    if any(n != 1 for n in register.axes):
        raise ValueError(
            "model must give one vector for each example, so that positions are pooled, or joined"
            f" before a linear layer, got an output of shape {tuple(trace.result.tensor.shape)}"
            f" with positions {register.axes}"
        )
    if register.uneven:
        reader.no_tangent(trace.calls[-1], register.uneven)
    if reader.program.ends_in_activation(result.register):
        reader.no_tangent(trace.calls[-1], "an activation before the output, with no layer between,"
                          " leaves the tangent kernel random at any width")  # fmt: skip
    reader.program.finish(result.register)
    return reader.program
