"""What the layers of a graph network give, seen while it runs.

A layer is a module that is given the graph, and within which no other is. Where none is but the
model itself, since its code multiplies by a matrix, the innermost modules that give a row for each
node stand for layers, and then what the model gives.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.geometry.graphs import holds_graph
from vademecum.models import call_arguments, evaluation, following, named_tensors, unwrapped

__all__ = ["watch_layers"]


class _Frame:
    """A module whose code runs."""

    def __init__(self, path: str, given: bool):
        self.path, self.given, self.inner = path, given, False


class _Watch:
    """Hands the outputs of layers to a visitor, in the order in which they end."""

    def __init__(self, n: int, visit: Callable[[Tensor], Any], layers: Any, graph: bool):
        self.n, self.visit, self.layers, self.graph = n, visit, layers, graph
        self.frames: list[_Frame] = []
        self.seen = list[tuple[str, Any]]()

    def entered(self, forward: Any, entry: tuple[str, nn.Module], stack: Any) -> Any:
        """The code of a module, watched."""
        path = entry[0]

        @functools.wraps(forward)
        def run(*args: Any, **kwargs: Any) -> Any:
            frame = _Frame(path, holds_graph((args, kwargs)))
            self.frames.append(frame)
            try:
                out = forward(*args, **kwargs)
            finally:
                self.frames.pop()
            self._ended(frame, out)
            return out

        return run

    def _ended(self, frame: _Frame, out: Any) -> None:
        rows = next((t for _, t in named_tensors(out) if self._has_rows(t)), None)
        if self.layers is not None:
            counts = frame.path in self.layers
        elif self.graph:
            counts = frame.given and not frame.inner
        else:
            counts = not frame.inner or not frame.path
        if counts and rows is not None:
            self.seen.append((frame.path, self.visit(rows)))
        if self.frames and (frame.inner or (frame.given if self.graph else rows is not None)):
            self.frames[-1].inner = True

    def _has_rows(self, t: Tensor) -> bool:
        return t.layout == torch.strided and t.is_floating_point() and t.shape[:1] == (self.n,)


def watch_layers(
    model: nn.Module,
    x: Any,
    n: int,
    visit: Callable[[Tensor], Any],
    layers: Sequence[str] | None = None,
) -> list[tuple[str, Any]]:
    """Run a model in evaluation mode, without gradients, and look at what each layer gives.

    Args:
        model: The module.
        x: Its input.
        n: How many nodes there are.
        visit: What to do with a layer's output, (n, ...), before anything else can change it.
        layers: The names of the modules to look at; by default those that are given the graph.

    Returns:
        The names of layers and what `visit` made of their outputs, in the order of calls.

    Raises:
        ValueError: If there is no layer that gives a row for each node.
    """
    model = unwrapped(model)
    seen = _run(model, x, _Watch(n, visit, layers, True))
    if layers is None and not any(name for name, _ in seen) and any(True for _ in model.children()):
        seen = _run(model, x, _Watch(n, visit, None, False))
    names = [name for name, _ in seen]
    for name in layers or []:
        if name not in names:
            raise ValueError(f"layers must be names of modules that give {n} rows, got {name!r}")
    if not seen:
        raise ValueError(f"model must have layers that give a row for each of {n} nodes, got none")
    return seen


def _run(model: nn.Module, x: Any, watch: _Watch) -> list[tuple[str, Any]]:
    args, kwargs = call_arguments(x)
    with evaluation(model), torch.no_grad(), following(model, [], watch.entered):
        model(*args, **kwargs)
    return watch.seen
