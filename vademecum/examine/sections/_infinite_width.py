r"""The twin of infinite width: the kernel predictor of the architecture alone.

It is trained on one half of the examples (or on all, where there are fresh ones) and counted on the
others, beside the network itself, with the exact interval of Clopper and Pearson.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.examine._clock import Clock
from vademecum.examine._section import Item, NotApplicable, optional
from vademecum.examine._study import Study
from vademecum.examine._task import flat_scores
from vademecum.examine.dossier import Measurement
from vademecum.examine.sections._fresh import best_examples
from vademecum.foundations import clopper_pearson
from vademecum.kernels import infinite_width, ntk_predict
from vademecum.models import call_arguments, chosen_output, evaluation

__all__ = ["outputs_of", "twin_of_infinite_width"]

_TWIN, _TWINS = 8, 512
"""Examples that it begins with, and ends with where there is time."""


def twin_of_infinite_width(study: Study, clock: Clock) -> Iterator[Item]:
    """The accuracy of the kernel predictor of infinite width, beside that of the network."""
    if study.aim.task != "classification" or study.data.y is None or study.aim.classes is None:
        return
    if study.dtype not in (torch.float32, torch.float64):
        return
    k = study.aim.classes
    test = study.test
    told = test is not None and test.y is not None and test.n is not None
    fresh = best_examples(study) if told else None  # in random order, whatever theirs is
    limit = infinite_width(study.model, output=study.output, memory=study.room)
    total = min(study.n or 0, _TWINS)
    with optional("the twin of infinite width"):
        for m in clock.portions(_TWIN, total, power=2.5, what="examples for the infinite twin"):
            half = m if fresh is not None else m // 2
            train, labels = study.data.rows(study.order[:half])
            others = fresh.take(m) if fresh else study.data.rows(study.order[half:m])
            hot = F.one_hot(labels.long(), k).to(study.dtype) - 1 / k
            scores = ntk_predict(limit.ntk, train, hot, others[0], memory=study.room).mean
            hits = int((scores.argmax(1) == others[1]).sum())
            own, classes = flat_scores(outputs_of(study, others[0]), others[1])
            owns = int((own.argmax(1) == classes).sum())
            n = len(classes)
            how = f"of its predictor from {half} examples, on others, with an interval of 95 %"
            yield Measurement(
                "twin_accuracy", hits / n, tuple(clopper_pearson(hits, n)), "", n, how
            )
            how = "of the network itself on the same examples, with an interval of 95 %"
            yield Measurement("own_accuracy", owns / n, tuple(clopper_pearson(owns, n)), "", n, how)


def outputs_of(study: Study, x: Any) -> Tensor:
    """What counts of what the network gives, in evaluation."""
    with torch.no_grad(), evaluation(study.model):
        args, kwargs = call_arguments(x)
        z = chosen_output(study.model(*args, **kwargs), study.output)
    if not isinstance(z, Tensor) or not z.is_floating_point() or not z.ndim:
        raise NotApplicable("because its outputs are not one tensor of numbers")
    return z
