r"""Reading a piecewise-linear network: from any module to a program of steps.

The forward code of a module is read by symbolic tracing, so branches, sums and functional calls are
followed; what is not piecewise linear is refused by name. The program works on a copy of the model
in evaluation, and is compared with it on four inputs, of size 1 and 1000, before it is handed out.
"""

import copy
import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate, map_arg

from vademecum.approximation.piecewise._calls import FunctionCall, call_maps
from vademecum.approximation.piecewise._maps import Affine, PiecewiseMap
from vademecum.approximation.piecewise._modules import module_maps
from vademecum.approximation.piecewise._program import Program, Step, on_piece

__all__ = ["take_apart"]


def take_apart(model: nn.Module, shape: tuple[int, ...], like: Tensor) -> Program:
    """The steps of a model for inputs of a shape, in the dtype and on the device of `like`.

    Raises:
        ValueError: If the model has a step that is not piecewise linear, which it names; if its
            code cannot be traced; if it does not take such inputs, or mixes the examples of a
            batch.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be an nn.Module, got {type(model).__name__}")
    twin = copy.deepcopy(model).to(like.device, like.dtype).eval().requires_grad_(False)
    ramp = torch.arange(2 * torch.Size(shape).numel(), dtype=torch.float64).mul(0.7).sin()
    near = ramp.to(like.device, like.dtype).view(2, *shape)
    probe = torch.cat([near, near * min(1000.0, torch.finfo(like.dtype).max ** 0.25)])
    with torch.no_grad():
        try:
            expected = twin(probe.clone())  # which it may change in place
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            message = str(error).splitlines()[0]
            raise ValueError(f"model does not take inputs of shape {shape}: {message}") from error
        program = _Reader(twin, near).program()
        _compare(program, probe, expected)
    return program


def _compare(program: Program, probe: Tensor, expected: Tensor) -> None:
    """Hold the program, for batches of one and of three, against the model for all four."""
    try:
        found = torch.cat([program.run(part)[0] for part in (probe[:1], probe[1:])])
    except (RuntimeError, IndexError):  # an operation that wants two examples
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


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        known = module_maps(m) is not None
        return known or super().is_leaf_module(m, module_qualified_name)


class _Reader:
    """Walks the traced graph, with values for two examples, and turns its nodes into steps."""

    def __init__(self, model: nn.Module, probe: Tensor):
        self.root = nn.Sequential(model)  # so that a model of one layer is called, not opened
        try:
            self.graph = _Tracer().trace(self.root)
        except Exception as error:  # whatever the forward code raises when it meets a proxy
            raise ValueError(f"model must be traceable by torch.fx: {error}") from error
        self.values: dict[fx.Node, Any] = {}
        self.dynamic: set[fx.Node] = set()
        self.steps: list[Step] = []
        self.shapes: dict[str, tuple] = {}
        self.gaps: list[tuple[str, Tensor]] = []
        self.probe = probe

    def program(self) -> Program:
        source = result = ""
        for node in self.graph.nodes:
            if node.op == "placeholder":
                source = source or node.name
                self._keep(node, self.probe, True)
            elif node.op == "output":
                result = self._result(node)
            elif node.op == "get_attr":
                value = operator.attrgetter(node.target)(self.root)
                self._keep(node, value, False)
            else:
                self._step(node)
        self._insist_on_linearity()
        return Program(self.steps, source, result, self.shapes)

    def _result(self, node: fx.Node) -> str:
        (value,) = node.args
        if not isinstance(value, fx.Node) or value not in self.dynamic:
            raise ValueError(f"model must return one tensor that depends on its input, got {value}")
        return value.name

    def _keep(self, node: fx.Node, value: Any, dynamic: bool) -> None:
        self.values[node] = value
        if dynamic and isinstance(value, Tensor):
            self.dynamic.add(node)
            self.shapes[node.name] = tuple(value.shape[1:])

    def _step(self, node: fx.Node) -> None:
        args, kwargs = map_arg((node.args, node.kwargs), self.values.__getitem__)
        tensors = self._tensors(node)
        sizes = node.target in ("size", "dim", "numel") or node.target is getattr
        if sizes or not tensors or all(n not in self.dynamic for n in node.all_input_nodes):
            function = self._module(node) if node.op == "call_module" else self._function(node)
            value = function(*args, **kwargs)
            if tensors and isinstance(value, Tensor):  # it would be that of the two examples here
                raise ValueError(f"model must be piecewise linear, got {self._name(node)}")
            return self._keep(node, value, False)
        h = [self.values[n] for n in tensors]
        if node.op == "call_module":
            units = self._units(node, lambda: module_maps(self._module(node), h[0]))
        else:
            places = [i for i, a in enumerate(node.args) if isinstance(a, fx.Node)]
            places = [i for i in places if node.args[i] in self.dynamic]
            call = FunctionCall(args, kwargs, places, partial(self._bind, node, tensors))
            units = self._units(node, lambda: call_maps(_called(node), call, h))
        names = tuple(n.name for n in tensors)
        for i, unit in enumerate(units):
            value = self._value(node, unit, h)
            output = node.name if i == len(units) - 1 else f"{node.name}.{i}"
            self.steps.append(Step(self._name(node), unit, names, output))
            self.shapes[output] = tuple(value.shape[1:])
            h, names = [value], (output,)
        return self._keep(node, h[0], True)

    def _value(self, node: fx.Node, unit: PiecewiseMap, h: list[Tensor]) -> Tensor:
        """What a step makes of its inputs; notes how far its linear part is from being one."""
        if isinstance(unit, Affine):
            value = unit.linear(*h)
            if unit.transpose is None:
                gap = (unit.linear(*(-t / 2 for t in h)) + value / 2).abs().max()  # exact halves
                allowed = torch.finfo(value.dtype).eps ** 0.75 * value.abs().max()
                self.gaps.append((self._name(node), gap - allowed))
            value = value if unit.offset is None else value + unit.offset
        else:
            value = on_piece(unit, h[0], unit.piece(h[0]))
        if value.shape[:1] != self.probe.shape[:1]:
            raise ValueError(
                "model must be a function of one example at a time, got a tensor of shape"
                f" {tuple(value.shape)} for {len(self.probe)} examples from {self._name(node)}"
            )
        return value

    def _insist_on_linearity(self) -> None:
        """All gaps at once, as a device that computes ahead would wait for each."""
        gaps = torch.stack([gap for _, gap in self.gaps]).tolist() if self.gaps else []
        for (name, _), gap in zip(self.gaps, gaps, strict=True):
            if not gap <= 0:
                raise ValueError(f"model must be piecewise linear, got {name}")

    def _units(
        self, node: fx.Node, build: Callable[[], list[PiecewiseMap] | None]
    ) -> list[PiecewiseMap]:
        try:
            units = build()
        except ValueError as error:
            raise ValueError(f"{self._name(node)} {error}") from error
        if units is None:
            raise ValueError(f"model must be piecewise linear, got {self._name(node)}")
        return units

    def _tensors(self, node: fx.Node) -> list[fx.Node]:
        """The tensors that a node depends on: its own, then those whose sizes it asks for."""
        own = [n for n in node.all_input_nodes if n in self.dynamic]
        sizes = [n for n in node.all_input_nodes if n not in self.dynamic]
        return list(dict.fromkeys([*own, *(m for n in sizes for m in self._tensors(n))]))

    def _bind(
        self, node: fx.Node, tensors: list[fx.Node], change: Callable[[Any], Any] = lambda c: c
    ) -> Callable[..., Tensor]:
        function = self._function(node)

        def bound(*values: Tensor) -> Tensor:
            given = dict(zip(tensors, values, strict=True))

            def resolve(a: Any, change: Callable[[Any], Any]) -> Any:
                if not isinstance(a, fx.Node):
                    return change(a)
                if a in given:
                    return given[a]
                if not self._tensors(a):
                    return change(self.values[a])
                args, kwargs = map_aggregate(  # a size, which goes with the batch
                    (a.args, a.kwargs), lambda b: resolve(b, lambda c: c)
                )
                return self._function(a)(*args, **kwargs)

            args = map_aggregate(node.args, lambda a: resolve(a, change))
            kwargs = map_aggregate(node.kwargs, lambda a: resolve(a, change))
            return function(*args, **kwargs)

        return bound

    def _module(self, node: fx.Node) -> nn.Module:
        return self.root.get_submodule(str(node.target))

    def _function(self, node: fx.Node) -> Callable[..., Any]:
        name = _called(node)
        if node.op == "call_method":
            return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)
        return _FRESH.get(name, node.target)

    def _name(self, node: fx.Node) -> str:
        if node.op == "call_module":
            kind = type(self._module(node)).__name__
            path = str(node.target).removeprefix("0").removeprefix(".")
            return f"submodule {path!r} ({kind})" if path else f"the model itself ({kind})"
        path = next(reversed(node.meta.get("nn_module_stack", {})), "0")
        path = path.removeprefix("0").removeprefix(".")
        return f"{_called(node)} in submodule {path!r}" if path else f"{_called(node)} in the model"


_FRESH: dict[str, Any] = {
    "iadd": operator.add, "isub": operator.sub, "imul": operator.mul, "itruediv": operator.truediv,
}  # fmt: skip


def _called(node: fx.Node) -> str:
    """What a function or method is called, without the mark of working in place."""
    name = node.target if isinstance(node.target, str) else node.target.__name__
    return name.rstrip("_")
