"""Which parameters are matrices of hidden layers, and which go with the rest."""

import pytest
import torch
from torch import nn

from vademecum.optimization import Muon, matrix_parameters


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 4)
        self.pos_embed = nn.Parameter(torch.zeros(1, 5, 4))
        self.attention = nn.MultiheadAttention(4, 2)
        self.up = nn.ConvTranspose1d(4, 6, 3)
        self.wise = nn.Conv1d(6, 6, 3, groups=6)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.table.weight


def names(model, params):
    wanted = {id(p) for p in params}
    return {name for name, p in model.named_parameters() if id(p) in wanted}


def test_matrix_parameters_of_a_language_model():
    model = Tied()
    (plain, turned), rest = matrix_parameters(model)
    wanted = {"attention.in_proj_weight", "attention.out_proj.weight"}
    assert names(model, plain["params"]) == wanted
    assert names(model, turned["params"]) == {"up.weight"}
    assert turned["transposed"]
    assert {"table.weight", "pos_embed", "wise.weight", "up.bias"} <= names(model, rest)
    count = len(plain["params"]) + len(turned["params"]) + len(rest)
    assert count == len(list(model.parameters()))


def test_a_module_that_embeds_may_hold_a_matrix():
    model = nn.Module()
    model.patch_embed = nn.Conv2d(3, 8, 4)
    model.head = nn.Linear(8, 3)
    (group,), _ = matrix_parameters(model)
    assert names(model, group["params"]) == {"patch_embed.weight"}


def test_matrix_parameters_of_convolutions():
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.BatchNorm2d(6), nn.Conv2d(6, 8, 3), nn.Flatten(), nn.Linear(8, 3)
    )
    (group,), rest = matrix_parameters(model)
    assert names(model, group["params"]) == {"0.weight", "2.weight"}
    assert "4.weight" in names(model, rest)
    (group,), _ = matrix_parameters(model, head=False)
    assert names(model, group["params"]) == {"0.weight", "2.weight", "4.weight"}
    (group,), _ = matrix_parameters(model, skip=["0.*"])
    assert names(model, group["params"]) == {"2.weight"}
    assert matrix_parameters(nn.Linear(3, 4)).matrices == []
    optimizer = Muon(matrix_parameters(model).matrices, lr=0.1)
    model(torch.randn(1, 1, 7, 7)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("model", "knobs", "message"),
    [
        (torch.ones(2), {}, "model must be a module, got Tensor"),
        (nn.Linear(2, 3), {"skip": ["critic.*"]}, r"skip must name parameters .*, got 'critic.\*'"),
    ],
)
def test_bad_models(model, knobs, message, unchecked):
    with pytest.raises(ValueError, match=message):
        matrix_parameters(model, **knobs)
