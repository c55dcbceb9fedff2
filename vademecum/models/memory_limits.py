r"""How many examples at a time keep to a memory limit, where graphs are made for them.

A graph for $n$ examples keeps about $a + b n$ bytes, where $b$ is found from the graphs of one
example and of three, and products with it take a multiple of that in passing. So the limit is kept
as far as an estimate goes.

Portions may be added up only if examples do not influence each other and the loss is a mean over
them, or one of torch's sums: whether three examples one by one have the loss that they have at once
is asked first, if that is a number.
"""

import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import whole
from vademecum.models.inputs import Entangled, count_examples, map_tensors, named_tensors
from vademecum.models.passes import Passes
from vademecum.models.second_derivatives import weighing

__all__ = ["Portions"]


class Portions:
    """How many examples of a batch to take at a time.

    Args:
        memory: The bytes to use at most.
        fixed: The bytes that are needed for any number of examples.
        passing: How many times what the graph keeps is needed at the peak of a product.
        graph: What makes a graph for inputs and targets, within `twice_differentiable`.
        value: A mean over the examples, whose portions must add up to it.
        by_examples: Whether the mean counts examples, whatever the loss in it.
    """

    def __init__(
        self,
        memory: int,
        *,
        fixed: int,
        passing: float,
        graph: Callable[[Any, Any], Any],
        value: Callable[[Any, Any], Tensor],
        by_examples: bool = False,
    ):
        self._memory, self._fixed = whole("memory", memory, low=1), fixed
        self._passing = passing
        self._graph, self._value, self._by_examples = graph, value, by_examples
        self._known: dict[Any, int] = {}

    def __call__(self, x: Any, y: Any) -> int | None:
        """The number, or None if there is room for all.

        Raises:
            ValueError: If there is no room for one, or portions do not add up.
        """
        n = count_examples(x, y if isinstance(y, Tensor) else None)
        kind = tuple((t.shape[1:], t.dtype) for _, t in named_tensors(x))
        if kind not in self._known:
            rows = sorted({0, n // 2, n - 1})
            some = map_tensors((x, y), itemgetter(rows))
            self._insist_on_sums(*some)
            self._known[kind] = self._bytes_each(len(rows), *some)
        each = self._known[kind]
        if self._memory < self._fixed + each:
            raise ValueError(
                f"memory must be >= {self._fixed + each} bytes for one example, got {self._memory}"
            )
        size = (self._memory - self._fixed) // each
        return None if size >= n else size

    def _bytes_each(self, n: int, x: Any, y: Any) -> int:
        kept = []
        for few in {1, n}:
            with weighing() as found:
                made = self._graph(*map_tensors((x, y), itemgetter(slice(few))))
            kept.append(sum(found.values()))
            del made
        each = (max(kept) - min(kept)) / (n - 1) if n > 1 else max(kept)
        return 1 + int(self._passing * each)

    def _insist_on_sums(self, x: Any, y: Any) -> None:
        passes = Passes(x, y, portions=lambda x, y: 1)
        with torch.enable_grad():  # so that the loss may insist on a graph
            one = float(self._value(x, y).detach())
            if not math.isfinite(one):  # such as a mean over terms that are all ignored
                return
            other = float(passes.mean(self._value, by_examples=self._by_examples).detach())
        close = torch.finfo(torch.float32).eps ** 0.5
        if abs(one - other) > close * max(abs(one), abs(other)):
            raise Entangled(
                "memory can be kept to only where examples do not influence each other and the loss"
                f" is a mean over them, but for a few it is {one:.6g} at once and {other:.6g} one"
                " by one"
            )
