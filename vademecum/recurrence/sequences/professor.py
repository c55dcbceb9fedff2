r"""Professor forcing: a judge that cannot tell free running from teacher forcing.

Let $s$ be the sequence of states when the truth is fed back, and $\tilde s$ that of free running. A
discriminator $D$, the probability that states come from teacher forcing, is trained with

$$C_d = -\log D(s) - \log(1 - D(\tilde s)) ,$$

and the model with $-\log p(y \mid x) + C_g$, $C_g = -\log D(\tilde s)$, to which $-\log(1 - D(s))$
may be added. For fixed laws $P$ of $s$ and $Q$ of $\tilde s$ the best $D = P / (P + Q)$ has the
expected loss $2 \ln 2 - 2\, \mathrm{JSD}(P, Q)$, which is largest where the two modes agree. No
coin is tossed: that is scheduled sampling.

Gradients of $C_d$ reach the discriminator alone, those of $C_g$ the model alone, through states and
not through draws; so all three losses can be added. Checked by `recurrence.professor_forcing`.

References:
    Lamb et al., Professor forcing: a new algorithm for training recurrent networks, NeurIPS, 2016.
"""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.nn.utils.rnn import pack_padded_sequence

from vademecum.arguments import whole
from vademecum.models import constant, mlp
from vademecum.recurrence.sequences._output_model import (
    Lengths,
    OutputModel,
    insist_on_model,
)
from vademecum.recurrence.sequences.likelihood import log_prob_of
from vademecum.results import one_line

__all__ = ["ProfessorForcing", "ProfessorLosses"]


class ProfessorLosses(NamedTuple):
    """The losses of professor forcing, of each example.

    Example:
        >>> from vademecum.recurrence import FeedbackRNN, ProfessorForcing
        >>> professor = ProfessorForcing(FeedbackRNN(0, 4, 3))
        >>> losses = professor(torch.zeros(5, 6, 0), torch.zeros(5, 6, dtype=torch.long))
        >>> sum(loss.mean() for loss in losses[:3]).backward()
    """

    likelihood: Float[Tensor, " n"]
    """The negative log-likelihood of the outputs."""
    generator: Float[Tensor, " n"]
    """How far free running is from being taken for teacher forcing; for the model."""
    discriminator: Float[Tensor, " n"]
    """The cross-entropy of the discriminator, summed over both modes; for the discriminator."""
    on_forced: Float[Tensor, " n"]
    """The discriminator's logit for teacher forcing, without gradient; right above 0."""
    on_free: Float[Tensor, " n"]
    """The discriminator's logit for free running, without gradient; right below 0."""

    __repr__ = one_line


class ProfessorForcing(nn.Module):
    """A model of sequences beside the discriminator of its states.

    Args:
        model: A `FeedbackRNN`, `Seq2Seq` or `CaptionModel`.
        discriminator: What maps states (n, T, m) and the number of steps that count, (n,), to
            logits (n,); by default a bidirectional GRU with a small network on its last states.
        width: The width of the default discriminator.
        both: Whether states of teacher forcing are also to be taken for free running.

    Example:
        >>> from vademecum.recurrence import FeedbackRNN
        >>> professor = ProfessorForcing(FeedbackRNN(2, 4, 3), width=8)
        >>> x, y = torch.zeros(5, 6, 2), torch.zeros(5, 6, dtype=torch.long)
        >>> professor(x, y, generator=torch.Generator().manual_seed(0)).generator.shape
        torch.Size([5])
    """

    def __init__(
        self,
        model: OutputModel,
        *,
        discriminator: nn.Module | None = None,
        width: int = 64,
        both: bool = False,
    ):
        super().__init__()
        insist_on_model(model)
        self.model, self.both = model, both
        if discriminator is None:
            discriminator = _Judge(model.decoder.rnn.hidden_size, width)
        self.discriminator = discriminator

    def forward(
        self,
        x: Tensor,
        y: Int[Tensor, " n T"],
        lengths: Lengths = None,
        *,
        generator: torch.Generator | None = None,
    ) -> ProfessorLosses:
        """Run the model in both modes, and let the discriminator judge.

        Args:
            x: The inputs.
            y: The true outputs.
            lengths: How long each input is, where some are padded.
            generator: Where random numbers come from; torch's global generator by default.
        """
        model = self.model
        forced = model.run(x, y, lengths=lengths)
        free = model.run(x, lengths=lengths, max_length=y.shape[1], generator=generator)
        counted = [model.counted(outputs, lengths) for outputs in (y, free.outputs)]
        s, t = ((run.states, c.sum(1)) for run, c in zip((forced, free), counted, strict=True))
        on_forced, on_free = (self._judge(states.detach(), n) for states, n in (s, t))
        with constant(self.discriminator):
            loss = softplus(-self._judge(*t))
            if self.both:
                loss = loss + softplus(self._judge(*s))
        likelihood = -log_prob_of(forced, counted[0])
        judged = softplus(-on_forced) + softplus(on_free)
        return ProfessorLosses(likelihood, loss, judged, on_forced.detach(), on_free.detach())

    def _judge(self, states: Tensor, lengths: Tensor) -> Tensor:
        found = self.discriminator(states, lengths)
        if found.shape != lengths.shape:
            shape = tuple(lengths.shape)
            raise ValueError(f"discriminator must give logits {shape}, got {tuple(found.shape)}")
        return found


class _Judge(nn.Module):
    """A bidirectional GRU over states, and a network of two layers on its last states."""

    def __init__(self, inputs: int, width: int):
        super().__init__()
        width = whole("width", width, low=1)
        self.rnn = nn.GRU(inputs, width, batch_first=True, bidirectional=True)
        self.read = mlp((2 * width, width, 1), partial(nn.LeakyReLU, 0.2))

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """The logits."""
        packed = pack_padded_sequence(states, lengths.cpu(), batch_first=True, enforce_sorted=False)
        last = self.rnn(packed)[1]
        return self.read(torch.cat((last[0], last[1]), 1))[:, 0]
