"""Reading a piecewise-linear network: from any module to a program of steps.

The graph of a module's forward code (`vademecum.models.Trace`) is followed node by node; what is
not piecewise linear is refused by name. The model itself is read, in evaluation and in the dtype of
the inputs, and the program is compared with it on four inputs, of size 1 and 1000, before it is
handed out.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, fx, nn

from vademecum.approximation.piecewise._calls import FunctionCall, call_maps
from vademecum.approximation.piecewise._maps import Affine, PiecewiseMap
from vademecum.approximation.piecewise._modules import module_maps
from vademecum.approximation.piecewise._program import Program, Step, on_piece
from vademecum.models import (
    ModelState,
    Trace,
    called,
    insist_on_place,
    out_of_memory,
    unwrapped,
)

__all__ = ["read_program"]


def read_program(
    model: nn.Module, shape: tuple[int, ...], like: Tensor, *, name: str = "x", copy: bool = False
) -> Program:
    """The steps of a model for inputs of a shape, in the dtype of `like`.

    Args:
        model: The model, on the device of `like`; parameters that are narrower are widened.
        shape: That of one input.
        like: Whose dtype and device to compute in and on.
        name: What the inputs are called in messages.
        copy: Whether the program keeps copies of the parameters, to stay as the model is now.

    Raises:
        ValueError: If the model has a step that is not piecewise linear, which it names; if its
            code cannot be traced; if it does not take such inputs, or mixes the examples of a
            batch; if it is elsewhere than `like`, or has parameters of a wider dtype.
    """
    model = unwrapped(model)
    insist_on_place(model, name, like)
    state = ModelState(model, dtype=like.dtype, copy=copy)
    with torch.no_grad():
        return state.run(_read, state, shape, like)


def _read(state: ModelState, shape: tuple[int, ...], like: Tensor) -> Program:
    ramp = torch.arange(2 * torch.Size(shape).numel(), dtype=torch.float64).mul(0.7).sin()
    near = ramp.to(like.device, like.dtype).view(2, *shape)
    probe = torch.cat([near, near * min(1000.0, torch.finfo(like.dtype).max ** 0.25)])
    try:
        expected = state.model(probe.clone())  # which it may change in place
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if out_of_memory(error):
            raise
        message = str(error).partition("\n")[0]
        raise ValueError(f"model does not take inputs of shape {shape}: {message}") from error
    program = _Reader(state, near).program()
    _compare(program, probe, expected)
    return program


def _compare(program: Program, probe: Tensor, expected: Tensor) -> None:
    """Hold the program, for batches of one and of three, against the model for all four."""
    try:
        found = torch.cat([program.evaluate(part)[0] for part in (probe[:1], probe[1:])])
    except (RuntimeError, IndexError) as error:  # an operation that wants two examples
        if out_of_memory(error):
            raise
        found = expected[:0]
    size = expected.reshape(len(probe), -1).abs().amax(1)
    close = torch.finfo(probe.dtype).eps ** 0.5 * (1 + size)
    gap = found - expected if found.shape == expected.shape else torch.full_like(expected, math.inf)
    if not bool((gap.reshape(len(probe), -1).abs().amax(1) <= close).all()):
        raise ValueError(
            "model must be a function of one example at a time, got outputs that are not those of"
            " its code for each: are examples mixed, outputs random or not finite, or are tensors"
            " changed in place or by hooks?"
        )


class _Reader:
    """Walks the traced graph, with values for two examples, and turns its nodes into steps."""

    def __init__(self, state: ModelState, probe: Tensor):
        self.state, self.probe = state, probe
        self.trace = Trace(state.model, whole=lambda module: module_maps(module) is not None)
        self.steps: list[Step] = []
        self.shapes: dict[str, tuple] = {}
        self.gaps: list[tuple[str, Tensor]] = []

    def program(self) -> Program:
        source = result = ""
        for node in self.trace.nodes:
            if node.op == "placeholder":
                source = source or node.name
                self._keep(node, self.probe)
            elif node.op == "output":
                result = self._result(node)
            elif node.op == "get_attr":
                self.trace.keep(node, self.trace.constant(node), dynamic=False)
            else:
                self._step(node)
        self._insist_on_linearity()
        return Program(self.steps, source, result, self.shapes, self.state)

    def _result(self, node: fx.Node) -> str:
        (value,) = node.args
        if not isinstance(value, fx.Node) or value not in self.trace.dynamic:
            raise ValueError(f"model must return one tensor that depends on its input, got {value}")
        return value.name

    def _keep(self, node: fx.Node, value: Tensor) -> None:
        self.trace.keep(node, value, dynamic=True)
        self.shapes[node.name] = tuple(value.shape[1:])

    def _step(self, node: fx.Node) -> None:
        trace, tensors = self.trace, self.trace.tensors(node)
        args, kwargs = trace.arguments(node)
        sizes = node.target in ("size", "dim", "numel") or node.target is getattr
        if sizes or not tensors or all(n not in trace.dynamic for n in node.all_input_nodes):
            value = trace.callable(node)(*args, **kwargs)
            if tensors and isinstance(value, Tensor):  # it would be that of the two examples here
                raise ValueError(f"model must be piecewise linear, got {trace.describe(node)}")
            return trace.keep(node, value, dynamic=False)
        h = [trace.values[n] for n in tensors]
        if node.op == "call_module":
            maps = self._maps(node, lambda: module_maps(trace.module(node), h[0]))
        else:
            places = [i for i, a in enumerate(node.args) if isinstance(a, fx.Node)]
            places = [i for i in places if node.args[i] in trace.dynamic]
            call = FunctionCall(args, kwargs, places, partial(trace.bind, node, tensors))
            maps = self._maps(node, lambda: call_maps(called(node), call, h))
        names = tuple(n.name for n in tensors)
        for i, each in enumerate(maps):
            value = self._value(node, each, h)
            output = node.name if i == len(maps) - 1 else f"{node.name}.{i}"
            self.steps.append(Step(trace.describe(node), each, names, output))
            self.shapes[output] = tuple(value.shape[1:])
            h, names = [value], (output,)
        return self._keep(node, h[0])

    def _value(self, node: fx.Node, step: PiecewiseMap, h: list[Tensor]) -> Tensor:
        """What a step makes of its inputs; notes how far its linear part is from being one."""
        name = self.trace.describe(node)
        if isinstance(step, Affine):
            value = step.linear(*h)
            if step.transpose is None:
                gap = (step.linear(*(-t / 2 for t in h)) + value / 2).abs().max()  # exact halves
                allowed = torch.finfo(value.dtype).eps ** 0.75 * value.abs().max()
                self.gaps.append((name, gap - allowed))
            value = value if step.offset is None else value + step.offset
        else:
            value = on_piece(step, h[0], step.piece(h[0]))
        if value.shape[:1] != self.probe.shape[:1]:
            raise ValueError(
                "model must be a function of one example at a time, got a tensor of shape"
                f" {tuple(value.shape)} for {len(self.probe)} examples from {name}"
            )
        return value

    def _insist_on_linearity(self) -> None:
        """All gaps at once, as a device that computes ahead would wait for each."""
        gaps = torch.stack([gap for _, gap in self.gaps]).tolist() if self.gaps else []
        for (name, _), gap in zip(self.gaps, gaps, strict=True):
            if not gap <= 0:
                raise ValueError(f"model must be piecewise linear, got {name}")

    def _maps(
        self, node: fx.Node, build: Callable[[], list[PiecewiseMap] | None]
    ) -> list[PiecewiseMap]:
        try:
            maps = build()
        except ValueError as error:
            raise ValueError(f"{self.trace.describe(node)} {error}") from error
        if maps is None:
            raise ValueError(f"model must be piecewise linear, got {self.trace.describe(node)}")
        return maps
