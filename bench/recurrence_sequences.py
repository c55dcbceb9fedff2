"""Rows of the room `recurrence`: beam search, and a training step of encoder and decoder."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bench.harness import Row, Skipped, in_turn
from vademecum.recurrence.sequences.beams import beam_search
from vademecum.recurrence.sequences.encoder_decoder import Seq2Seq
from vademecum.recurrence.sequences.likelihood import sequence_log_prob

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_search(device), _training(device))


def _close(mine: Any, other: Any) -> None:
    torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


class _Language(nn.Module):
    """A recurrent model of words, a step at a time."""

    def __init__(self, k: int, width: int):
        super().__init__()
        self.embedding = nn.Embedding(k, width)
        self.cell, self.logits = nn.GRUCell(width, width), nn.Linear(width, k)

    def forward(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.cell(self.embedding(tokens), state)
        return (4 * self.logits(state)).log_softmax(1), state


def _search(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    n, beam, T, k = (8, 5, 20, 8_000) if device.type == "cpu" else (32, 5, 50, 32_000)
    model = _Language(k, 256).to(device)
    start, state = torch.arange(n, device=device), torch.zeros(n, 256, device=device)

    def ours() -> Tensor:
        found = beam_search(model, start, state=state, beam=beam, max_length=T, end=0)
        return found.scores[:, 0]

    given = model, start, state, beam, T
    peers = {
        "the obvious loop": partial(_loop, *given),
        "a loop over hypotheses": partial(_hypotheses, *given),
    }
    yield Row(f"beam search, {n} starts, beam {beam}, {T} words of {k:,}", ours, peers, _close)


@torch.no_grad()
def _loop(model: nn.Module, start: Tensor, state: Tensor, beam: int, T: int) -> Tensor:
    """All starts at once, the best of beam times k continuations at each step."""
    n = len(start)
    tokens, state = start.repeat_interleave(beam), state.repeat_interleave(beam, 0)
    scores = torch.full((n, beam), -torch.inf, device=start.device)
    scores[:, 0] = 0
    ended = torch.zeros(n, beam, dtype=torch.bool, device=start.device)
    history = tokens.view(n, beam, 1)
    first = torch.arange(n, device=start.device)[:, None] * beam
    for _ in range(T):
        log_probs, state = model(tokens, state)
        k = log_probs.shape[1]
        log_probs = log_probs.view(n, beam, k).masked_fill(ended[:, :, None], -torch.inf)
        log_probs[:, :, 0] = torch.where(ended, 0, log_probs[:, :, 0])
        scores, chosen = (scores[:, :, None] + log_probs).flatten(1).topk(beam)
        parents, words = chosen // k, chosen % k
        ended = ended.gather(1, parents) | (words == 0)
        history = history.gather(1, parents[:, :, None].expand_as(history))
        history = torch.cat((history, words[:, :, None]), 2)
        state, tokens = state[(first + parents).flatten()], words.flatten()
        if ended.all():
            break
    return scores[:, 0]


@torch.no_grad()
def _hypotheses(model: nn.Module, start: Tensor, state: Tensor, beam: int, T: int) -> Tensor:
    """The model for all hypotheses at once, their book-keeping one by one, as many libraries do."""
    live = [[(0.0, [int(token)], row, False)] for row, token in enumerate(start)]
    for _ in range(T):
        rows = [h for beams in live for h in beams]
        tokens = torch.tensor([h[1][-1] for h in rows], device=start.device)
        log_probs, state = model(tokens, state[[h[2] for h in rows]])
        values, words = (x.tolist() for x in log_probs.topk(beam))
        grown, row = [], 0
        for beams in live:
            found = []
            for score, string, _, ended in beams:
                if ended:
                    found.append((score, string, row, True))
                else:
                    found += [
                        (score + v, [*string, w], row, w == 0)
                        for v, w in zip(values[row], words[row], strict=True)
                    ]
                row += 1
            grown.append(sorted(found, key=lambda h: -h[0])[:beam])
        live = grown
        if all(h[3] for beams in live for h in beams):
            break
    return torch.tensor([beams[0][0] for beams in live], device=start.device)


class _Obvious(nn.Module):
    """Encoder, decoder and attention as a tutorial writes them, with the weights of ours."""

    def __init__(self, ours: Seq2Seq):
        super().__init__()
        self.embedding, self.encoder = ours.embedding, ours.encoder
        self.words, self.decoder = ours.decoder.embedding, ours.decoder.rnn
        self.attention: Any = ours.decoder.attention
        self.logits = ours.decoder.logits

    def forward(self, x: Tensor, fed: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(x), lengths, batch_first=True,
                                                   enforce_sorted=False)  # fmt: skip
        states, last = self.encoder(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
        assert self.words is not None
        out, _ = self.decoder(self.words(fed), last)
        scores = out @ states.mT
        inside = torch.arange(states.shape[1], device=x.device) < lengths.to(x.device)[:, None]
        weights = scores.masked_fill(~inside[:, None], -torch.inf).softmax(-1)
        both = torch.cat((weights @ states, out), -1)
        return self.logits(torch.tanh(self.attention.combine(both)))


def _training(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    n, T, k, width = (16, 20, 2_000, 128) if device.type == "cpu" else (128, 50, 32_000, 512)
    model = Seq2Seq(k, k, dimension=width, width=width, attention="dot").to(device)
    plain = _Obvious(model)
    x, y = torch.randint(1, k, (2, n, T), device=device)
    lengths = torch.randint(T // 2, T + 1, (n,))
    lengths[0] = T
    fed = torch.cat((torch.full_like(y[:, :1], k), y[:, :-1]), 1)

    def ours() -> Tensor:
        return _pass(model, lambda: -sequence_log_prob(model, x, y, lengths=lengths).mean() / T)

    def obvious() -> Tensor:
        return _pass(plain, lambda: cross_entropy(plain(x, fed, lengths).mT, y))

    name = f"encoder, decoder and attention of width {width}, {n} x {T} words of {k:,}"
    peers: dict[str, Callable[[], Any]] = {"the obvious module": obvious}
    yield Row(f"{name}, forward and backward", ours, peers, _close)


def _pass(model: nn.Module, loss: Callable[[], Tensor]) -> Tensor:
    for p in model.parameters():
        p.grad = None
    value = loss()
    value.backward()
    return value.detach()
