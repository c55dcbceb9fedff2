r"""What retrieval from an associative memory gives back, and how well it fits a pattern."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from vademecum.arguments import signs
from vademecum.estimators import warn_unconverged
from vademecum.results import one_line

__all__ = ["Retrieval", "overlap", "with_warning"]


class Retrieval(NamedTuple):
    """Where the dynamics led, and how; a state that is done stands still.

    Example:
        >>> from vademecum.connectionism import HopfieldNetwork
        >>> pair = HopfieldNetwork(weights=torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> end = pair.retrieve(torch.tensor([[1, -1], [1, 1]]), mode="synchronous")
        >>> end.period, end.converged
        (tensor([2, 1]), tensor([False,  True]))
    """

    states: Float[Tensor, " *batch n"]
    """The states at the end."""
    n_iter: Int[Tensor, " *batch"]
    """The number of steps that each state made."""
    converged: Bool[Tensor, " *batch"]
    """Whether the state is at rest: a further step would not change it."""
    period: Int[Tensor, " *batch"]
    """1 at rest, the length of the cycle where one was found, and 0 where `max_iter` ended it."""
    trajectory: Float[Tensor, " times *batch n"] | None
    """The states at the start and after each step, if asked for."""
    energies: Float[Tensor, " times *batch"] | None
    """The energies of the trajectory."""

    __repr__ = one_line


def with_warning(end: Retrieval, max_iter: int) -> Retrieval:
    """The result itself, after a warning if `max_iter` ended some of it."""
    if moving := int((end.period == 0).sum()):
        total = end.period.numel()
        warn_unconverged(f"max_iter={max_iter} reached: {moving} of {total} states still move")
    return end


def overlap(
    x: Shaped[Tensor, " *batch n"], y: Shaped[Tensor, " *batch n"]
) -> Float[Tensor, " *batch"]:
    r"""The overlap $m = \frac1n x \cdot y = 1 - 2k/n$ of states at Hamming distance $k$.

    It has the states' dtype if that is float32 or float64, else torch's default one.

    Example:
        >>> overlap(torch.tensor([1, 1, 1, -1]), torch.tensor([1, 1, 1, 1]))
        tensor(0.5000)
    """
    product = signs("x", x) * signs("y", y, width=x.shape[-1])
    exact = product.dtype in (torch.float32, torch.float64)
    return product.mean(-1, dtype=product.dtype if exact else torch.get_default_dtype())
