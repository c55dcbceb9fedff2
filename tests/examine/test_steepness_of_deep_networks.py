"""How steep a network is that is too deep for bounds on its rounding."""

import math
from typing import Any

import torch

from tests.robustness.exact_ranges import random_mlp
from vademecum.examine._clock import Clock
from vademecum.examine._study import Study
from vademecum.examine.sections import robustness
from vademecum.examine.sections._attacked import Subject, ball_of
from vademecum.examine.sections._fresh import best_examples


def test_the_steepest_pair_is_told_where_bounds_leave_nothing_of_it():
    torch.manual_seed(0)
    model, x = random_mlp(5, *[60] * 40, 3), torch.rand(20, 5, dtype=torch.float64)
    study = Study(model, x, model(x).argmax(1))
    examples = best_examples(study)
    assert examples is not None
    said: dict[str, Any] = {}
    subject = Subject(study, model, ball_of(x), examples)
    items: list[Any] = list(robustness._lipschitz(subject, Clock(math.inf), said))
    low, high = items
    assert low.name == "lipschitz_lower"
    J = torch.func.vmap(torch.func.jacrev(model))(x[:16]).detach()
    steepest = float(torch.linalg.matrix_norm(J, 2).max())
    assert steepest / 2 < low.value < high.value  # pairs begin along what Jacobians stretch most
    assert said["lipschitz"] == (low.value, high.value)
