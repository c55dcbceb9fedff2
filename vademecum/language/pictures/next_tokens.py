"""What comes next, as a model has it and as it is drawn."""

import inspect
import textwrap
from functools import lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.figure import Figure

from vademecum.canvas import panels
from vademecum.language import NGramModel, generate
from vademecum.language.generation._choices import Choice, restricted
from vademecum.pictures import Range, picture

__all__ = ["next_tokens"]

_SHOWN, _LENGTH = 16, 64


@picture(claims=("language.ngram_model", "language.gpt"), plays="temperature")
def next_tokens(
    prompt: Literal["the ", "self.", "re", "    i"] = "the ",
    temperature: Annotated[float, Range(0.0, 3.0, 0.25)] = 1.0,
    top_k: Annotated[int, Range(1, 100, 1)] = 100,
    top_p: Annotated[float, Range(0.1, 1.0, 0.05)] = 1.0,
) -> Figure:
    """The law of the next character, and what is drawn from it.

    Light bars are what a model of four-grams has learned from a file of Python's library, strong
    ones what characters are drawn from; below stand three texts that it goes on with. Lower the
    temperature, and one character takes it all, at 0 for certain: texts go in circles. Raise it,
    and all become alike: texts fall apart. A small `top_k` or `top_p` cuts off the unlikely ones,
    which together spoil a text sooner or later, and leaves the proportions of the others.

    Knobs:
        prompt: What the text begins with.
        temperature: What logits are divided by.
        top_k: How many of the most probable characters may be drawn.
        top_p: The probability that the characters which may be drawn make up.
    """
    model, letters = _learned()
    tokens = torch.tensor([letters.index(c) for c in prompt])
    logits = model(tokens[None])[0, -1]
    law = logits.softmax(0)
    if temperature:
        drawn = restricted(logits[None], Choice(temperature, top_k, top_p)).softmax(1)[0]
    else:
        drawn = torch.nn.functional.one_hot(logits.argmax(), len(law)).to(law)
    order = law.argsort(descending=True)[:_SHOWN]
    figure, axes = panels((8, 4.2), margins=(0.7, 0.1, 1.75, 0.4))
    places = list(range(len(order)))
    axes.bar(places, law[order].tolist(), 0.8, color="C0", alpha=0.3, label="the model")
    axes.bar(places, drawn[order].tolist(), 0.5, color="C0", label="drawn from")
    axes.set_xticks(places, [_visible(letters[int(i)]) for i in order], family="monospace")
    kept = int((drawn > 0).sum())
    axes.set(
        ylabel="probability", title=f"after “{_visible(prompt)}”: {kept} of {len(law)} are left"
    )
    axes.legend(loc="upper right")
    for i, text in enumerate(_texts(tokens, temperature, top_k, top_p)):
        figure.text(0.09, 0.24 - 0.08 * i, text, family="monospace", fontsize=9)
    return figure


@lru_cache(1)
def _learned() -> tuple[NGramModel, str]:
    text = inspect.getsource(textwrap)
    letters = "".join(sorted(set(text)))
    return NGramModel(torch.tensor([letters.index(c) for c in text]), 4), letters


def _texts(tokens: torch.Tensor, temperature: float, top_k: int, top_p: float) -> list[str]:
    model, letters = _learned()
    found = generate(
        model, tokens.expand(3, -1), max_new_tokens=_LENGTH, temperature=temperature, top_k=top_k,
        top_p=top_p, context=4, truncate=True, generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    begin = "".join(letters[int(i)] for i in tokens)
    return [_visible(begin + "".join(letters[int(i)] for i in row)) for row in found.tokens]


def _visible(text: str) -> str:
    return text.replace("\n", "↵").replace(" ", "·").replace("\t", "→").replace("$", r"\$")
