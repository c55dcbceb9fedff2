"""Signals, rows in the making, and modules whose code runs, while a model is watched."""

import functools
from collections.abc import Sequence
from operator import or_

from torch import Tensor, nn

from vademecum.regularization.signal._maps import LayerMap, Weights
from vademecum.regularization.signal._measured_moments import Measured

__all__ = ["Frame", "Node", "SeenRow"]


class Node:
    """A signal: the map that made it, or what was measured of it.

    Attributes:
        restarts: Whether something unknown uses it, so that its gradient is measured.
        before: The signals that it depends on, itself among them, as bits of a number.
        near: Those of them from which no weights part it.
        stands_for: What it was before it was measured, since too little is known of that.
    """

    def __init__(self, numel: int, rule: LayerMap | None = None, inputs: Sequence["Node"] = ()):
        self.numel, self.rule, self.inputs = numel, rule, list(inputs)
        self.measured: Measured | None = None
        self.gradient: Measured | None = None
        self.restarts = self.watched = False
        self.stands_for: Node | None = None
        self.before = functools.reduce(or_, (each.before for each in self.inputs), 0)
        alone = isinstance(rule, Weights)
        self.near = 0 if alone else functools.reduce(or_, (each.near for each in self.inputs), 0)


class SeenRow:
    """A row in the making."""

    def __init__(
        self, name: str, kind: str, t: Tensor, node: Node, moments: Measured, *, fresh: bool
    ):
        self.name, self.kind, self.shape, self.node = name, kind, tuple(t.shape), node
        self.fresh = fresh  # nothing is known of how it came about
        self.moments = moments
        self.low: Tensor | None = None
        self.high: Tensor | None = None
        self.flat: Tensor | None = None


class Frame:
    """A module whose code runs, and how many rows and nodes there were before."""

    def __init__(self, name: str, module: nn.Module, rows: int, nodes: int):
        self.name, self.module, self.rows, self.nodes = name, module, rows, nodes
        self.inner = False
        self.container = bool(module._modules)
