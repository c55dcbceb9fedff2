"""What a recipe gives: an objective, its data, how it is judged, and how to train it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Task"]


class Task(NamedTuple):
    """Something to train, ready for `fit`.

    Attributes:
        objective: A module with `losses(batch)`.
        data: What `fit` takes batches from.
        evaluate: Judges the objective on examples that it does not train on.
        score: The name of the number, among those that `evaluate` gives, by which it is judged.
        maximize: Whether that number shall be large.
        settings: What the recipe recommends: arguments of `fit`, and `optimizer` by name, `lr` and
            `weight_decay`.
    """

    objective: "nn.Module"
    data: Any
    evaluate: Callable[["nn.Module"], dict[str, float]]
    score: str
    maximize: bool
    settings: dict[str, Any]

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        return f"Task({type(self.objective).__name__}, score={self.score}, {settings})"
