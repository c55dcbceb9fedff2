"""Perplexity while a small language model learns."""

import math
from copy import deepcopy
from functools import lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

from vademecum.canvas import GREY, panels
from vademecum.language import GPT, perplexity
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["perplexity_while_learning"]

V, T, ROWS, PORTION = 8, 16, 8, 20


@picture(claims=("language.perplexity", "language.perplexity_minimum"), plays="steps")
def perplexity_while_learning(
    steps: Annotated[int, Range(0, 120, PORTION, unit="steps")] = 60,
    back: Literal[1, 2, 3] = 2,
    noise: Annotated[float, Range(0.0, 1.0, 0.1)] = 0.2,
    heads: Literal[1, 2, 4] = 2,
) -> Figure:
    """Perplexity while a small GPT learns.

    Each of eight tokens repeats the one so many places back, or is drawn anew with the probability
    of the noise. At first the model is as good as a guess among eight; then it finds out where to
    look, and its perplexity on new text falls towards that of the source, below which nothing can
    be. On the right are its probabilities for the tokens of a text: they end near the two that the
    source has. Look further back, and it takes longer; with noise 1 there is nothing to learn.

    Knobs:
        steps: How many steps of training the model has had.
        back: How many places back the token stands that is repeated.
        noise: The probability with which a token is drawn anew.
        heads: How many heads its two layers have.
    """
    times = list(range(0, steps + 1, PORTION))
    curve = [_measured(t, back, noise, heads) for t in times]
    floor = _floor(back, noise)
    figure, axes = panels((8.4, 3.2), 1, 2, margins=(0.7, 0.1, 0.55, 0.4), gaps=(0.8, 0))
    axes[0].plot(times, [value for value, _ in curve], "o-", markersize=4, label="on new text")
    axes[0].axhline(V, color=GREY, linestyle=":", label="a guess among eight")
    axes[0].axhline(floor, color="C1", linestyle="--", label=f"the source, {floor:.2f}")
    axes[0].set(xlabel="steps", ylabel="perplexity", xlim=(-3, 123), ylim=(0.8, 11))
    axes[0].legend(loc="upper right")
    axes[0].set_title(f"{curve[-1][0]:.2f} after {steps} steps")
    axes[1].hist(curve[-1][1], 25, range=(0, 1), color="C0")
    for p in {noise / V, 1 - noise + noise / V}:
        axes[1].axvline(p, color="C1", linestyle="--")
    axes[1].set(xlabel="probability of a token that came", ylabel="tokens")
    return figure


def _floor(back: int, noise: float) -> float:
    """The perplexity of the source: the exponential of its entropy, the first tokens unknown."""
    other, same = noise / V, 1 - noise + noise / V
    entropy = -sum(p * math.log(p) for p in (same, *[other] * (V - 1)) if p)
    return math.exp(((back - 1) * math.log(V) + (T - back + 1) * entropy) / T)


def _drawn(n: int, back: int, noise: float) -> Tensor:
    tokens = torch.randint(V, (n, T + 1))
    anew = torch.rand(n, T + 1) < noise
    for t in range(back, T + 1):
        tokens[:, t] = torch.where(anew[:, t], tokens[:, t], tokens[:, t - back])
    return tokens


@lru_cache(256)
def _measured(steps: int, back: int, noise: float, heads: int) -> tuple[float, list[float]]:
    """Perplexity on new text, and the probabilities of tokens that could be known."""
    model, _ = _snapshot(steps, back, noise, heads)
    with own_randomness(1), torch.no_grad():
        tokens = _drawn(32, back, noise)
        p = model(tokens[:, :-1]).softmax(2).gather(2, tokens[:, 1:, None])[:, back - 1 :]
    return perplexity(model, tokens).perplexity, p.flatten().tolist()


@lru_cache(256)
def _snapshot(steps: int, back: int, noise: float, heads: int) -> tuple[GPT, torch.optim.Optimizer]:
    """The model after so many steps, from where it was a portion before."""
    with own_randomness(steps):
        if steps <= 0:
            model = GPT(V=V, d=16, layers=2, heads=heads, context=T, hidden=32)
            return model, torch.optim.Adam(model.parameters(), 0.02, fused=True)
        model, descent = deepcopy(_snapshot(steps - PORTION, back, noise, heads))
        for _ in range(PORTION):
            tokens = _drawn(ROWS, back, noise)
            descent.zero_grad()
            logits = model(tokens[:, :-1])
            F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            descent.step()
        return model, descent
