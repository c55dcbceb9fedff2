r"""The Jacobian of a network in its parameters, of examples that a `DataLoader` brings.

Its rows are those of the batches $B$ one after the other, so that

$$J v = (J_B v)_B, \qquad J^T u = \sum_B J_B^T u_B .$$

Each product is a pass over the batches, with a graph for one of them at a time; the outputs are
kept. A loader that brings other examples, or another order, at the next pass is refused.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.foundations.operators import LinearOperator
from vademecum.gradients._one_jacobian import Jacobian
from vademecum.gradients.network_function import functional
from vademecum.models import batches, count_examples, fingerprint

__all__ = ["StreamedJacobian", "each_batch", "insist_on_theta"]


def each_batch(x: Any, device: torch.device, *, progress: bool = False) -> Iterator[Any]:
    """The inputs of each batch of a loader; there must be some."""
    count = 0
    with closing(batches(x, device=device, progress=progress)) as each:
        for inputs, _ in each:
            count += 1
            yield inputs
    if not count:
        raise ValueError("x must hold batches, got an empty DataLoader")


def insist_on_theta(wrt: str) -> None:
    """Refuse derivatives in the inputs of a loader."""
    if wrt != "theta":
        raise ValueError(
            f"wrt must be 'theta' where x is a DataLoader, got {wrt!r}: derivatives in inputs are"
            " as large as the data, so go from batch to batch"
        )


class StreamedJacobian(LinearOperator):
    """The Jacobian of a network over the batches of a loader: see `jacobian`.

    Attributes:
        output: What the network gives, whose entries in their order are the rows.
        variable: The parameters, whose entries in their order are the columns.

    Example:
        >>> loader = DataLoader(torch.eye(3), batch_size=2)
        >>> J = StreamedJacobian(nn.Linear(3, 1, bias=False), loader)
        >>> J @ torch.tensor([1.0, 2.0, 3.0])
        tensor([1., 2., 3.])
    """

    def __init__(
        self, model: nn.Module, x: DataLoader[Any], *, wrt: str = "theta", progress: bool = False,
        **knobs: Any,
    ):  # fmt: skip
        insist_on_theta(wrt)
        self._model, self._x, self._knobs, self._progress = model, x, knobs, progress
        options = {name: knobs[name] for name in ("frozen", "output") if name in knobs}
        self.variable = functional(model, **options).theta
        self._marks: list[int] | None = None
        self._rows: list[int] = []
        found = []
        for J, _ in self._each():
            found.append(J.output)
            self._rows.append(J.shape[0])
        self.output = torch.cat(found)
        shape = (self.output.numel(), self.variable.numel())
        at = self.variable
        super().__init__(shape, self._push, self._pull, dtype=at.dtype, device=at.device)

    def _each(self) -> Iterator[tuple[Jacobian, int]]:
        """The Jacobian of each batch, and its number of examples."""
        marks, device = [], self.variable.device
        for inputs in each_batch(self._x, device, progress=self._progress):
            n = count_examples(inputs)
            rows = torch.arange(n, device=device)
            marks.append(int(fingerprint(inputs, rows)))  # with their numbers: order counts
            known = self._marks
            if known is not None and known[: len(marks)] != marks:
                raise _others()
            yield Jacobian(self._model, inputs, **self._knobs), n
        if self._marks is not None and len(marks) != len(self._marks):
            raise _others()
        self._marks = marks

    def _push(self, x: Tensor) -> Tensor:
        return torch.cat([J @ x for J, _ in self._each()])

    def _pull(self, y: Tensor) -> Tensor:
        total, parts = None, y.split(self._rows)
        for i, (J, _) in enumerate(self._each()):
            found = J.T @ parts[i]
            total = found if total is None else total + found
        assert total is not None
        return total

    def dense(self) -> Float[Tensor, " m d"]:
        """The matrix."""
        return torch.cat([J.dense() for J, _ in self._each()])

    def blocks(self) -> Float[Tensor, " n k d"]:
        """The Jacobian of each example's outputs.

        Raises:
            ValueError: If examples influence each other, or one is too large for `memory`.
        """
        return torch.cat([J.blocks() for J, _ in self._each()])

    def chunks(self) -> Iterator[tuple[slice, Float[Tensor, " portion k d"]]]:
        """The blocks of a few examples at a time, as many as `memory` allows for, and whose."""
        start = 0
        for J, n in self._each():
            for here, blocks in J.chunks():
                yield slice(start + here.start, start + here.stop), blocks
            start += n


def _others() -> ValueError:
    return ValueError(
        "x must bring the same examples in the same order at each pass, and this DataLoader brings"
        " others: it drops or changes examples by random numbers that are not torch's"
    )
