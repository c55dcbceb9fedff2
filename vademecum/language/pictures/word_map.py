"""A map of words whose vectors were learnt from a few hundred sentences."""

from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vademecum.canvas import GREY, panels
from vademecum.language import SkipGram
from vademecum.pictures import Range, picture

__all__ = ["learned_words"]

KINDS = {
    "country": ["france", "italy", "spain", "greece"],
    "capital": ["paris", "rome", "madrid", "athens"],
    "person": ["king", "queen", "man", "woman", "boy", "girl"],
    "animal": ["cat", "dog", "horse", "cow"],
    "food": ["bread", "cheese", "rice", "fish"],
    "drink": ["tea", "milk", "water", "wine"],
}
SENTENCES = (
    "{capital} is the capital of {country}",
    "many people in {country} live in {capital}",
    "the road from {capital} leads through {country}",
    "a {person} of {country} travels to {capital}",
    "the {person} eats {food} and {food}",
    "a {person} drinks {drink} with {food}",
    "the {person} pours {drink} or {drink}",
    "the {animal} sleeps while the {animal} runs",
    "a {animal} eats {food} in the garden",
    "the {person} feeds the {animal}",
)
Word = Literal["france", "rome", "queen", "dog", "bread", "wine"]
D, EPOCHS, SHOWN = 12, 12, 5
MAP = (255.0, 215.0)  # the map in points
MARKS = "os^Dv<"


@picture(claims=("language.skip_gram", "language.sgns_optimum"), plays="sentences")
def learned_words(
    word: Word = "rome",
    sentences: Annotated[int, Range(50, 800, 2, log=True)] = 400,
    objective: Literal["sgns", "softmax", "cbow"] = "sgns",
    window: Annotated[int, Range(1, 5)] = 3,
) -> Figure:
    """A map of words, learnt from their neighbours.

    Nobody says what the words mean: a few kinds of sentences are drawn at random, and words that
    keep the same company come to lie together, in the plane of the two main directions of their
    vectors. Lines lead to the words nearest by angle, and the bars tell how near they are. With 50
    sentences neighbours are chance; the narrowest window sees grammar, a wide one what sentences
    are about.

    Knobs:
        word: Whose neighbours are shown.
        sentences: From how many sentences the vectors are learnt.
        objective: Neighbours from the word against noise, by a softmax, or the word from them.
        window: How far neighbours may be away.
    """
    model = _learned(sentences, objective, window)
    figure, (left, right) = panels((9.4, 4.4), 1, 2, margins=(0.2, 0.2, 0.5, 0.4), gaps=(0.8, 0))
    near = model.neighbours(word, SHOWN)
    _draw_map(left, model, word, near.words)
    places = range(SHOWN)
    right.barh(places, near.cosines.numpy(), color=[_colour(w) for w in near.words], height=0.6)
    right.set(yticks=places, yticklabels=near.words, xlim=(0, 1), xlabel="cosine")
    right.invert_yaxis()
    answer = model.analogy("france", "paris", "italy", 1).words[0]
    right.set_title(f"nearest to {word}; paris to france is {answer} to italy")
    return figure


def _draw_map(axes: Axes, model: SkipGram, word: str, near: tuple[str, ...]) -> None:
    shown = [w for words in KINDS.values() for w in words if w in model.words_]
    rows = torch.nn.functional.normalize(model.transform(shown), dim=1)
    rows = rows - rows.mean(0)
    flat = (rows @ torch.linalg.svd(rows, full_matrices=False).Vh[:2].T).numpy()
    flat = flat - flat.min(0)
    flat *= np.array(MAP) / flat.max(0)
    place = dict(zip(shown, flat, strict=True))
    for other in near:
        if other in place and word in place:
            ends = np.stack((place[word], place[other]))
            axes.plot(*ends.T, color=GREY, linewidth=1, alpha=0.6, zorder=1)
    for number, (kind, words) in enumerate(KINDS.items()):
        points = np.array([place[w] for w in words if w in place]).reshape(-1, 2)
        axes.scatter(*points.T, s=20, marker=MARKS[number], color=_colour(words[0]), label=kind)
    for name, point in zip(shown, _apart(flat), strict=True):
        strong = "bold" if name == word else "normal"
        axes.text(point[0] + 5, point[1], name, fontsize=8, va="center", fontweight=strong)
    axes.set(xticks=[], yticks=[], title=f"loss {model.losses_[-1]:.2f}")
    axes.set(xlim=(-15, MAP[0] + 45), ylim=(-35, MAP[1] + 35))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=6, handletextpad=0,
                columnspacing=0.8)  # fmt: skip


def _apart(places: np.ndarray) -> np.ndarray:
    """Places for names in points, moved up or down until none stands on another."""
    found = places.astype(float)
    for _ in range(100):
        gap = found[:, None] - found[None]
        up = np.where(gap[..., 1] == 0, np.sign(np.subtract.outer(*2 * [np.arange(len(found))])),
                      np.sign(gap[..., 1]))  # fmt: skip
        lack = np.clip(10 - np.abs(gap[..., 1]), 0, None) * (np.abs(gap[..., 0]) < 36)
        found[:, 1] += 0.3 * (up * lack).sum(1)
    return found


def _colour(word: str) -> str:
    found = [number for number, words in enumerate(KINDS.values()) if word in words]
    return f"C{found[0] % 5}" if found else GREY


@lru_cache(64)
def _learned(sentences: int, objective: str, window: int) -> SkipGram:
    texts = _drawn(sentences)
    knobs = {"objective": objective, "window": window, "d": D, "epochs": EPOCHS}
    model = SkipGram(min_count=1, subsample=0.01, rate=0.1, random_state=0, **knobs)
    return model.fit(texts)


@lru_cache(8)
def _drawn(n: int) -> list[list[str]]:
    """Sentences of random kinds with random words; a country and a capital belong together."""
    rng = np.random.default_rng(0)
    found = []
    for kind in rng.integers(len(SENTENCES), size=n):
        pair, text = rng.integers(4), []
        for part in SENTENCES[kind].split():
            words = KINDS.get(part.strip("{}"), [part])
            belongs = part in ("{country}", "{capital}")
            text.append(words[pair if belongs else rng.integers(len(words))])
        found.append(text)
    return found
