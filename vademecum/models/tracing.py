"""The graph of a module's forward code, read by symbolic tracing, with values for its nodes.

`torch.fx` follows branches, sums and functional calls; submodules that the reader knows as a whole
are single nodes. Whoever reads the graph goes through its nodes in order and keeps the value that
each has for a few examples: a tensor that depends on the input (*dynamic*), or a constant or size.
The model itself is traced, no copy of it, so its tensors are those of the `ModelState` it runs in.
"""

import operator
from collections.abc import Callable
from typing import Any

from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate, map_arg
from torch.fx.proxy import TraceError

__all__ = ["Trace", "called"]

_FRESH: dict[str, Any] = {
    "iadd": operator.add, "isub": operator.sub, "imul": operator.mul, "itruediv": operator.truediv,
}  # fmt: skip
_REFUSALS = (  # what forward code raises when it meets a proxy; TraceError is a ValueError
    TypeError, AttributeError, ValueError, KeyError, IndexError, NotImplementedError,
    AssertionError,
)  # fmt: skip


class Trace:
    """The nodes of a model's graph, and what is known of their values.

    Args:
        model: The module.
        whole: Whether a submodule is a single node of the graph, beside those of torch.

    Raises:
        ValueError: If the code cannot be traced: it asks for values, or for the length of a tensor.

    Example:
        >>> trace = Trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), whole=lambda module: False)
        >>> [trace.describe(node) for node in trace.nodes if node.op == "call_module"]
        ["submodule '0' (Linear)", "submodule '1' (ReLU)"]
    """

    def __init__(self, model: nn.Module, *, whole: Callable[[nn.Module], bool]):
        self.root = nn.Sequential(model)  # so that a model of one layer is called, not opened
        try:
            self.nodes = list(_Tracer(whole).trace(self.root).nodes)
        except _REFUSALS as error:
            raise ValueError(f"model must be traceable by torch.fx: {error}") from error
        self.values: dict[fx.Node, Any] = {}
        self.dynamic: set[fx.Node] = set()

    def keep(self, node: fx.Node, value: Any, *, dynamic: bool) -> None:
        """Note a node's value, and whether it depends on the input."""
        self.values[node] = value
        if dynamic and isinstance(value, Tensor):
            self.dynamic.add(node)

    def arguments(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The values of a node's arguments."""
        return map_arg((node.args, node.kwargs), self.values.__getitem__)

    def tensors(self, node: fx.Node) -> list[fx.Node]:
        """The tensors that a node depends on: its own, then those whose sizes it asks for."""
        own = [n for n in node.all_input_nodes if n in self.dynamic]
        sizes = [n for n in node.all_input_nodes if n not in self.dynamic]
        return list(dict.fromkeys([*own, *(m for n in sizes for m in self.tensors(n))]))

    def bind(
        self, node: fx.Node, tensors: list[fx.Node], change: Callable[[Any], Any] = lambda c: c
    ) -> Callable[..., Tensor]:
        """A node's call as a function of these tensors, its constants changed."""
        call = self.callable(node)

        def bound(*values: Tensor) -> Tensor:
            given = dict(zip(tensors, values, strict=True))

            def resolve(a: Any, change: Callable[[Any], Any]) -> Any:
                if not isinstance(a, fx.Node):
                    return change(a)
                if a in given:
                    return given[a]
                if not self.tensors(a):
                    return change(self.values[a])
                args, kwargs = map_aggregate(  # a size, which goes with the batch
                    (a.args, a.kwargs), lambda b: resolve(b, lambda c: c)
                )
                return self.callable(a)(*args, **kwargs)

            args = map_aggregate(node.args, lambda a: resolve(a, change))
            kwargs = map_aggregate(node.kwargs, lambda a: resolve(a, change))
            return call(*args, **kwargs)

        return bound

    def constant(self, node: fx.Node) -> Any:
        """The parameter, buffer or other attribute that a node stands for."""
        return operator.attrgetter(str(node.target))(self.root)

    def module(self, node: fx.Node) -> nn.Module:
        """The submodule that a node calls."""
        return self.root.get_submodule(str(node.target))

    def callable(self, node: fx.Node) -> Callable[..., Any]:
        """What a node calls; not in place, where the code says so."""
        if node.op == "call_module":
            return self.module(node)
        name = called(node)
        if node.op == "call_method":
            return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)
        return _FRESH.get(name, node.target)

    def describe(self, node: fx.Node) -> str:
        """A node for messages: the submodule, or the function and where it is called."""
        if node.op == "call_module":
            kind = type(self.module(node)).__name__
            path = str(node.target).removeprefix("0").removeprefix(".")
            return f"submodule {path!r} ({kind})" if path else f"the model itself ({kind})"
        path = next(reversed(node.meta.get("nn_module_stack", {})), "0")
        path = path.removeprefix("0").removeprefix(".")
        return f"{called(node)} in submodule {path!r}" if path else f"{called(node)} in the model"


def called(node: fx.Node) -> str:
    """What a function or method is called, without the mark of working in place."""
    name = node.target if isinstance(node.target, str) else node.target.__name__
    return name.rstrip("_")


class _Tracer(fx.Tracer):
    def __init__(self, whole: Callable[[nn.Module], bool]):
        super().__init__()
        self.whole = whole

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return self.whole(m) or super().is_leaf_module(m, module_qualified_name)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)


class _Proxy(fx.Proxy):
    def __len__(self) -> int:  # for which torch raises what it raises for anything
        raise TraceError("the length of a tensor must be asked for by its shape")
