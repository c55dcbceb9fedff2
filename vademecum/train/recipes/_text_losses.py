"""What models of texts pay, and how they are judged."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.language import BERT, mask_tokens, perplexity
from vademecum.train.recipes._objective import place_of

__all__ = [
    "MASK", "TextClassifier", "Words", "answer_loss", "bits", "filled", "masked_loss", "next_loss",
    "right_answers", "told_from_noise", "word_loss",
]  # fmt: skip

MASK = 256
"""The token for a hidden byte; the others are the bytes themselves."""

Sum = tuple[Tensor, Tensor]


def next_loss(model: nn.Module, windows: Tensor) -> Tensor:
    """The cross-entropy of each next byte."""
    return F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


def bits(text: Tensor, windows: int, length: int) -> Callable[[Any], dict[str, float]]:
    """Bits for each byte of some windows, from all over a text."""
    whole = text[: len(text) // length * length].view(-1, length)
    rows = whole[torch.linspace(0, len(whole) - 1, min(windows, len(whole))).long()]

    def evaluate(objective: Any) -> dict[str, float]:
        found = perplexity(objective.model, rows.to(place_of(objective.model)))
        return {"bits per byte": found.bits}

    return evaluate


def masked_loss(model: Any, windows: Tensor) -> Sum:
    """The cross-entropy of hidden bytes, as a sum and how many there are."""
    hidden = mask_tokens(windows, mask=MASK, V=MASK)
    where = hidden.labels != -100
    logits = model(hidden.tokens, where=where).logits
    return F.cross_entropy(logits, hidden.labels[where], reduction="sum"), where.sum()


def filled(text: Tensor, windows: int, length: int) -> Callable[[Any], dict[str, float]]:
    """How many of some hidden bytes are filled in rightly, and the bits that each costs."""
    whole = text[: len(text) // length * length].view(-1, length)
    rows = whole[torch.linspace(0, len(whole) - 1, min(windows, len(whole))).long()]
    generator = torch.Generator().manual_seed(0)
    hidden = mask_tokens(rows, mask=MASK, V=MASK, shares=(1.0, 0.0, 0.0), generator=generator)
    where = hidden.labels != -100

    @torch.no_grad()
    def evaluate(objective: Any) -> dict[str, float]:
        place = place_of(objective.model)
        logits = objective.model(hidden.tokens.to(place), where=where.to(place)).logits.cpu()
        right = (logits.argmax(1) == hidden.labels[where]).float().mean()
        nats = F.cross_entropy(logits.float(), hidden.labels[where])
        return {"filled rightly": float(right), "bits per byte": float(nats) / math.log(2)}

    return evaluate


class TextClassifier(nn.Module):
    """BERT with a head: the mean over a window, and a linear map to logits."""

    def __init__(self, bert: BERT, classes: int):
        super().__init__()
        self.bert, self.head = bert, nn.Linear(bert.d, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits of each window."""
        return self.head(self.bert(tokens).hidden.mean(1))


class Words(nn.Module):
    """Two vectors for each word: one as a word, one as a neighbour.

    Args:
        counts: How often each word occurs, which decides how often it is drawn as noise.
        width: How many entries a vector has.
        power: Noise is drawn proportionally to counts to this power.
    """

    def __init__(self, counts: Tensor, width: int, power: float = 0.75):
        super().__init__()
        self.vectors = nn.Embedding(len(counts), width)
        self.contexts = nn.Embedding(len(counts), width)
        nn.init.uniform_(self.vectors.weight, -0.5 / width, 0.5 / width)
        nn.init.zeros_(self.contexts.weight)
        self.register_buffer("noise", counts.double().pow(power).cumsum(0))

    def forward(self, words: Tensor, contexts: Tensor) -> Tensor:
        """How well words and neighbours, (n,) and (n, k), go together."""
        return (self.contexts(contexts) @ self.vectors(words)[:, :, None])[:, :, 0]

    def draw(self, n: int, k: int) -> Tensor:
        """Words from the noise."""
        mass: Any = self.noise
        place = torch.rand(n, k, dtype=mass.dtype, device=mass.device) * mass[-1]
        return torch.searchsorted(mass, place, right=True).clamp(max=len(mass) - 1)


def word_loss(model: Any, pairs: Tensor, *, negatives: int) -> Tensor:
    """Minus the objective of negative sampling: neighbours go together, noise does not."""
    words, near = pairs.unbind(1)
    far = model.draw(len(pairs), negatives)
    scores = model(words, torch.cat((near[:, None], far), 1))
    return -(F.logsigmoid(scores[:, 0]).mean() + F.logsigmoid(-scores[:, 1:]).sum(1).mean())


def told_from_noise(pairs: Tensor, most: int = 20_000) -> Callable[[Any], dict[str, float]]:
    """How often a true neighbour goes better with a word than one from the noise."""
    some = pairs[torch.linspace(0, len(pairs) - 1, min(most, len(pairs))).long()]

    @torch.no_grad()
    def evaluate(objective: Any) -> dict[str, float]:
        model = objective.model
        words, near = some.to(place_of(model)).unbind(1)
        scores = model(words, torch.cat((near[:, None], model.draw(len(words), 1)), 1))
        return {"told from noise": float((scores[:, 0] > scores[:, 1]).float().mean())}

    return evaluate


def answer_loss(model: Any, batch: tuple[Tensor, Tensor]) -> Sum:
    """The cross-entropy of answers up to their ends, as a sum and how many symbols there are."""
    x, y = batch
    counted = model.counted(y)
    logits = model(x, y)
    return F.cross_entropy(logits[counted], y[counted], reduction="sum"), counted.sum()


def right_answers(x: Tensor, y: Tensor) -> Callable[[Any], dict[str, float]]:
    """How many answers are right from beginning to end."""

    @torch.no_grad()
    def evaluate(objective: Any) -> dict[str, float]:
        found = objective.model.generate(x.to(place_of(objective.model)), y.shape[1]).cpu()
        found = F.pad(found, (0, y.shape[1] - found.shape[1]))
        return {"right answers": float((found == y).all(1).float().mean())}

    return evaluate
