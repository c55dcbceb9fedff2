"""What draws of inputs show of a field: their sizes, their values, and how many there are."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.convolution.field_models import Calls
from vademecum.convolution import receptive_field


def test_effective_fields_are_roots_of_mean_squares():
    model = nn.Conv1d(1, 1, 3)
    model.weight.data = torch.tensor([[[1.0, -2.0, 5.0]]])
    found = receptive_field(model, torch.randn(1, 1, 5), unit=1)
    assert found.effective is not None
    wanted = torch.tensor([0, 1 / 8, 2 / 8, 5 / 8, 0]).double()
    torch.testing.assert_close(found.effective, wanted)


def test_channels_of_the_input_add_up_in_squares():
    model = nn.Conv1d(2, 1, 2)
    model.weight.data = torch.tensor([[[3.0, 0.0], [4.0, 5.0]]])
    found = receptive_field(model, torch.randn(1, 2, 4), unit=1)
    assert found.effective is not None
    torch.testing.assert_close(found.effective, torch.tensor([0, 0.5, 0.5, 0]).double())


def seen(model: nn.Module, x: Tensor) -> int:
    """How many positions some draw has shown, of a field with many more."""
    found = receptive_field(model, x)
    assert found.measured is not None
    return int(found.measured.sum())


def test_draws_go_on_while_they_show_something_new():
    x = torch.randn(1, 1, 400)
    assert receptive_field(nn.MaxPool1d(200), x).draws == 60  # each has one winner
    assert 40 < seen(nn.MaxPool1d(200), x) <= 60


def test_draws_stop_after_some_that_show_nothing_new():
    model = Calls(lambda _, x: F.max_pool1d(x + x.new_tensor([9.0, 0.0] * 3), 2))
    found = receptive_field(model, torch.zeros(1, 1, 6))
    assert (found.draws, found.left) == (7, 1)  # the first is the winner always


def test_draws_have_the_mean_of_the_input():
    model = Calls(lambda _, x: F.max_pool1d(F.relu(x - 50), 9))
    assert seen(model, torch.full((1, 1, 18), 60.0)) > 1  # around 0, nothing is above 50


def test_draws_have_the_deviation_of_the_input():
    model = Calls(lambda _, x: F.max_pool1d(F.relu(x - 150), 9))
    assert seen(model, torch.tensor([0.0, 200.0]).repeat(1, 1, 9)) > 1  # which is 100


def test_draws_of_tokens_are_permutations():
    model = Calls(lambda s, x: F.max_pool1d(s.f(x).transpose(1, 2), 9), f=nn.Embedding(18, 1))
    assert seen(model, torch.arange(18)[None]) > 1  # one order has one winner
