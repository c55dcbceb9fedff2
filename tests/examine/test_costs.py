"""What a network takes, counted by hand."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine._costs import free_memory, graph_bytes, multiply_adds
from vademecum.examine._study import Study
from vademecum.models import SlowPathWarning


def perceptron() -> Any:
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 2))


def test_a_graph_keeps_inputs_of_layers_once_and_no_parameters():
    """The inputs, and what tanh gives, which both it and the second layer need."""
    model, x = perceptron(), torch.randn(3, 6)
    assert graph_bytes(model, x) == 4 * 3 * (6 + 9)
    assert graph_bytes(model.double(), x.double()) == 8 * 3 * (6 + 9)


def test_a_graph_has_at_least_its_ends():
    model = perceptron().requires_grad_(False)
    assert graph_bytes(model, torch.randn(3, 6)) == 4 * 3 * (6 + 2)


class Narrowing(nn.Module):
    def forward(self, x):
        return x.repeat(1, 10)[:, :1].square()


def test_of_what_is_kept_in_part_the_whole_is_held():
    """The square needs a column of 60, which keeps the other 59."""
    x = torch.randn(3, 6, requires_grad=True)
    assert graph_bytes(Narrowing(), x) == 4 * 3 * 60


@torch.no_grad()
def test_graphs_are_those_of_evaluation_whatever_the_mode_around_them():
    model = nn.Sequential(nn.Linear(6, 9), nn.Dropout(), nn.Linear(9, 2)).train()
    assert graph_bytes(model, torch.randn(3, 6)) == 4 * 3 * (6 + 9)
    assert model.training


class Writing(nn.Module):
    def forward(self, x):
        return x.mul_(2).sum(1)


def test_inputs_are_not_written_into():
    x = torch.ones(3, 6)
    graph_bytes(Writing(), x)
    assert x.eq(1).all()


def test_nothing_is_known_of_the_memory_of_a_processor():
    assert free_memory(torch.device("cpu")) == 2**31


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        return self.layer(x)


def test_what_a_pass_takes_is_counted_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error", SlowPathWarning)
        found = multiply_adds(Attending().eval(), torch.randn(1, 5, 8))
    assert found == 5 * (4 * 8 * 8 + 2 * 8 * 16) + 2 * 5 * 5 * 8


@pytest.mark.parametrize(("memory", "half"), [(1000, 500), (None, 2**30)])
def test_half_as_much_at_a_time_for_a_while(memory, half):
    study = Study(perceptron(), torch.randn(9, 6), memory=memory)
    before = study.batch
    with study.smaller():
        assert (study.memory, study.batch) == (half, before // 2)
    assert (study.memory, study.batch) == (memory, before)


@pytest.mark.parametrize(("room", "fit"), [(25.0, 12), (3.0, 2), (0.1, 2), (1e9, 40)])
def test_examples_whose_graphs_there_is_room_for(room, fit):
    of_one = 4 * (6 + 9)
    study = Study(perceptron(), torch.randn(40, 6), memory=max(int(room * of_one), 1))
    assert study.fitting(2.0) == fit


class Together(nn.Module):
    """It takes a single example for a batch of rows."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(36, 3)

    def forward(self, x):
        return self.layer(x.squeeze().flatten(1))


def test_the_graph_of_an_example_is_seen_from_as_many_as_the_network_takes():
    of_one = 4 * (36 + 3)
    assert Study(Together(), torch.rand(40, 1, 6, 6), memory=25 * of_one).fitting(1.0) == 25


def test_room_for_a_model_and_more():
    model = perceptron()
    own = 4 * (6 * 9 + 9 + 9 * 2 + 2)
    assert Study(model, torch.randn(9, 6)).room == 2**29 + 40 * own
