"""What theory says of normalised signals: statistics of batches, means of groups."""

import pytest
import torch
from torch import nn

from tests.regularization.signal_models import last
from vademecum.regularization import signal_propagation
from vademecum.regularization.signal._maps import Affine, Estimate, Normalised


def test_batch_statistics_of_data_are_believed():
    norm = nn.BatchNorm1d(4).double()
    with torch.no_grad():
        norm.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))  # pyright: ignore
        norm.weight.fill_(3.0)
        norm.bias.fill_(2.0)
    x = 1 + torch.arange(4) + torch.randn(500, 4).double()
    found, guess = last(norm, x)
    assert guess.second_moment == pytest.approx(13, rel=1e-4)
    assert found.second_moment == pytest.approx(13, rel=0.1)


def test_batch_statistics_take_off_what_examples_share():
    """Of inputs that share half of their square nothing is left but -1 / (n - 1)."""
    torch.manual_seed(5)
    x = (torch.randn(64, 400) + torch.randn(400)).double()
    model = nn.Sequential(nn.Linear(400, 400), nn.BatchNorm1d(400, momentum=None)).double()
    model(x)
    found, guess = last(model, x)
    assert found.correlation == pytest.approx(-1 / 63, abs=1e-3)
    assert guess.correlation == pytest.approx(-1 / 63, abs=0.06)
    by_batch = nn.Sequential(nn.Linear(400, 9), nn.BatchNorm1d(9, track_running_stats=False))
    assert signal_propagation(by_batch, x.float()).rows[1].note == "no prediction: BatchNorm1d"


def test_statistics_of_other_weights_leave_a_correlation_of_zero():
    """What examples have in common is nine tenths, says the norm, and nothing, say the weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(50, 40, bias=False), nn.BatchNorm1d(40), nn.Tanh())
    nn.init.constant_(model[1].running_mean, 3.0)  # pyright: ignore
    rows = signal_propagation(model, torch.randn(30, 50)).rows
    first, *after = (None if row.predicted is None else row.predicted.correlation for row in rows)
    assert first == pytest.approx(0, abs=0.2)
    assert after == pytest.approx([0, 0], abs=1e-9)


def test_groups_whose_means_theory_does_not_know_leave_a_correlation_within_one():
    """Weights that are all positive align what theory takes for independent."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), nn.GroupNorm(2, 8))
    nn.init.uniform_(model[0].weight, 0.9, 1.1)  # pyright: ignore
    for row in signal_propagation(model, 2 + torch.randn(6, 3, 5, 5)).rows:
        assert row.predicted is not None
        assert row.predicted.correlation is not None
        assert -1 - 1e-9 <= row.predicted.correlation <= 1 + 1e-9


@pytest.mark.parametrize(
    ("p", "common", "correlation"),
    [(0.75, 0.5, 0.5), (0.25, 0.5, -0.5), (0.75, 0.125, 1.0), (-0.25, -0.5, 0.5), (-0.5, 0.25, -1)],
)
def test_a_product_of_two_examples_is_no_larger_than_a_square(p, common, correlation):
    """Half of a square of one are means: what is left of products is at most the other half."""
    shares = torch.tensor([0.5, common, 1.0])
    found = Normalised(4, 0.0, Affine(), centred=True, shares=shares).forward([Estimate(1, p, 0)])
    assert found == (1, correlation, 0)


@pytest.mark.parametrize("norm", [lambda: nn.InstanceNorm2d(60), lambda: nn.GroupNorm(30, 60)])
def test_means_of_small_groups_are_taken_off(norm):
    torch.manual_seed(6)
    x = torch.randn(8, 20, 6, 6) + torch.randn(20, 1, 1) + torch.randn(8, 20, 1, 1)
    model = nn.Sequential(nn.Conv2d(20, 60, 1, bias=False), norm(), nn.Conv2d(60, 20, 1))
    first, second, _ = signal_propagation(model, x, draws=20).rows
    pairs = [(first.backward, first.predicted_backward), (second.forward, second.predicted)]
    for found, guess in pairs:
        assert found is not None
        assert guess is not None
        assert guess.second_moment == pytest.approx(found.second_moment, rel=0.1)
        # sizes of groups of two channels vary by more than theory knows
        assert guess.correlation == pytest.approx(found.correlation, abs=0.15)
