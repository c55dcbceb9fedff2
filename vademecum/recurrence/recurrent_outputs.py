"""What a recurrent module gives: outputs, and the state to go on from."""

from typing import Any, NamedTuple

from jaxtyping import Inexact
from torch import Tensor

from vademecum.results import one_line

__all__ = ["RecurrentOutput"]


class RecurrentOutput(NamedTuple):
    """The outputs of a sequence or of a step, and the last state.

    Example:
        >>> y, state = RecurrentOutput(torch.zeros(5, 100, 3), torch.zeros(2, 5, 8))
        >>> y.shape
        torch.Size([5, 100, 3])
    """

    output: Inexact[Tensor, " n *T k"]
    """The outputs, of all steps or of one."""
    state: Any
    """The last state, to go on from: a tensor, or several where a cell has several."""

    __repr__ = one_line
