r"""Scheduled sampling: a coin for each step decides whether the truth is fed back.

$$\tilde y^t = \begin{cases} y^t & \text{with probability } p,\\ \text{a draw from } p(\cdot \mid
x, \tilde y^{1:t-1}) & \text{otherwise,}\end{cases} \qquad
z^{t+1} = F(z^t, x^{t+1}, \tilde y^t) ,$$

while the loss remains that of the truth $y$. $p = 1$ is teacher forcing, $p = 0$ free running; in
training $p$ falls. No gradient passes through a draw. Checked by `recurrence.scheduled_sampling`.

References:
    Bengio, Vinyals, Jaitly and Shazeer, Scheduled sampling for sequence prediction with recurrent
    neural networks, NeurIPS, 2015.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from vademecum.arguments import number
from vademecum.recurrence.sequences._output_model import (
    Lengths,
    OutputModel,
    insist_on_model,
    mixed_run,
)
from vademecum.recurrence.sequences.runs import SequenceRun

__all__ = ["scheduled_sampling"]


def scheduled_sampling(
    model: OutputModel,
    x: Tensor,
    y: Int[Tensor, " n T"],
    p: float,
    *,
    lengths: Lengths = None,
    generator: torch.Generator | None = None,
) -> SequenceRun:
    """Run a model that is fed with the truth or with its own output, by a coin a step and example.

    Unlike in free running, an end symbol of the model's own does not end anything: the truth goes
    on, and so does the loss.

    Args:
        model: A `FeedbackRNN`, `Seq2Seq` or `CaptionModel`.
        x: The inputs.
        y: The true outputs.
        p: How probable it is that the truth is fed back.
        lengths: How long each input is, where some are padded.
        generator: Where random numbers come from; torch's global generator by default. First one
            for each output, as in free running, then one for each coin.

    Example:
        >>> from vademecum.recurrence import FeedbackRNN
        >>> model, x, y = FeedbackRNN(0, 4, 3), torch.zeros(1, 9, 0), torch.randint(3, (1, 9))
        >>> run = scheduled_sampling(model, x, y, 0.5)
        >>> torch.equal(run.outputs[run.given], y[run.given])
        True
        >>> loss = nn.functional.cross_entropy(run.logits.mT, y)
    """
    insist_on_model(model)
    number("p", p, low=0, high=1)
    return mixed_run(model, x, y, p, lengths, generator)
