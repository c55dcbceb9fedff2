"""What a network is for: guessed from its outputs and targets, and said in words.

| task | outputs | targets | loss unless one is given |
|---|---|---|---|
| classification | scores (n, k); one for the second of two | classes (n,) | cross-entropy |
| sequence | scores (n, T, k), or (n, k, ...) | classes (n, T), or (n, ...) | cross-entropy |
| regression | numbers | numbers of the same shape | mean squared error |
| density | log-densities (n,) | none | minus their mean |

Where token ids go in, scores for every position come out and there are no targets, each token's
target is the next one.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.arguments import choice
from vademecum.models import Loss, described, named_tensors

__all__ = ["IGNORED", "TASKS", "Aim", "Task", "aim_of"]

Task = Literal["classification", "regression", "sequence", "density"]
"""What a network is for."""
TASKS = ("classification", "regression", "sequence", "density")
"""All that it can be for."""
IGNORED = -100
"""A target that counts for nothing, as torch has it."""


class Aim(NamedTuple):
    """What a network is for."""

    task: Task | None
    why: str
    """Why it is taken for that, in words."""
    loss: Loss | None
    """A function of outputs and targets that gives one number; None without targets."""
    y: Any
    """The targets, which may have been made from the inputs."""
    classes: int | None = None
    """How many classes there are."""


def aim_of(z: Any, x: Any, y: Any, *, task: str | None, loss: Loss | None) -> Aim:
    """What a network is for that gives `z` for the first examples of `x`.

    Args:
        z: What it gave for some of the examples.
        x: The inputs, all of them.
        y: The targets, or None.
        task: What the user says it is for.
        loss: The user's own loss.
    """
    known = task is not None
    if known:
        choice("task", task, TASKS)
    found, why = (task, "as was said") if known else _guess(z, x, y)
    if found == "sequence" and y is None and (ids := _token_ids(x)) is not None:
        y = torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], IGNORED)], 1)
        why += "; the target of each token is the next one"
    if y is None and found in ("classification", "regression", "sequence"):
        return Aim(found, why, loss, None, _classes(z, found, y))  # pyright: ignore
    usual = {"classification": classified, "sequence": classified, "regression": squared,
             "density": minus_mean}.get(found or "")  # fmt: skip
    return Aim(found, why, loss or usual, y, _classes(z, found, y))  # pyright: ignore


def _guess(z: Any, x: Any, y: Any) -> tuple[str | None, str]:
    if not isinstance(z, Tensor):
        return None, f"its outputs are no tensor but {type(z).__name__}"
    if y is None:
        if z.ndim == 1 and z.is_floating_point():
            return "density", "it gives one number for each example, and there are no targets"
        ids = _token_ids(x)
        scores = ids is not None and z.ndim == 3 and z.shape[1] == ids.shape[1]
        if scores and int(ids.max()) < z.shape[2]:  # pyright: ignore
            return "sequence", "it gives scores for every position of sequences of tokens"
        return None, "there are no targets"
    if not isinstance(y, Tensor):
        return None, f"the targets are no tensor but {type(y).__name__}"
    if y.is_floating_point():
        return "regression", "the targets are numbers"
    if not z.is_floating_point():
        return None, f"its outputs are {str(z.dtype).removeprefix('torch.')}, which are no scores"
    if y.ndim == 1 and z.ndim <= 2:
        return (
            "classification",
            f"the targets are classes, and there are {_classes(z, '', y)} scores",
        )
    return "sequence", "the targets are classes, one for every position"


def _token_ids(x: Any) -> Tensor | None:
    """Token ids among the inputs, (n, T)."""
    if isinstance(x, Mapping) and "input_ids" in x:
        x = x["input_ids"]
    found = [t for _, t in named_tensors(x)]
    first = found[0] if found else None
    if first is None or first.is_floating_point() or first.dtype == torch.bool:
        return None
    return first if first.ndim == 2 and first.shape[1] > 1 else None


def _classes(z: Any, task: str | None, y: Any) -> int | None:
    if not isinstance(z, Tensor) or task in ("regression", "density", None):
        return None
    if z.ndim == 1 or (z.ndim == 2 and z.shape[1] == 1):
        return 2
    if isinstance(y, Tensor) and z.ndim == y.ndim + 1:  # as `flat_scores` takes them
        return z.shape[-1] if z.shape[1:-1] == y.shape[1:] else z.shape[1]
    return z.shape[-1] if z.ndim == 3 else z.shape[1]


def classified(z: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of scores, at every position; of one score, that of the second class."""
    scores, classes = flat_scores(z, y)
    return F.cross_entropy(scores, classes)


def flat_scores(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (m, k) and classes (m,) of all positions of all examples, ignored ones included.

    Raises:
        ValueError: If the shapes do not go together.
    """
    if y.shape == z.shape or (z.ndim == y.ndim + 1 and z.shape[-1] == 1):
        one = z.reshape(-1)
        return torch.stack([torch.zeros_like(one), one], 1), y.reshape(-1).long()
    if z.ndim == y.ndim + 1 and z.shape[:-1] == y.shape:
        return z.reshape(-1, z.shape[-1]), y.reshape(-1).long()
    if z.ndim == y.ndim + 1 and z.shape[:1] + z.shape[2:] == y.shape:
        return z.movedim(1, -1).reshape(-1, z.shape[1]), y.reshape(-1).long()
    shape = tuple(z.shape)
    raise ValueError(f"targets must be classes for outputs of shape {shape}, got {described(y)}")


def squared(z: Tensor, y: Tensor) -> Tensor:
    """The mean squared error; a column of one and a row of numbers are the same."""
    if y.shape != z.shape and y.numel() != z.numel():
        raise ValueError(f"targets must be shaped like {tuple(z.shape)}, got {described(y)}")
    return F.mse_loss(z, y.reshape(z.shape).to(z.dtype))


def minus_mean(z: Tensor, y: Any) -> Tensor:
    """Minus the mean log-density."""
    return -z.mean()
