"""What a pass over a graph costs: counts of operations, and the peak of what is stored.

Every tensor counts with its number of entries, those too that torch keeps as views of others.
Inputs, parameters, constants, and derivatives at inputs and parameters are the caller's and do not
count.
"""

from typing import Any, NamedTuple

from torch import Tensor

__all__ = ["Cost", "Store"]


class Cost(NamedTuple):
    """What a pass took: counts, and the peak of what was live beside the leaves.

    Example:
        >>> from vademecum.gradients.tape.engine import Tape
        >>> Tape(torch.sin, torch.tensor(0.0)).push().cost
        Cost(operations=1, edges=1, work=2, live=2, numbers=2)
    """

    operations: int  # evaluations of operations
    edges: int  # derivatives along edges
    work: int  # scalar operations, of the evaluations and the derivatives
    live: int  # the most intermediate tensors (values, tangents, adjoints) at once
    numbers: int  # the most entries of such tensors at once


class Store:
    """Intermediate tensors, and how many there have been at once."""

    def __init__(self) -> None:
        self.tensors: dict[Any, Tensor] = {}
        self.numbers = self.most_live = self.most_numbers = 0

    def put(self, key: Any, tensor: Tensor) -> None:
        """Keep a tensor, in place of the one that had its key."""
        self.drop(key)
        self.tensors[key] = tensor
        self.numbers += tensor.numel()
        self.most_live = max(self.most_live, len(self.tensors))
        self.most_numbers = max(self.most_numbers, self.numbers)

    def drop(self, *keys: Any) -> None:
        """Forget tensors, where there are any."""
        for key in keys:
            if key in self.tensors:
                self.numbers -= self.tensors.pop(key).numel()
