"""Inputs, outputs, losses, graphs and failures: what instruments of all rooms share."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.models import (
    cannot_be_mapped,
    chosen_output,
    differentiable_output,
    loss_for,
    mlp,
    out_of_memory,
)


class Logits(NamedTuple):
    loss: float
    logits: Tensor


ONES = torch.ones(2)
OUTPUTS = [
    (ONES, None, ONES),
    (Logits(1.0, ONES), None, ONES),
    (Logits(1.0, ONES), "loss", 1.0),
    ((0.0, ONES), 1, ONES),
    ({"a": ONES, 3: 4.0}, "a", ONES),
    ({"a": ONES, 3: 4.0}, 3, 4.0),
    ((0.0, ONES), None, (0.0, ONES)),
]


@pytest.mark.parametrize(("result", "output", "wanted"), OUTPUTS)
def test_outputs_that_count(result, output, wanted):
    assert chosen_output(result, output) is wanted or chosen_output(result, output) == wanted


@pytest.mark.parametrize(
    ("result", "output", "message"),
    [
        ({"a": ONES}, "b", r"output must be an entry of \['a'\], got 'b'"),
        (Logits(1.0, ONES), "b", r"output must be an entry of \('loss', 'logits'\), got 'b'"),
        ((ONES,), 1, "output must be an entry of what model gives, tuple, got 1"),
        (ONES, "b", "output must be an entry of what model gives, Tensor, got 'b'"),
    ],
)
def test_outputs_that_are_missing(result, output, message):
    with pytest.raises(ValueError, match=message):
        chosen_output(result, output)


def test_several_outputs_must_be_told_apart():
    with pytest.raises(ValueError, match="got tuple: say which entry counts with output="):
        differentiable_output((ONES, ONES))


def test_losses_by_kind_of_target():
    z = torch.randn(4, 3)
    classes, numbers = torch.tensor([0, 1, 2, 0]), torch.randn(4, 3)
    assert loss_for(classes)(z, classes) == F.cross_entropy(z, classes)
    assert loss_for(numbers)(z, numbers) == F.mse_loss(z, numbers)
    assert loss_for(None, F.l1_loss) is F.l1_loss
    with pytest.raises(ValueError, match=r"y must be shaped like the output, \(4, 3\), got"):
        loss_for(numbers)(z, numbers[:, :1])
    with pytest.raises(ValueError, match="y must be a tensor unless a loss is given, got NoneType"):
        loss_for(None)


def test_memory_that_ran_out_is_not_taken_for_anything_else():
    with pytest.raises(RuntimeError) as found:
        torch.empty(2**60, dtype=torch.uint8)
    assert out_of_memory(found.value)
    assert not cannot_be_mapped(found.value)
    assert not cannot_be_mapped(torch.OutOfMemoryError("out of memory in vmap"))
    assert not out_of_memory(RuntimeError("shapes cannot be multiplied"))
    assert not cannot_be_mapped(RuntimeError("shapes cannot be multiplied"))


def test_mlp():
    net = mlp([3, 5, 4, 2], nn.Tanh, bias=False, dtype=torch.float64)
    kinds = [type(layer) for layer in net]
    assert kinds == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh, nn.Linear]
    assert [tuple(p.shape) for p in net.parameters()] == [(5, 3), (4, 5), (2, 4)]
    assert net(torch.ones(7, 3).double()).shape == (7, 2)
    assert isinstance(mlp([1, 1, 1], lambda: nn.LeakyReLU(0.3))[1], nn.LeakyReLU)
    with pytest.raises(ValueError, match=r"sizes must be two or more, got \[3\]"):
        mlp([3])
    with pytest.raises(ValueError, match="sizes must be >= 1, got 0"):
        mlp([3, 0, 2])
