r"""Rescaling the weights of a copy while it runs, so that each layer gives a signal of some size.

A layer without bias is homogeneous in its weights $W$: with $s = \sqrt{t / q}$ the second moment of
what $s W$ gives is $t$ where that of $W$ was $q$. Layers are rescaled in the order of their calls,
each on the signal that those before it give by then, so that one pass does for all. Only weights
that one layer uses first and an earlier one later (embeddings that return as the last layer) ask
for another.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.models import (
    call_arguments,
    evaluation,
    following,
    map_tensors,
    tensor_places,
)
from vademecum.regularization.signal._layer_rules import rule_for
from vademecum.regularization.signal._maps import Estimate
from vademecum.regularization.signal._measured_moments import Measured
from vademecum.regularization.signal._nodes import Node
from vademecum.regularization.signal._passes import begun, count_rows
from vademecum.regularization.signal._predictions import measured_estimate
from vademecum.regularization.signal._watching import Watch

__all__ = ["Rescaler", "factors_of", "sweep"]


def factors_of(name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The factors and the summands among the arguments of a call, None where there are none."""

    def at(place: int, key: str) -> Any:
        return args[place] if len(args) > place else kwargs.get(key)

    if name == "linear" or name.startswith("conv"):
        return at(1, "weight"), at(2, "bias")
    if name == "addmm":
        return at(2, "mat2"), at(0, "input")
    if name in ("matmul", "mm", "mul", "rmul"):
        return at(1, "other"), None
    if name == "multi_head_attention_forward":
        return at(11, "out_proj_weight"), at(12, "out_proj_bias")
    if name in ("batch_norm", "instance_norm"):
        return at(3, "weight"), at(4, "bias")
    if name in ("layer_norm", "group_norm"):
        return at(2, "weight"), at(3, "bias")
    if name == "rms_norm":
        return at(2, "weight"), None
    return None, None


_WEIGHTS = {"linear", "addmm", "matmul", "mm", "multi_head_attention_forward"}


class Rescaler(Watch):
    """A watch that rescales the weights of layers as they are called, each once.

    Args:
        n: How many examples there are.
        places: The names of parameters by their identity.
        measured: Whether signals are measured, not predicted.
        branches: For parameters that end residual branches, the number of the node with which the
            stream begins; without them nothing is changed.
        depth: How many residual sums there are.
    """

    def __init__(
        self,
        n: int,
        places: dict[int, str],
        *,
        measured: bool,
        branches: dict[str, int] | None = None,
        depth: int = 1,
    ):
        super().__init__(n, [])
        self._places, self._measured, self._depth = places, measured, depth
        self._branches = branches
        self._starts = set(range(0)) if branches is None else set(branches.values())
        self._done = dict[str, float]()
        self._sizes = dict[int, float]()
        self._estimates = dict[Node, Estimate | None]()
        self.scaled = dict[int, str]()
        self.targets = dict[str, float]()
        self.unknown = set[str]()

    @property
    def factors(self) -> dict[str, float]:
        """What each parameter was multiplied by."""
        return self._done

    def _parameter(self, t: Any) -> tuple[Tensor, str] | None:
        if not isinstance(t, Tensor):
            return None
        base = t._base if t._base is not None and t._base.numel() == t.numel() else t
        name = self._places.get(id(base))
        return None if name is None else (base, name)

    def _concerns(self, name: str, args: Any, kwargs: Any) -> tuple[Tensor, str] | None:
        """The parameter that a call is to rescale, if it is its first."""
        weight, _ = factors_of(name, args, kwargs)
        entry = self._parameter(weight)
        if entry is None or entry[1] in self._done or self._branches is None:
            return None
        layer = name in _WEIGHTS or name.startswith("conv")
        return entry if layer or entry[1] in self._branches else None

    def prepare(self, name: str, args: Any, kwargs: Any) -> None:
        """Biases are set to zero."""
        if self._concerns(name, args, kwargs) is not None:
            bias = self._parameter(factors_of(name, args, kwargs)[1])
            if bias is not None:
                bias[0].zero_()
                self._done[bias[1]] = 0.0

    def changed(self, name: str, args: Any, kwargs: Any, out: Any) -> Any:
        """Weights are multiplied, and so is what they gave."""
        entry = self._concerns(name, args, kwargs)
        if entry is not None:
            weight, place = entry
            target = 1.0
            if self._branches is not None and place in self._branches:
                target = (
                    self._sizes.get(self._branches[place], 1.0) / self._depth
                )  # else a shortcut's own
            first = out[0] if isinstance(out, tuple) else out
            q = self._size(place, name, args, kwargs, first)
            s = math.sqrt(target / q) if 0 < q < math.inf else 1.0
            self._done[place] = s
            self.targets[place] = target if q > 0 else 0.0
            weight.mul_(s)
            out = (first * s, *out[1:]) if isinstance(out, tuple) else first * s
        return out

    def _note(self, name: str, func: Any, args: Any, kwargs: Any, before: Any, made: Any) -> None:
        super()._note(name, func, args, kwargs, before, made)
        entry = self._parameter(factors_of(name, args, kwargs)[0])
        if entry is not None:
            node = self.source(made[0])
            self.scaled[self.nodes.index(node)] = entry[1]

    def _size(self, place: str, name: str, args: Any, kwargs: Any, out: Tensor) -> float:
        """The second moment of what a layer gives: measured, or predicted where that is known."""
        if not self._measured:
            rule = rule_for(name, None, args, kwargs, out, self.measure)
            if rule is not None:
                layer, inputs = rule
                given = [self._estimate(self.source(t)) for t in inputs]
                known = [u for u in given if u is not None]
                found = layer.forward(known) if len(known) == len(given) else None
                if found is not None:
                    return found.q
        self.unknown.add(place)
        return _second_moment(self.measure(out))

    def _estimate(self, node: Node) -> Estimate | None:
        if node not in self._estimates:
            if node.rule is None:
                assert node.measured is not None
                self._estimates[node] = measured_estimate(node.measured.tolist())
            else:
                given = [self._estimate(each) for each in node.inputs]
                known = [u for u in given if u is not None]
                whole = len(known) == len(given)
                self._estimates[node] = node.rule.forward(known) if whole else None
        return self._estimates[node]

    def _keep(self, t: Tensor, node: Node) -> Node:
        number = len(self.nodes)
        node = super()._keep(t, node)
        if number in self._starts:
            guess = None if self._measured or node.rule is None else self._estimate(node)
            self._sizes[number] = _second_moment(self.measure(t)) if guess is None else guess.q
        return node


def _second_moment(found: Measured) -> float:
    sums = found.tolist()
    return sums[1] / sums[0]


def sweep(model: nn.Module, x: Any, **options: Any) -> Rescaler:
    """Run a copy once, rescaling its weights as it goes.

    Args:
        model: The copy, whose parameters must not be differentiated in.
        x: Its input.
        options: What a `Rescaler` takes.
    """
    places: dict[int, str] = {}
    for name, p in tensor_places(model, "parameters"):
        places.setdefault(id(p), name)
    watch = Rescaler(count_rows(x), places, **options)
    args, kwargs = call_arguments(map_tensors(x, lambda t: begun(t, watch)))
    with (
        evaluation(model, fused=True),
        torch.enable_grad(),
        following(model, [], watch.entered),
        watch,
    ):
        model(*args, **kwargs)
    return watch
