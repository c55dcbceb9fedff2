"""Every optimiser and schedule goes on from a checkpoint with the same bits."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from tests.train.runs import insist_on_same_end, make_run
from vademecum import optimization

OPTIMIZERS = [
    *("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta"),
    *("Rprop", "ASGD", "Adafactor", "LBFGS"),
]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimisers_of_torch(name, tmp_path):
    options = {"SGD": {"lr": 0.1, "momentum": 0.9}, "LBFGS": {"max_iter": 3}}.get(name, {})
    make = partial(make_run, optimizer=partial(getattr(torch.optim, name), **options))
    insist_on_same_end(make, tmp_path)


@pytest.mark.parametrize("name", ["Nesterov", "HeavyBall", "SignSGD", "Muon"])
def test_optimisers_of_ours(name, tmp_path):
    kind = getattr(optimization, name, None)
    if kind is None:
        pytest.skip(f"there is no {name}")
    weights = partial(make_run, nn.Linear(3, 2, bias=False))
    insist_on_same_end(lambda seed: weights(optimizer=partial(kind, lr=0.01), seed=seed), tmp_path)


class Counting(torch.optim.SGD):
    """Keeps numbers that belong to no parameter: in its state, and beside it."""

    def __init__(self, params):
        super().__init__(params, lr=0.1)
        self.calls = 0

    def step(self, closure=None):
        self.calls += 1
        self.state["norms"]["sum"] = self.state["norms"].get("sum", 0.0) + 1.0  # pyright: ignore
        for group in self.param_groups:
            group["lr"] = 0.1 / (self.calls + self.state["norms"]["sum"])  # pyright: ignore
        return super().step(closure)

    def state_dict(self):
        return {**super().state_dict(), "calls": self.calls}

    def load_state_dict(self, state_dict):
        state = dict(state_dict)
        self.calls = state.pop("calls")
        super().load_state_dict(state)


def test_an_optimiser_that_keeps_more_than_states_of_parameters(tmp_path):
    insist_on_same_end(partial(make_run, optimizer=Counting), tmp_path)


SCHEDULES = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5, 5]),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda t: 0.9),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=3),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=6),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 7),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 7),
    "WarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 2, cycle_momentum=False),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 20),
    "Plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.CosineAnnealingLR(o, 9)], [3]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_of_torch(name, tmp_path):
    insist_on_same_end(partial(make_run, schedule=SCHEDULES[name]), tmp_path)
