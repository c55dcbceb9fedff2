"""Watching a model run: a row for each call of a leaf module, and the graph of what theory knows.

Every call of torch that meets a signal becomes a node with a map of moments, if its map is known.
Where it is not, the signal that comes out is measured, and theory goes on from there; gradients in
what went in are measured likewise. Signals are what can be differentiated in: the floating-point
inputs, and outputs of leaf modules that depend on nothing else (embeddings of tokens).
"""

import functools
import weakref
from collections.abc import Callable
from operator import or_
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vademecum.models import map_tensors, named_tensors
from vademecum.regularization.signal._elementwise import Recogniser
from vademecum.regularization.signal._gaussian_signals import slope_of
from vademecum.regularization.signal._layer_rules import ACTIVATIONS, MOVES, rule_for
from vademecum.regularization.signal._maps import Activation, Sum
from vademecum.regularization.signal._measured_moments import Measured, moment_sums
from vademecum.regularization.signal._nodes import Frame, Node, SeenRow

__all__ = ["Watch"]

_SAMPLE = 2**16  # entries at which slopes are computed: a share is known to 0.002
_FLAT = 0.01


class Watch(TorchFunctionMode):
    """While it is entered, and the model followed by `entered`, notes rows and nodes.

    Args:
        n: How many examples there are.
        roots: The signals that the model begins with.
    """

    def __init__(self, n: int, roots: list[Tensor]):
        super().__init__()
        self.n, self.roots = n, roots
        self.rows, self.nodes = list[SeenRow](), list[Node]()
        self._frames = list[Frame]()
        self._known: dict[int, tuple[Any, int, Node]] = {}
        self._origins: dict[int, tuple[Any, int]] = {}
        self._flat: dict[Node, Tensor] = {}
        self._read: dict[int, tuple[Any, int, Measured]] = {}
        self._waiting = list[Measured]()
        self._paused, self._recognised = 0, Recogniser()

    def measure(self, t: Tensor) -> Measured:
        """The sums of moments of a signal, which is read once for what it holds."""
        entry = self._read.get(id(t))
        if entry is None or entry[0]() is not t or entry[1] != t._version:
            entry = weakref.ref(t), t._version, moment_sums(t, self.n, self._waiting)
            self._read[id(t)] = entry
        return entry[2]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", "")
            if name not in MOVES:
                return func(*args, **kwargs)
        plain = name.strip("_")
        given = [] if self._paused else [t for _, t in named_tensors((args, kwargs)) if _signal(t)]
        if not given:
            return func(*args, **kwargs)
        before = self._before(name, plain, given)
        self.prepare(plain, args, kwargs)
        out = self.changed(plain, args, kwargs, func(*args, **kwargs))
        made = [t for _, t in named_tensors(out) if _signal(t)]
        if made:
            self._note(plain, func, args, kwargs, before, made)
        return out

    def prepare(self, name: str, args: Any, kwargs: Any) -> None:
        """What to do before a call that meets a signal."""

    def changed(self, name: str, args: Any, kwargs: Any, out: Any) -> Any:
        """What is to stand for what a call gave that met a signal."""
        return out

    def _before(self, name: str, plain: str, given: list[Tensor]) -> dict[Any, Any]:
        """The nodes of signals, and a sample of them, before a call that may work in place."""
        in_place = name.endswith("_") and (not name.startswith("__") or name.startswith("__i"))
        in_place |= plain in ACTIVATIONS
        nodes: dict[Any, Any] = {
            id(t): self.source(t) if in_place else self.found(t) for t in given
        }
        if plain in ACTIVATIONS:
            nodes["sample"] = _sample(given[0], copy=True)
        nodes["given"] = given
        return nodes

    def _note(self, name: str, func: Any, args: Any, kwargs: Any, before: Any, made: Any) -> None:
        rule = rule_for(name, func, args, kwargs, made[0], self.measure)
        if rule is None or (isinstance(rule[0], Sum) and self._entangled(rule[1], before)):
            for t in before["given"]:
                self._restart(t, before[id(t)])
            origin = functools.reduce(or_, map(self._origin, before["given"]), 0)
            for t in made:
                self._known.pop(id(t), None)
                self._origins[id(t)] = weakref.ref(t), origin
            if rule is not None:
                self._add_inner_row("add", made[0])
            return
        layer, inputs = rule
        nodes = [before.get(id(t)) or self.source(t) for t in inputs]
        for t in made:
            self._keep(t, Node(t.numel(), layer, nodes))
        if isinstance(layer, Sum):
            for t, node in zip(inputs, nodes, strict=True):
                if t.numel() < made[0].numel():  # one for several entries
                    self._restart(t, node)
        if "sample" in before and isinstance(layer, Activation):
            node = self.found(made[0])
            assert node is not None
            self._flat[node] = _flat_share(layer, before["sample"])
        if isinstance(layer, Sum | Activation):
            self._add_inner_row("add" if isinstance(layer, Sum) else name, made[0])

    def _entangled(self, summands: list[Tensor], before: Any) -> bool:
        """Whether summands are functions of the same signal, without weights in between."""
        one, other = (before.get(id(t)) or self.source(t) for t in summands)
        return bool(one.near & other.near)

    def found(self, t: Tensor) -> Node | None:
        """The node of a signal, if there is one for what it holds now."""
        entry = self._known.get(id(t))
        known = entry is not None and entry[0]() is t and entry[1] == t._version
        return entry[2] if known and entry is not None else None

    def source(self, t: Tensor) -> Node:
        """The node of a signal; one of which nothing is known is measured."""
        node = self.found(t)
        if node is None:
            node = self._keep(t, Node(t.numel()))
            node.measured = self.measure(t)
        return node

    def _origin(self, t: Tensor) -> int:
        """The signals that one depends on, as bits."""
        node = self.found(t)
        entry = self._origins.get(id(t))
        known = entry is not None and entry[0]() is t
        return node.before if node is not None else entry[1] if entry and known else 0

    def _keep(self, t: Tensor, node: Node) -> Node:
        node.before |= 1 << len(self.nodes) | (self._origin(t) if node.rule is None else 0)
        node.near |= 1 << len(self.nodes)
        self._known[id(t)] = weakref.ref(t), t._version, node
        self.nodes.append(node)
        return node

    def _restart(self, t: Tensor, node: Node | None) -> None:
        if node is not None:
            node.restarts = True
            self.watch_gradient(t, node)

    def watch_gradient(self, t: Tensor, node: Node) -> None:
        """Measure the gradient in a signal, when it comes."""
        if not node.watched and t.requires_grad:
            node.watched = True

            def came(g: Tensor | None) -> None:
                if g is not None:  # as it is where an operation has no gradient to give
                    node.gradient = self.measure(g)

            t.register_hook(came)

    def ended(self, t: Tensor) -> None:
        """The signal is what the model gives."""
        self._restart(t, self.source(t))

    def _add_inner_row(self, kind: str, t: Tensor) -> None:
        """A row for an operation in the code of a module that calls others."""
        if self._frames and self._frames[-1].container:
            self._add_row(self._frames[-1].name, kind, t)

    def _forget_unknown(self, t: Tensor, start: int) -> None:
        """Forget what is known of a signal if something unknown happened since a node."""
        node = self.found(t)
        inside = set(self.nodes[start:])
        ahead = [] if node is None else [node]
        while ahead:
            each = ahead.pop()
            if each in inside:
                if each.rule is None:
                    self._restart(t, node)
                    self._origins[id(t)] = weakref.ref(t), self._origin(t)
                    del self._known[id(t)]
                    self.source(t).stands_for = node
                    return
                ahead += each.inputs

    def _add_row(self, name: str, kind: str, t: Tensor, start: int = 0) -> None:
        known = self.found(t)
        fresh = known is None or known.stands_for is not None
        node = self.source(t)
        moments = self.measure(t) if node.measured is None else node.measured
        row = SeenRow(name, kind, t, node, moments, fresh=fresh)
        self.watch_gradient(t, node)
        if node in self._flat and node in self.nodes[start:]:
            row.flat = self._flat[node]
            if t.shape[:1] == (self.n,) and self.n > 1:
                row.low, row.high = t.detach().amin(0), t.detach().amax(0)
        self.rows.append(row)

    def entered(
        self, forward: Callable[..., Any], entry: tuple[str, nn.Module], _: Any
    ) -> Callable[..., Any]:
        """The code of a submodule, watched."""
        path, module = entry
        if ".parametrizations." in f".{path}.":  # what computes weights
            return forward

        @functools.wraps(forward)
        def run(*args: Any, **kwargs: Any) -> Any:
            if self._frames:
                self._frames[-1].inner = True
            alone = self._paused_while(self._arrives, module, forward, args, kwargs)
            frame = Frame(path, module, len(self.rows), len(self.nodes))
            self._frames.append(frame)
            self._paused += alone
            try:
                out = forward(*args, **kwargs)
            finally:
                self._paused -= alone
                self._frames.pop()
            if frame.inner or self._paused:
                return out
            return self._paused_while(self._leaves, frame, forward if alone else None, args, out)

        return run

    def _paused_while(self, function: Callable[..., Any], *args: Any) -> Any:
        self._paused += 1
        try:
            return function(*args)
        finally:
            self._paused -= 1

    def _arrives(self, module: nn.Module, forward: Any, args: Any, kwargs: Any) -> bool:
        """Measure signals of which nothing is known; whether the module treats entries alone."""
        if self._paused > 1:
            return False
        for _, t in named_tensors((args, kwargs)):
            if _signal(t):
                self.source(t)
        one = len(args) == 1 and not kwargs and isinstance(args[0], Tensor) and _signal(args[0])
        return one and self._recognised.treats_alone(module, forward, args[0])

    def _leaves(self, frame: Frame, alone: Any, args: Any, out: Any) -> Any:
        """A row for a call that made no other."""
        del self.rows[frame.rows :]
        out = map_tensors(out, self._rooted)
        if alone is not None and out is not args[0]:
            layer = Activation(alone)
            node = self._keep(out, Node(out.numel(), layer, [self.source(args[0])]))
            self._flat[node] = _flat_share(layer, _sample(args[0]))
        t = next((t for _, t in named_tensors(out) if _dense(t)), None)
        if t is not None:
            self._forget_unknown(t, frame.nodes)
            self._add_row(frame.name, type(frame.module).__name__, t, frame.nodes)
        return out

    def _rooted(self, t: Tensor) -> Tensor:
        """A signal that depends on no other, as one more to begin with."""
        if t.requires_grad or not _dense(t) or not torch.is_grad_enabled():
            return t
        root = t.detach().requires_grad_()
        self.roots.append(root)
        return root.clone()


def _dense(t: Tensor) -> bool:
    return t.is_floating_point() and t.layout == torch.strided and t.numel() > 0


def _signal(t: Tensor) -> bool:
    return t.requires_grad and _dense(t)


def _sample(t: Tensor, *, copy: bool = False) -> Tensor:
    flat = t.detach().reshape(-1)
    some = flat[:: max(1, -(-flat.numel() // _SAMPLE))]
    return some.clone() if copy else some


def _flat_share(layer: Activation, sample: Tensor) -> Tensor:
    return (slope_of(layer.function, sample)[1].abs() < _FLAT).double().mean()
