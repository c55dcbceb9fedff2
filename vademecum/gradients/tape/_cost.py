r"""What passes over a graph give and cost: counts of operations, and the peak of what is stored.

Every tensor counts with its number of entries, those too that torch keeps as views of others.
Inputs, parameters, constants, and derivatives at inputs and parameters are the caller's and do not
count.
"""

from typing import Any, NamedTuple

from torch import Tensor

from vademecum.results import one_line

__all__ = ["Cost", "Pull", "Push", "Store", "TapeJacobian"]


class Cost(NamedTuple):
    """What a pass took: counts, and the peak of what was live beside the leaves.

    Example:
        >>> from vademecum.gradients.tape import Tape
        >>> Tape(torch.sin, torch.tensor(0.0)).push().cost
        Cost(operations=1, edges=1, work=2, live=2, numbers=2)
    """

    operations: int
    """Evaluations of operations."""
    edges: int
    """Derivatives along edges."""
    work: int
    """Scalar operations, of the evaluations and the derivatives."""
    live: int
    """The most intermediate tensors (values, tangents, adjoints) at once."""
    numbers: int
    """The most entries of such tensors at once."""

    __repr__ = one_line


class Push(NamedTuple):
    r"""A forward pass: the output, its tangent $J \dot x$, and the cost.

    Example:
        >>> from vademecum.gradients.tape import Tape
        >>> Tape(torch.square, torch.tensor(3.0)).push()[:2]
        (tensor(9.), tensor(6.))
    """

    output: Tensor
    """What the program gives."""
    tangent: Tensor
    r"""How it moves, $J \dot x$."""
    cost: Cost
    """What the pass took."""

    __repr__ = one_line


class Pull(NamedTuple):
    r"""A reverse pass: the output, $J^T \bar y$ for each leaf (inputs, parameters), the cost.

    Example:
        >>> from vademecum.gradients.tape import Tape
        >>> Tape(torch.square, torch.tensor(3.0)).pull()[:2]
        (tensor(9.), (tensor(6.),))
    """

    output: Tensor
    """What the program gives."""
    gradients: tuple[Tensor, ...]
    r"""The part of $J^T \bar y$ of each leaf."""
    cost: Cost
    """What the pass took."""

    __repr__ = one_line


class TapeJacobian(NamedTuple):
    """A Jacobian in numerator layout, rows of outputs by columns of inputs, and its cost.

    Example:
        >>> from vademecum.gradients.tape import Tape
        >>> Tape(torch.square, torch.tensor([3.0, 5.0])).jacobian().matrix
        tensor([[ 6.,  0.], [ 0., 10.]])
    """

    matrix: Tensor
    """The matrix."""
    cost: Cost
    """What all passes took, and the most that one held."""

    __repr__ = one_line


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
