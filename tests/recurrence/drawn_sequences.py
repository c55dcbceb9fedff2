"""What draws among the models of sequences, each with a call that takes a generator."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vademecum.recurrence import (
    CaptionModel,
    FeedbackRNN,
    ProfessorForcing,
    Seq2Seq,
    scheduled_sampling,
)

Source = torch.Generator | None
Y = torch.zeros(2, 9, dtype=torch.long)


def always(name: str) -> tuple[Any, Tensor]:
    """A model that is always the same, and an input."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if name == "Seq2Seq":
            return Seq2Seq(5, 4, dimension=3, width=4), torch.arange(5)[None]
        if name == "CaptionModel":
            model = CaptionModel(4, channels=1, features=3, dimension=3, width=4)
            return model, torch.ones(1, 1, 4, 4)
        return FeedbackRNN(0, 3, 4), torch.zeros(2, 9, 0)


def run(name: str) -> Callable[[Source], Any]:
    def draw(generator: Source) -> Any:
        model, x = always(name)
        return model.run(x, max_length=9, generator=generator).outputs

    return draw


def generate(name: str) -> Callable[[Source], Any]:
    def draw(generator: Source) -> Any:
        model, x = always(name)
        return model.generate(x, 9, by="sample", temperature=3.0, generator=generator)

    return draw


def judged(generator: Source) -> Any:
    model, x = always("FeedbackRNN")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        professor = ProfessorForcing(model, width=3)
    return professor(x, Y, generator=generator).on_free


def mixed(generator: Source) -> Any:
    model, x = always("FeedbackRNN")
    return scheduled_sampling(model, x, Y, 0.5, generator=generator).outputs


MODELS = ("FeedbackRNN", "Seq2Seq", "CaptionModel")
CALLS: dict[str, Callable[[Source], Any]] = {
    **{f"{name}.run": run(name) for name in MODELS},
    **{f"{name}.generate": generate(name) for name in MODELS},
    "ProfessorForcing.forward": judged,
    "scheduled_sampling": mixed,
}
