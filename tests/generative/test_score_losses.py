"""Losses of scores and of diffusions: those that are no numbers, and of many networks at once."""

from typing import Any

import pytest
import torch

from vademecum.generative import DDPM, ConditionalMLP, NoiseSchedule, score_matching_loss
from vademecum.models import mlp

X = torch.zeros(2, 3)


def test_no_examples_have_no_loss():
    methods: list[Any] = [{"std": 1.0}, {"method": "implicit"}, {"method": "sliced"}]
    for method in methods:
        with pytest.raises(ValueError, match=r"x must not be empty, got shape \(0, 3\)"):
            score_matching_loss(lambda y: -y, X[:0], **method)


def steep(y):
    """Zero at 0, where its derivative is infinite."""
    return y.sign() * y.abs().sqrt()


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (lambda y: y / 0, {"std": 1.0, "predicts": "x0"}, "inf in its term 'prediction of x0'"),
        (lambda y: y / 0, {"method": "implicit"}, "nan in its term 'squared score'"),
        (steep, {"method": "implicit"}, "nan in its term 'divergence'"),
        (steep, {"method": "sliced"}, "nan in its term 'divergence'"),
    ],
)
def test_a_loss_that_is_no_number_names_its_term(model, given, message):
    with pytest.raises(ValueError, match=f"loss must be finite, got {message}"):
        score_matching_loss(model, X, **given)


def test_losses_whose_sum_alone_leaves_the_range():
    x = torch.full((2, 1), 1.5e19)
    found = score_matching_loss(lambda y: -y, x, method="implicit", reduction="none")
    torch.testing.assert_close(found, torch.full((2,), 2.25e38))


def test_losses_of_many_networks_at_once():
    nets = [mlp([3, 5, 3], torch.nn.Tanh).double() for _ in range(3)]
    x = torch.randn(5, 3, dtype=torch.float64)
    stacked = torch.func.stack_module_state(nets)

    def loss(parameters, buffers):
        def model(y):
            return torch.func.functional_call(nets[0], (parameters, buffers), (y,))

        return score_matching_loss(model, x, std=0.1)

    torch.manual_seed(0)
    found = torch.func.vmap(loss, randomness="same")(*stacked)
    wanted = []
    for model in nets:
        torch.manual_seed(0)
        wanted.append(score_matching_loss(model, x, std=0.1))
    torch.testing.assert_close(found, torch.stack(wanted))


@pytest.mark.parametrize("variance", ["small", "learned"])
def test_losses_of_many_diffusions_at_once(variance):
    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            net = ConditionalMLP(2, hidden=(5,), out=4 if variance == "learned" else 2)
            self.model = DDPM(net, (2,), schedule=NoiseSchedule.linear(50), variance=variance)

        def forward(self, x):
            return self.model.loss(x)

    losses, x = [Loss() for _ in range(3)], torch.randn(7, 2)
    stacked = torch.func.stack_module_state([*losses])

    def loss(parameters, buffers, x):
        return torch.func.functional_call(losses[0], (parameters, buffers), (x,))

    many, wanted = torch.func.vmap(loss, (0, 0, None), randomness="same"), []
    torch.manual_seed(0)
    found = many(*stacked, x)
    for one in losses:
        torch.manual_seed(0)
        wanted.append(one(x))
    torch.testing.assert_close(found, torch.stack(wanted))
    with pytest.raises(ValueError, match="x must be finite, got NaN or infinite entries"):
        many(*stacked, torch.cat([x[:-1], x[-1:] / 0]))
    with torch.no_grad():
        stacked[0]["model.network.last.bias"][1] = torch.nan
    with pytest.raises(ValueError, match="got nan in its term 'prediction of noise'"):
        many(*stacked, x)
