"""The examples that a section is to use which asks how good a network is: fresh ones, if any."""

from typing import Any, NamedTuple

import torch

from vademecum.examine._study import Study
from vademecum.results import one_line

__all__ = ["Examples", "best_examples"]


class Examples(NamedTuple):
    """Examples in an order that the seed alone decides."""

    x: Any
    y: Any
    n: int
    words: str

    __repr__ = one_line

    def take(self, m: int) -> tuple[Any, Any]:
        """The first m of them."""
        from vademecum.models import map_tensors

        return map_tensors((self.x, self.y), lambda t: t[:m])


def best_examples(study: Study) -> Examples | None:
    """The fresh examples, or else those given; None where they cannot be told apart."""
    test = study.test
    if test is not None and test.n is not None and (test.y is not None or study.data.y is None):
        order = torch.randperm(test.n, generator=study.generator("order of fresh examples"))
        return Examples(*test.rows(order), test.n, "fresh examples")
    if study.n is None:
        return None
    return Examples(*study.take(), study.n, "examples given, which it may have seen")
