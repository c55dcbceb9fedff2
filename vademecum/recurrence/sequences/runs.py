"""What a model of sequences gives: all steps of a run, or one step after the other."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

from vademecum.results import one_line

__all__ = ["Decoding", "SequenceRun"]


class SequenceRun(NamedTuple):
    """All steps of a model whose outputs are fed back to it.

    Example:
        >>> from vademecum.recurrence import FeedbackRNN
        >>> model = FeedbackRNN(2, 4, 3)
        >>> run = model.run(torch.zeros(5, 7, 2))
        >>> run.outputs.shape, bool(run.given.any())
        (torch.Size([5, 7]), False)
    """

    logits: Float[Tensor, " n T k"]
    """Those of the output of each step, from the outputs before it."""
    outputs: Int[Tensor, " n T"]
    """The output of each step that was fed back: given, or drawn by the model."""
    states: Float[Tensor, " n T m"]
    """The state at each step, of the uppermost layer."""
    given: Bool[Tensor, " n T"]
    """Whether an output was given: everywhere with teacher forcing, nowhere in free running."""

    __repr__ = one_line


class Decoding(NamedTuple):
    """A model that waits to be asked symbol by symbol, as `beam_search` does.

    Example:
        >>> from vademecum.recurrence import FeedbackRNN, beam_search
        >>> step, start, state = FeedbackRNN(2, 4, 3).decoding(torch.zeros(5, 7, 2))
        >>> beam_search(step, start, state=state, beam=4, max_length=7).tokens.shape
        torch.Size([5, 4, 7])
    """

    step: Callable[[Tensor, Any], tuple[Tensor, Any]]
    """From the last symbol of each string, and the state, to log-probabilities of the next one and
    the state after it."""
    start: Int[Tensor, " n"]
    """The symbol before the first."""
    state: Any
    """The state before the first step; its tensors have a row for each string."""

    __repr__ = one_line
