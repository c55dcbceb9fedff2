r"""Nodes: stand-ins for tensors that write down what is done with them.

A node answers to the syntax of torch (operators, methods such as `x.tanh()`, functions such as
`torch.softmax` or `F.linear`, and so most layers of `torch.nn`) and appends a step to its
recording. Functions with several operations inside, such as the cross-entropy, become their
operations. Tensors that require gradients join the graph as parameters, others as constants, both
with the values that they have then; what depends on constants alone is a constant. After an
operation in place a node stands for the result. Whatever has no rule is refused by name.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from vademecum.gradients.tape._composites import COMPOSITES, plain
from vademecum.gradients.tape._layers import LAYERS
from vademecum.gradients.tape._operations import OPERATIONS, Vertex

__all__ = ["Node", "Recording"]

Dim = int | Sequence[int] | None
_FACTS = ("shape", "ndim", "dtype", "device", "is_nested", "dim", "size", "numel")
_VIEWS = ("reshape", "expand", "permute", "select")  # of the memory of another tensor


class Recording:
    """The steps recorded so far."""

    def __init__(self) -> None:
        self.steps: list[Vertex] = []
        self.captured: dict[Any, tuple[Tensor, Node]] = {}  # the tensor keeps its id taken

    def leaf(self, label: str, value: Tensor) -> "Node":
        """Append an input, a parameter or a constant."""
        value = value.detach().clone()
        step = Vertex(label, (), value.shape, label != "constant", value=value)
        self.steps.append(step)
        return Node(self, len(self.steps) - 1, value)

    def lift(self, thing: Any, like: "Node") -> "Node":
        """The node of a tensor or number that meets a node."""
        if isinstance(thing, Node):
            if thing.recording is not self:
                raise ValueError("nodes of different tapes must not meet")
            return thing
        if isinstance(thing, Real) and not isinstance(thing, bool):
            return self.leaf("constant", torch.full_like(like.value.new_empty(()), float(thing)))
        if isinstance(thing, Tensor) and not (thing.is_floating_point() or thing.is_complex()):
            thing = thing.to(like.value.dtype)
        if not isinstance(thing, Tensor) or thing.dtype != like.value.dtype:
            kind = thing.dtype if isinstance(thing, Tensor) else type(thing).__name__
            raise ValueError(f"all tensors of a tape must be {like.value.dtype}, got {kind}")
        if not thing.is_leaf:
            raise ValueError(
                "a tensor computed from parameters must be computed on the tape: give it, or the"
                f" parameters, as inputs; got one of shape {tuple(thing.shape)}"
            )
        key = id(thing), 0 if thing.is_inference() else thing._version
        if key not in self.captured:
            label = "parameter" if thing.requires_grad else "constant"
            self.captured[key] = thing, self.leaf(label, thing)
        return self.captured[key][1]

    def apply(self, name: str, *nodes: "Node", **knobs: Any) -> "Node":
        """Append an operation."""
        operation = OPERATIONS[name]
        y = operation.value(*(node.value for node in nodes), **knobs)
        parents = tuple(node.index for node in nodes)
        if not any(self.steps[p].active for p in parents):
            return self.leaf("constant", y)
        self.steps.append(Vertex(name, parents, y.shape, True, operation, knobs))
        return Node(self, len(self.steps) - 1, y)


def _operator(name: str, *, swap: bool = False) -> Callable[["Node", Any], "Node"]:
    def act(self: "Node", other: Any) -> "Node":
        return translate(name, (other, self) if swap else (self, other), {})

    return act


class Node:
    """A tensor on the tape: `value` is what it stands for."""

    __array_ufunc__ = None  # NumPy's numbers leave arithmetic with a node to the node

    def __init__(self, recording: Recording, index: int, value: Tensor):
        self.recording, self.index, self.value = recording, index, value

    def __repr__(self) -> str:
        return f"Node({self.recording.steps[self.index].label}, shape={tuple(self.shape)})"

    def __len__(self) -> int:
        return len(self.value)

    def __bool__(self) -> bool:
        raise ValueError("a node of a tape is neither true nor false: ask for node.value")

    def __eq__(self, other: object) -> bool:
        return bool(self)

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """What torch's functions call instead of themselves when they meet a node."""
        return translate(getattr(func, "__name__", str(func)), args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name in _FACTS:
            return getattr(self.value, name)
        if name == "mT" or (name == "T" and self.ndim == 2):
            return translate("transpose", (self, -2, -1), {})
        if name.rstrip("_") in _RULES:
            return lambda *args, **kwargs: translate(name, (self, *args), kwargs)
        raise AttributeError(f"the tape has no rule for {name!r}")

    __add__ = __radd__ = _operator("add")
    __mul__ = __rmul__ = _operator("mul")
    __sub__, __rsub__ = _operator("sub"), _operator("sub", swap=True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", swap=True)
    __matmul__, __rmatmul__ = _operator("matmul"), _operator("matmul", swap=True)
    __pow__, __getitem__ = _operator("pow"), _operator("getitem")

    def __neg__(self) -> "Node":
        return translate("neg", (self,), {})


def translate(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Record a function of torch, by name, as the operations that it consists of."""
    rule = _RULES.get(name.strip("_"))
    if rule is None:
        known = ", ".join(sorted(_RULES))
        raise ValueError(f"the tape has no rule for {name!r}; it has rules for {known}")
    args, kwargs = _with_parameters(args, kwargs)
    result = rule(*args, **kwargs)
    in_place = kwargs.get("inplace") or (name.endswith("_") and not name.startswith("_"))
    return _changed(args[0], result) if in_place else result


def _changed(x: Node, result: Node) -> Node:
    """Let a node stand for what an operation in place has made of it."""
    steps = x.recording.steps
    viewed = [p for step in steps if step.label in _VIEWS for p in step.parents]
    if steps[x.index].label in _VIEWS or x.index in viewed:
        raise ValueError("an operation in place on the tape must be on a tensor without views")
    x.index, x.value = result.index, result.value
    return x


def _with_parameters(args: Any, kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Put tensors that require gradients on the tape, before anything else is done with them."""
    things = [
        t for a in (*args, *kwargs.values()) for t in (a if isinstance(a, list | tuple) else [a])
    ]
    like = next(thing for thing in things if isinstance(thing, Node))

    def lifted(x: Any) -> Any:
        if type(x) in (list, tuple):
            return type(x)(lifted(each) for each in x)
        wanted = isinstance(x, Tensor) and x.requires_grad
        return like.recording.lift(x, like) if wanted else x

    return [lifted(x) for x in args], {k: lifted(v) for k, v in kwargs.items()}


def _nodes(*things: Any) -> list[Node]:
    like = next(thing for thing in things if isinstance(thing, Node))
    return [like.recording.lift(thing, like) for thing in things]


def _pointwise(name: str) -> Callable[..., Node]:
    def rule(*args: Any, inplace: bool = False, alpha: float = 1, **options: Any) -> Node:
        plain(name, **options)
        nodes = _nodes(*args if alpha == 1 else (args[0], alpha * args[1]))
        shape = torch.broadcast_shapes(*(node.shape for node in nodes))
        return nodes[0].recording.apply(name, *(_expand(node, shape) for node in nodes))

    return rule


def _expand(x: Node, *size: Any) -> Node:
    shape = _sizes(size)
    if x.shape == shape:
        return x
    return x.recording.apply("expand", x, size=shape, shape=x.shape)


def _sizes(size: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(size[0]) if size and isinstance(size[0], Sequence) else size


def _pow(x: Node, exponent: Any) -> Node:
    if not isinstance(x, Node) or not isinstance(exponent, int | float):
        raise ValueError(f"exponent must be a number, got {type(exponent).__name__}")
    return x.recording.apply("pow", x, exponent=exponent)


def _dims(x: Node, dim: Dim) -> tuple[int, ...]:
    each = range(x.ndim) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
    axes = max(x.ndim, 1)  # a single number may have one, too
    if any(not -axes <= axis < axes for axis in each):
        raise ValueError(f"dim must be an axis of a tensor with {x.ndim}, got {dim}")
    return tuple(axis % axes for axis in each)


def _sum(x: Node, dim: Dim = None, keepdim: bool = False) -> Node:
    knobs = {"dim": _dims(x, dim), "keepdim": keepdim}
    return x.recording.apply("sum", x, shape=x.shape, **knobs) if x.ndim else x


def _extreme(name: str) -> Callable[..., Node]:
    def rule(x: Node, dim: Dim = None, keepdim: bool = False) -> Node:
        knobs = {"dim": _dims(x, dim), "keepdim": keepdim}
        return x.recording.apply(name, x, **knobs) if x.ndim else x

    return rule


def _reshape(x: Node, *size: Any) -> Node:
    new = x.value.reshape(_sizes(size)).shape
    return x.recording.apply("reshape", x, size=new, shape=x.shape)


def _permute(x: Node, *dims: Any) -> Node:
    return x.recording.apply("permute", x, dims=_dims(x, _sizes(dims)))


def _getitem(x: Node, index: Any) -> Node:
    return x.recording.apply("select", x, index=index, shape=x.shape)


def _cat(tensors: Sequence[Any], dim: int = 0) -> Node:
    nodes = _nodes(*tensors)
    ends = tuple(accumulate((node.shape[dim] for node in nodes), initial=0))
    return nodes[0].recording.apply("cat", *nodes, dim=dim, ends=ends)


def _matmul(a: Any, b: Any) -> Node:
    a, b = _nodes(a, b)
    left = a if a.ndim > 1 else a.unsqueeze(0)
    right = b if b.ndim > 1 else b.unsqueeze(1)
    y = a.recording.apply("matmul", left, right, shapes=(left.shape, right.shape))
    shape = (
        y.shape[:-2] + (y.shape[-2:-1] if a.ndim > 1 else ()) + (y.shape[-1:] if b.ndim > 1 else ())
    )
    return y if shape == y.shape else _reshape(y, shape)


def _conv(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
          dilation: Any = 1, groups: int = 1) -> Node:  # fmt: skip
    x, w = _nodes(input, weight)
    if isinstance(padding, str) or x.ndim != w.ndim:
        raise ValueError(
            f"a convolution on the tape must have a batch axis and padding in numbers, got an input"
            f" of shape {tuple(x.shape)} and padding {padding!r}"
        )
    knobs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    y = x.recording.apply("conv", x, w, shapes=(x.shape, w.shape), **knobs)
    return y if bias is None else y + bias.reshape(-1, *[1] * (x.ndim - 2))


_RULES: dict[str, Callable[..., Any]] = {
    **COMPOSITES, **LAYERS,
    **{name: _pointwise(name) for name in (
        "add", "sub", "neg", "mul", "div", "exp", "log", "sin", "cos", "tanh", "sigmoid", "relu",
        "abs", "erf")},
    "subtract": _pointwise("sub"), "pow": _pow,
    **dict.fromkeys(("truediv", "true_divide", "divide"), _pointwise("div")),
    "sum": _sum, "amax": _extreme("amax"),
    "logsumexp": _extreme("logsumexp"),
    "expand": _expand, "reshape": _reshape, "view": _reshape, "permute": _permute,
    "getitem": _getitem, "cat": _cat, "matmul": _matmul,
    "conv1d": _conv, "conv2d": _conv, "conv3d": _conv,
}  # fmt: skip
