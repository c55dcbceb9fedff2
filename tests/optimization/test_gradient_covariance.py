"""The covariance of gradients against that of the gradients one by one."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.gradients.nets import make
from vademecum.foundations import eigsh
from vademecum.gradients import functional, per_example_gradients
from vademecum.models import mlp
from vademecum.optimization import gradient_covariance
from vademecum.testing import check_instrument

EXACT: Any = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["tied", "norms", "keywords", "attention"])
def test_gradient_covariance(name, reduction):
    net, x, y = make(name)
    if reduction != "mean" and name != "tied":
        pytest.skip("one network will do")

    def loss(z, y):
        return F.cross_entropy(z, y, reduction=reduction)

    wanted = torch.cov(per_example_gradients(net, x, y, loss=loss).T, correction=0)
    V = torch.randn(len(wanted), 2).double()
    found = gradient_covariance(net, x, y, loss=loss)
    torch.testing.assert_close(found @ V, wanted @ V, **EXACT)


def test_its_rank_is_below_the_number_of_examples():
    net, x = mlp([3, 4, 2], nn.Tanh).double(), torch.randn(4, 3).double()
    C = gradient_covariance(net, x, torch.tensor([0, 1, 0, 1]))
    values = torch.linalg.eigvalsh(C.dense())
    assert int((values > 1e-12).sum()) == 3
    torch.testing.assert_close(eigsh(C, 1).values, values[-1:])


def test_examples_that_are_alike_have_none():
    net, x = mlp([3, 4, 2], nn.Tanh).double(), torch.ones(4, 3).double()
    assert gradient_covariance(net, x, torch.zeros(4, 2).double()).dense().abs().max() < 1e-15


def test_laws():
    def instrument(model, data):
        return gradient_covariance(model, *data) @ torch.ones_like(functional(model).theta)

    data = torch.randn(6, 5), torch.randint(3, (6,))
    without = {"no_parameters": "there is nothing to differentiate"}
    check_instrument(instrument, nn.Linear(5, 3), data, skip=without)


NET, X, Y = mlp([3, 4, 2]), torch.ones(4, 3), torch.tensor([0, 1, 0, 1])
ALONE = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, track_running_stats=False))
ERRORS = [
    (lambda: gradient_covariance(nn.ReLU(), X, Y), "model must have parameters to differentiate"),
    (lambda: gradient_covariance(NET, X), "y must be a tensor, got NoneType"),
    (lambda: gradient_covariance(NET, X, Y[:3]), "equally many examples"),
    (lambda: gradient_covariance(ALONE, X, Y), "'1' has no running statistics"),
    (lambda: gradient_covariance(NET, X, Y, output=lambda z: z.sum(0)), "one output for each of 4"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()
