"""What each example costs: wrong answers for classes, squared errors for numbers, else the loss."""

from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.examine._section import NotApplicable
from vademecum.examine._study import Study
from vademecum.examine._task import flat_scores
from vademecum.results import one_line

__all__ = ["Losses", "example_losses"]

_PORTION = 2**26  # scores at a time


class Losses(NamedTuple):
    """The losses of examples, in double precision."""

    kind: str
    """"error", "squared_error" or "loss"."""
    words: str
    each: Tensor
    margins: Tensor | None
    classes: Tensor
    whole: bool
    """Whether each is 0 or 1, an answer for each example."""
    unit: str = ""
    constant: Tensor | None = None
    """What each costs if the best constant answer were always given, where this is known."""

    __repr__ = one_line


def example_losses(study: Study, which: str) -> Losses:
    """What each of the examples, or of the fresh ones, costs.

    Raises:
        NotApplicable: If there is no number for each example.
    """
    data, z = (study.data if which == "data" else study.test), study.outputs(which)
    task = study.aim.task
    assert data is not None
    if not isinstance(z, Tensor):
        raise NotApplicable(f"because its outputs are no tensor but {type(z).__name__}")
    y = data.y[: len(z)] if data.n is not None and isinstance(data.y, Tensor) else data.y
    if task in ("classification", "sequence"):
        return _wrong(z, y)
    none = torch.zeros(0, device=z.device)
    if task == "density":
        return Losses("loss", "minus the log-density", -z.double(), None, none, False, "nats")
    y = y.reshape(z.shape).double()
    each, best = ((t - y).square().reshape(len(z), -1).mean(1) for t in (z.double(), y.mean(0)))
    return Losses("squared_error", "squared error", each, None, none, False, "", best)


def _wrong(z: Tensor, y: Tensor) -> Losses:
    """Wrong answers, of sequences their share; and margins."""
    each, margins, classes, counts = [], [], [], []
    rows = max(1, _PORTION // max(1, z[0].numel()))
    for i in range(0, len(y), rows):
        part = y[i : i + rows]
        scores, right = flat_scores(z[i : i + rows], part)
        counted = right >= 0
        own = right.clamp(min=0)[:, None]
        found = scores.gather(1, own).double()[:, 0]
        best = scores.scatter(1, own, -torch.inf).amax(1).double()
        wrong = ((scores.argmax(1) != right) & counted).double().reshape(len(part), -1)
        count = counted.reshape(len(part), -1).sum(1)
        each.append((wrong.sum(1) / count.clamp(min=1))[count > 0])
        margins.append((found - best)[counted])
        classes.append(right[counted])
        counts.append(count[count > 0])
    whole = y.ndim == 1
    words = "share of wrong answers" + ("" if whole else " of a sequence")
    found, answers = torch.cat(each), torch.cat(classes)
    constant = _always_one(answers, torch.cat(counts))
    return Losses("error", words, found, torch.cat(margins), answers, whole, "", constant)


def _always_one(classes: Tensor, counts: Tensor) -> Tensor:
    """The share of wrong answers in each sequence if one class, the best, were always given."""
    place = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    kinds, which = classes.unique(return_inverse=True)
    shares = torch.zeros(len(kinds), dtype=torch.float64, device=counts.device)
    shares.index_add_(0, which, 1 / counts.double()[place])
    hits = torch.zeros(len(counts), dtype=torch.float64, device=counts.device)
    hits.index_add_(0, place, (which == shares.argmax()).double())
    return 1 - hits / counts
