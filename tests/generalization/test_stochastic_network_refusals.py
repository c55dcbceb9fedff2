"""What networks with Gaussian weights refuse, and how they say so."""

import re
from typing import Any

import pytest
import torch
from torch import nn

from tests.generalization.test_stochastic_network import Flattened, Tied
from vademecum.generalization import StochasticNetwork


def other_buffer() -> nn.Module:
    model = Tied()
    model.get_buffer("shift").add_(1)
    return model


def other_tie() -> nn.Module:
    model = Tied()
    model.two.weight = nn.Parameter(model.one.weight + 1)
    model.out.bias.data.copy_(TIED.out.bias)
    return model


TIED = Tied()
REFUSED: list[tuple[Any, str]] = [
    (lambda: StochasticNetwork(nn.ReLU(), prior="init"),
     "model must have parameters that require gradients, got none"),
    (lambda: StochasticNetwork(nn.Linear(2, 1), prior=nn.Linear(3, 1)),
     "prior must have the tensors of model, weight of shape (1, 2), got (1, 3)"),
    (lambda: StochasticNetwork(nn.Linear(2, 1), prior=nn.Linear(2, 1, bias=False)),
     "prior must have the tensors of model, bias of shape (1,), got nothing"),
    (lambda: StochasticNetwork(Tied(), prior=other_buffer()),
     "prior must equal model where that is not drawn, got another out.bias: the divergence would"
     " be infinite"),
    (lambda: StochasticNetwork(TIED, prior=other_tie()),
     "prior must tie what model ties, got different one.weight, two.weight"),
    (lambda: StochasticNetwork(nn.Linear(2, 1), prior="init", prior_std=0.0),
     "prior_std must be > 0, got 0.0"),
    (lambda: StochasticNetwork(nn.Linear(2, 1), prior="init", std=-1.0),
     "std must be > 0, got -1.0"),
    (lambda: StochasticNetwork(nn.Linear(2, 1), prior="init").kl(prior_std=-2.0),
     "prior_std must be > 0, got -2.0"),
    (lambda: StochasticNetwork(Flattened(), prior="init", draws="example")(torch.ones(2, 5, 3)),
     "draws must not be 'example' for this model, got each.weight, which is used otherwise than"
     " once by a linear or convolutional layer with a row for each example"),
    (lambda: StochasticNetwork(nn.Linear(2, 1), prior="init", draws="example")(torch.ones(())),
     "draws must not be 'example' where inputs have no examples"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_stochastic_network_refuses(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()
