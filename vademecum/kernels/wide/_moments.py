"""What steps of a wide network take and give: moments of signals, for blocks of pairs of inputs."""

from typing import NamedTuple

from torch import Tensor

from vademecum.kernels.wide._workspace import Workspace

__all__ = ["Moments", "Pairs", "Step", "spread"]


class Moments(NamedTuple):
    """Covariances and tangent kernels of a signal for a block of pairs, (a, b, positions ...)."""

    k: Tensor
    theta: Tensor | None = None  # None is zero
    factor: float = 1.0  # of the tangent kernels
    mean: Tensor | None = None  # of the signal, where pairs are of an input with itself; None: zero
    owned: bool = False  # whether nobody needs it afterwards


class Pairs(NamedTuple):
    """A block of pairs of inputs, or of inputs with themselves (then a is 1)."""

    raw: tuple[dict[int, Tensor], dict[int, Tensor]]
    """What is computed from the inputs before the first layer, for both."""
    known: tuple[dict[int, tuple[Tensor, ...]], dict[int, tuple[Tensor, ...]]] | None
    """Variances and means where steps want them, for both; None for inputs with themselves."""
    found: dict[int, tuple[Tensor, ...]]
    """The same as it is found for inputs with themselves."""
    tangent: bool
    weight: float
    bias: float
    room: Workspace


class Step:
    """A step: from the signals `inputs` to the signal `output`, whose numbers are registers."""

    inputs: tuple[int, ...]
    output: int
    axes: int  # of positions of the first input
    after: int  # of the output
    full: bool  # whether covariances between different positions come in
    full_after: bool  # and whether they are wanted
    curves: bool = False  # whether it is an activation
    weighs: bool = False  # whether it has weights

    def wants_full(self, after: bool) -> bool:
        """Whether covariances between different positions are needed, if they are afterwards."""
        return after

    def run(self, pairs: Pairs, *given: Moments) -> Moments:
        """The moments afterwards."""
        raise NotImplementedError


def spread(q: Tensor, side: int, axes: int, full: bool, alone: bool) -> Tensor:
    """Numbers (n, *positions) of rows (side 0) or columns so that they broadcast to a block."""
    q = q[None] if alone or side else q[:, None]
    if not full or not axes:
        return q
    one = (1,) * axes
    return q.reshape(*q.shape, *one) if side == 0 else q.reshape(*q.shape[:2], *one, *q.shape[2:])
