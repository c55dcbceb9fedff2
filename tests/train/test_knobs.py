"""What a checkpoint knows of optimisers: their kinds and the knobs that they were made with."""

import json
from typing import Any

import torch
from torch import Tensor

from vademecum.train._players import knobs_of


def weight() -> list[Tensor]:
    return [torch.ones(1, requires_grad=True)]


class Odd(torch.optim.Optimizer):
    """An optimiser whose knobs are all sorts of things."""

    def __init__(self, parameters: Any):
        defaults = {
            "lr": torch.tensor(0.5), "pair": (torch.tensor([1.0, 2.0]), (3, None)),
            "rule": max, "name": "odd", "foreach": True,
        }  # fmt: skip
        super().__init__(parameters, defaults)


def test_knobs_are_as_json_has_them():
    found = knobs_of({"model": Odd(weight())})
    assert found == {
        "optimizer": "Odd", "lr": 0.5, "pair": [[1.0, 2.0], [3, None]], "rule": "another",
        "name": "odd",
    }  # fmt: skip
    assert json.loads(json.dumps(found)) == found


def test_knobs_of_several_players_are_by_player():
    adam, sgd = torch.optim.Adam(weight(), lr=0.1), torch.optim.SGD(weight(), lr=0.2, momentum=0.9)
    found = knobs_of({"one": adam, "other": sgd})
    assert found["optimizer"] == {"one": "Adam", "other": "SGD"}
    assert found["lr"] == {"one": 0.1, "other": 0.2}
    assert found["momentum"] == {"other": 0.9}
    assert found["betas"] == {"one": [0.9, 0.999]}


def test_the_rate_is_the_one_before_any_schedule():
    optimizer = torch.optim.SGD(weight(), lr=0.4)
    torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5)
    assert optimizer.param_groups[0]["lr"] == 0.2
    assert knobs_of({"model": optimizer})["lr"] == 0.4
