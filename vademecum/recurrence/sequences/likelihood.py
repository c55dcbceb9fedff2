r"""The log-probability of a sequence: the sum of those of its steps.

$$\log p(y^{1:T} \mid x) = \sum_{t=1}^T \log p(y^t \mid x, y^{1:t-1}) .$$

Never the logarithm of a product: that underflows after a hundred steps. Outputs after an end symbol
do not count. Checked by `recurrence.rnn_conditionals`, `recurrence.autoregressive_factorisation`.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from vademecum.recurrence.sequences._output_model import (
    Lengths,
    OutputModel,
    insist_on_model,
)
from vademecum.recurrence.sequences.runs import SequenceRun

__all__ = ["sequence_log_prob"]


def sequence_log_prob(
    model: OutputModel, x: Tensor, y: Int[Tensor, " n T"], *, lengths: Lengths = None
) -> Float[Tensor, " n"]:
    """The log-probability of each sequence of outputs, given its input.

    Its negative is the loss of maximum likelihood, by teacher forcing: the model is taken in the
    mode it is in, and gradients reach its parameters.

    Args:
        model: A `FeedbackRNN`, `Seq2Seq` or `CaptionModel`.
        x: The inputs.
        y: The outputs; what comes after an end symbol does not count, and may be anything.
        lengths: How long each input is, where some are padded.

    Example:
        >>> from vademecum.recurrence import FeedbackRNN
        >>> model = FeedbackRNN(0, 4, 3, end=0)
        >>> _ = [nn.init.zeros_(p) for p in model.parameters()]  # all equally probable
        >>> y = torch.tensor([[1, 2, 1, 1], [2, 0, -1, -1]])
        >>> (sequence_log_prob(model, torch.zeros(2, 4, 0), y).exp() * 81).round().tolist()
        [1.0, 9.0]
    """
    insist_on_model(model)
    return log_prob_of(model.run(x, y, lengths=lengths), model.counted(y, lengths))


def log_prob_of(run: SequenceRun, counted: Tensor) -> Tensor:
    """The log-probabilities of the outputs of a run that count, in single precision at least."""
    logits = run.logits.to(torch.promote_types(run.logits.dtype, torch.float32))
    losses = cross_entropy(logits.flatten(0, 1), run.outputs.flatten(), reduction="none")
    return -torch.where(counted, losses.view_as(run.outputs), 0).sum(1)
