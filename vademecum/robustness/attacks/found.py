"""What an attack found, one entry for each example."""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from vademecum.results import one_line

__all__ = ["Attack"]


class Attack(NamedTuple):
    """What an attack found, one entry for each example.

    Example:
        >>> import torch
        >>> from vademecum.robustness import fgsm
        >>> x, y = torch.tensor([[0.6, 0.5], [0.5, 0.7]]), torch.tensor([0, 0])
        >>> fgsm(torch.nn.Identity(), x, y, norm="linf", radius=0.25).fooled
        tensor([True, True])
    """

    x: Shaped[Tensor, " n ..."]
    """The changed inputs: adversarial where `fooled`, elsewhere the strongest that was found. Those
    that the model had wrong are unchanged."""
    fooled: Bool[Tensor, " n"]
    """Whether the model, asked once more about `x`, gives another class than the label (with a
    target: this class), by a gap between logits that rounding cannot make."""
    distance: Float[Tensor, " n"]
    """How far `x` lies from the inputs in the norm of the attack, in double precision."""
    steps: Int64[Tensor, " n"]
    """How many steps were made."""
    queries: Int64[Tensor, " n"]
    """How often the model was asked about the example; a gradient is one question."""

    __repr__ = one_line
