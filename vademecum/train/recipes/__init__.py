"""Recipes: every model of the course with data, a score, and settings that reach it.

A recipe is a function whose typed signature is its command line. Nothing here imports torch before
a recipe is called, so that help answers at once.
"""

from collections.abc import Callable

from vademecum.train.recipes._task import Task
from vademecum.train.recipes.generators import diffusion, flow, gan, vae
from vademecum.train.recipes.graphs import nodes, pointnet
from vademecum.train.recipes.images import (
    adversarial,
    classify,
    contrastive,
    distillation,
    pac_bayes,
)
from vademecum.train.recipes.texts import bert, gpt, prose, seq2seq, skipgram

__all__ = ["RECIPES", "Task"]

RECIPES: dict[str, Callable[..., Task]] = {
    recipe.__name__: recipe
    for recipe in (
        *(classify, adversarial, distillation, contrastive, pac_bayes),
        *(gpt, bert, prose, skipgram, seq2seq),
        *(nodes, pointnet),
        *(vae, flow, gan, diffusion),
    )
}
"""The recipes by name."""
