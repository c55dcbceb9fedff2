"""Where the heads of a small model look while it learns to copy."""

from copy import deepcopy
from functools import lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.attention import TransformerEncoder, attention_maps, draw_attention
from vademecum.canvas import panels
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["learned_looks"]

T, WORDS, WIDTH, PORTION = 16, 8, 16, 10
Task = Literal["repeat", "reverse", "the one before"]


@picture(claims=("attention.multi_head", "attention.causal_mask"), plays="steps")
def learned_looks(
    task: Task = "repeat",
    steps: Annotated[int, Range(0, 60, PORTION, unit="steps")] = 40,
    heads: Literal[1, 2, 4] = 2,
) -> Figure:
    """Where heads look, while a model learns to copy.

    A row for each layer, a column for each head; queries run downwards, keys to the right, and no
    token looks at a later one. The sequences are random words, followed by the same words again or
    by their reverse, and the second half is to be told; or each token is to name the one before.
    Before training, all heads look everywhere. Soon a head looks just where the answer stands: a
    line beside the diagonal, or across it.

    Knobs:
        task: What the model learns to tell.
        steps: How many steps of training it has had.
        heads: How many heads a layer has.
    """
    model, loss = _trained(task, heads, steps)
    with own_randomness(1):
        words, _, _ = _drawn(task, 1)
    figure, axes = panels((1.3 + 2.3 * heads, 5.4), margins=(0.9, 0.1, 0.5, 0.5))
    found = attention_maps(model, words)
    draw_attention(found, axes)
    axes.set_yticklabels([f"layer {i}" for i in range(len(found.names))])
    figure.suptitle(f"after {steps} steps, loss {loss:.2f}")
    return figure


class _Copier(nn.Module):
    def __init__(self, heads: int):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(T, WIDTH)
        self.encoder = TransformerEncoder(
            WIDTH, heads, depth=2, hidden=2 * WIDTH, dropout=0.0, norm_first=True
        )
        self.answer = nn.Linear(WIDTH, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(self.encoder(self.words(x) + self.places.weight, causal=True))


def _drawn(task: str, n: int) -> tuple[Tensor, Tensor, slice]:
    """Sequences, what is to be told at each place, and the places where it counts."""
    if task == "the one before":
        x = torch.randint(WORDS, (n, T))
        return x, x.roll(1, 1), slice(1, T)
    half = torch.randint(WORDS, (n, T // 2))
    x = torch.cat([half, half if task == "repeat" else half.flip(1)], 1)
    return x, x.roll(-1, 1), slice(T // 2 - 1, T - 1)


def _loss(model: nn.Module, task: str, n: int) -> Tensor:
    x, y, counts = _drawn(task, n)
    return F.cross_entropy(model(x)[:, counts].flatten(0, 1), y[:, counts].flatten())


@lru_cache(64)
def _trained(task: str, heads: int, steps: int) -> tuple[nn.Module, float]:
    model, _ = _snapshot(task, heads, steps)
    with own_randomness(2), torch.no_grad():
        return model, float(_loss(model, task, 64))


@lru_cache(64)
def _snapshot(task: str, heads: int, steps: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model after so many steps, from where it was a portion before."""
    with own_randomness(steps):
        if steps <= 0:
            model = _Copier(heads)
            return model, torch.optim.Adam(model.parameters(), 0.02, fused=True)
        before = steps - 1 - (steps - 1) % PORTION
        model, descent = deepcopy(_snapshot(task, heads, before))
        for _ in range(steps - before):
            descent.zero_grad()
            _loss(model, task, 16).backward()
            descent.step()
    return model, descent
