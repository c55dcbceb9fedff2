r"""Models of $p(y^{1:T} \mid x) = \prod_t p(y^t \mid x, y^{1:t-1})$ whose outputs are fed back.

With *teacher forcing* the outputs given are fed back, all steps are one call, and the sum of the
cross-entropies is the negative log-likelihood; in *free running* the model draws each output and
is fed with it. Random numbers are drawn beforehand, one for each output: with a generator of the
CPU a run is the same on every device, up to rounding.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.randomness import categorical, source
from vademecum.recurrence.sequences._decoder import Decoder, Start
from vademecum.recurrence.sequences._symbols import (
    are_symbols,
    before_end,
    check_symbols,
    lengths_of,
    within,
)
from vademecum.recurrence.sequences.beams import beam_search
from vademecum.recurrence.sequences.runs import Decoding, SequenceRun

__all__ = ["Lengths", "OutputModel", "insist_on_model", "mixed_run"]

Lengths = Tensor | Sequence[int] | None


class OutputModel(nn.Module, ABC):
    """What `FeedbackRNN`, `Seq2Seq` and `CaptionModel` have in common."""

    decoder: Decoder
    k: int
    end: int | None

    @abstractmethod
    def _start(self, x: Tensor, lengths: Lengths) -> Start:
        """What the decoder begins with, from the input."""

    @property
    def _aligned(self) -> bool:
        """Whether there is an output for each step of the input."""
        return False

    def forward(
        self, x: Tensor, y: Int[Tensor, " n T"], lengths: Lengths = None
    ) -> Float[Tensor, " n T k"]:
        """The logits of each output, given the input and the outputs before it: teacher forcing.

        Args:
            x: The input.
            y: The outputs; what comes after an end symbol does not count, and may be anything.
            lengths: How long each input is, where some are padded.
        """
        return self.run(x, y, lengths=lengths).logits

    def run(
        self,
        x: Tensor,
        y: Int[Tensor, " n T"] | None = None,
        *,
        lengths: Lengths = None,
        max_length: int | None = None,
        generator: torch.Generator | None = None,
    ) -> SequenceRun:
        """All steps: with teacher forcing if outputs are given, else free running.

        Args:
            x: The input.
            y: The outputs; what comes after an end symbol does not count, and may be anything.
            lengths: How long each input is, where some are padded.
            max_length: How many outputs to draw; by default one for each step of the input, where
                there is one.
            generator: Where random numbers come from; torch's global generator by default.
        """
        start = self._start(x, lengths)
        if y is None:
            uniform = self._uniform(start, self._horizon(start, max_length), generator)
            return self._roll(start, uniform)
        return self._forced(start, self._given(y, start, lengths))

    def decoding(self, x: Tensor, lengths: Lengths = None) -> Decoding:
        """The model, to be asked symbol by symbol.

        Args:
            x: The input.
            lengths: How long each input is, where some are padded. Beyond its input a sequence has
                one continuation, by the end symbol or by 0, so that padding decides nothing.
        """
        return self._decoding(self._start(x, lengths))

    @torch.no_grad()
    def generate(
        self,
        x: Tensor,
        max_length: int | None = None,
        *,
        lengths: Lengths = None,
        by: Literal["greedy", "sample", "beam"] = "greedy",
        beam: int = 4,
        length_penalty: float = 0.0,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, " n T"]:
        """Outputs of the model's own: the most probable symbol each time, draws, or a search.

        Args:
            x: The input.
            max_length: The most outputs; by default one for each step of the input, where there is
                one.
            lengths: How long each input is, where some are padded.
            by: Whether to take the most probable symbol at each step, to draw, or to search.
            beam: How many strings a search keeps.
            length_penalty: The exponent by which a search favours longer strings.
            temperature: What the logits are divided by before a draw.
            generator: Where random numbers come from; torch's global generator by default.

        Returns:
            The outputs; after an end symbol they go on with it, and beyond the input they belong to
            with the end symbol, or with 0 if there is none.
        """
        choice("by", by, ("greedy", "sample", "beam"))
        number("temperature", temperature, above=0)
        start = self._start(x, lengths)
        T = self._horizon(start, max_length)
        if by == "sample":
            uniform = self._uniform(start, T, generator)
            y = self._roll(start, uniform, temperature=temperature, stop=True).outputs
            inside = start.inside
            return y if inside is None else torch.where(inside[:, : y.shape[1]], y, self.end or 0)
        step, first, state = self._decoding(start)
        search = {"beam": beam if by == "beam" else 1, "length_penalty": length_penalty}
        return beam_search(step, first, state=state, end=self.end, max_length=T, **search).tokens[
            :, 0
        ]

    def counted(self, y: Int[Tensor, " n T"], lengths: Lengths = None) -> Bool[Tensor, " n T"]:
        """Which outputs belong to the sequences, and are not padding.

        Args:
            y: The outputs.
            lengths: How long each input is, where some are padded.
        """
        counted = before_end(y, self.end)
        if self._aligned and lengths is not None:
            counted = counted & within(lengths_of(lengths, *y.shape), y.shape[1], y.device)
        return counted

    def _given(self, y: Tensor, start: Start, lengths: Lengths) -> Tensor:
        """The outputs given, checked, with something harmless in the place of padding."""
        n = len(start.hidden[0])
        if are_symbols(y):
            y = torch.where(self.counted(y, lengths), y.long(), self.end or 0)
        check_symbols("y", y, self.k)
        shape = (n, y.shape[1] if start.inputs is None else start.inputs.shape[1])
        if y.shape != shape:
            raise ValueError(f"y must have the shape {shape} to go with x, got {tuple(y.shape)}")
        return y

    def _forced(self, start: Start, y: Tensor) -> SequenceRun:
        """Teacher forcing: the outputs one step later, behind the symbol before the first."""
        fed = torch.cat((torch.full_like(y[:, :1], self.k), y[:, :-1]), 1)
        out = self.decoder(fed, start.hidden, start.inputs, start.seen)
        return SequenceRun(out.logits, y, out.states, torch.ones_like(y, dtype=torch.bool))

    def _decoding(self, start: Start) -> Decoding:
        only = torch.full((self.k,), -torch.inf, device=start.hidden[0].device)
        only[self.end or 0] = 0

        def step(tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
            hidden, t = state
            logits, _, hidden = self._advance(start, tokens, hidden, t)
            log_probs = logits.log_softmax(1)
            if start.inside is not None:
                inside = start.inside[:, t].repeat_interleave(len(tokens) // len(start.inside))
                log_probs = torch.where(inside[:, None], log_probs, only.to(log_probs))
            return log_probs, (hidden, t + 1)

        first = torch.full((len(start.hidden[0]),), self.k, device=only.device)
        return Decoding(step, first, (start.hidden, 0))

    def _horizon(self, start: Start, max_length: int | None) -> int:
        if start.inputs is None:
            return whole("max_length", max_length, low=1)
        T = start.inputs.shape[1]
        return T if max_length is None else whole("max_length", max_length, low=1, high=T)

    def _uniform(self, start: Start, T: int, generator: torch.Generator | None) -> Tensor:
        """A number between 0 and 1 for each output."""
        like = start.hidden[0]
        drawn = torch.rand(T, len(like), dtype=torch.float64, **source(generator, like.device))
        return drawn.to(like.device)

    def _advance(self, start: Start, tokens: Tensor, hidden: Any, t: int) -> Any:
        """One step: logits, states of the uppermost layer, and the state."""
        inputs = None
        if start.inputs is not None:
            T = start.inputs.shape[1]
            if t >= T:
                raise ValueError(f"max_length must be <= {T}, the steps of x, got {t + 1}")
            each = len(tokens) // len(start.inputs)
            inputs = start.inputs[:, t].repeat_interleave(each, 0)[:, None]
        out = self.decoder(tokens[:, None], hidden, inputs, start.seen)
        return out.logits[:, 0], out.states[:, 0], out.hidden

    def _roll(
        self,
        start: Start,
        uniform: Tensor,
        truth: Tensor | None = None,
        coins: Tensor | None = None,
        *,
        temperature: float = 1.0,
        stop: bool = False,
    ) -> SequenceRun:
        """Free running, except where coins say that the truth is fed back."""
        hidden, n = start.hidden, uniform.shape[1]
        tokens = torch.full((n,), self.k, device=uniform.device)
        ended = torch.zeros_like(tokens, dtype=torch.bool)
        steps = []
        for t, u in enumerate(uniform):
            logits, states, hidden = self._advance(start, tokens, hidden, t)
            wide = logits.detach().to(u.dtype)  # a small temperature must not overflow
            tokens = categorical((wide - wide.amax(1, keepdim=True)) / temperature, u)
            if truth is not None and coins is not None:
                tokens = torch.where(coins[:, t], truth[:, t], tokens)
            elif self.end is not None:
                tokens = torch.where(ended, self.end, tokens)
                ended = tokens == self.end
            steps.append((logits, tokens, states))
            if stop and bool(ended.all()):
                break
        logits, outputs, states = (torch.stack(s, 1) for s in zip(*steps, strict=True))
        if torch.isnan(logits).any():
            row = int(torch.isnan(logits).nonzero()[0, 0])
            raise ValueError(f"logits must not be NaN, got such for example {row} of x")
        given = torch.zeros_like(outputs, dtype=torch.bool) if coins is None else coins
        return SequenceRun(logits, outputs, states, given)


def insist_on_model(model: Any) -> None:
    """Refuse what is no model of sequences."""
    if not isinstance(model, OutputModel):
        kinds = "a FeedbackRNN, Seq2Seq or CaptionModel"
        raise ValueError(f"model must be {kinds}, got {type(model).__name__}")


def mixed_run(
    model: OutputModel,
    x: Tensor,
    y: Tensor,
    p: float,
    lengths: Lengths,
    generator: torch.Generator | None,
) -> SequenceRun:
    """A run that is fed with the truth with probability p, by a coin for each step and example."""
    start = model._start(x, lengths)
    y = model._given(y, start, lengths)
    uniform = model._uniform(start, y.shape[1], generator)
    tossed = model._uniform(start, y.shape[1], generator).T
    if p == 1:  # all steps in one call
        return model._forced(start, y)
    return model._roll(start, uniform, y, tossed < p)
