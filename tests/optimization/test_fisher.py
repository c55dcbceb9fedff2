"""The Fisher information against sums over all labels, and against the examples' gradients."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.gradients.nets import make
from vademecum.gradients import functional, per_example_gradients
from vademecum.models import mlp
from vademecum.optimization import fisher, gauss_newton
from vademecum.testing import check_instrument

EXACT: Any = {"rtol": 1e-10, "atol": 1e-10}
X, Y = torch.randn(5, 3).double(), torch.tensor([0, 2, 1, 1, 2])


def second_moment(g, weights=None):
    return g.T @ g / len(g) if weights is None else (g.T * weights) @ g / len(g)


def over_labels(net, x, log_p):
    """The exact one for classes: all labels, each with the gradients that it would have had."""
    n, k = log_p.shape
    found = [
        second_moment(
            per_example_gradients(net, x, torch.full((n,), c), loss=F.cross_entropy),
            log_p[:, c].exp(),
        )
        for c in range(k)
    ]
    return torch.stack(found).sum(0)


@pytest.mark.parametrize("name", ["tied", "attention"])
def test_fisher(name):
    net, x, y = make(name, 3)
    f = functional(net)
    wanted = over_labels(net, x, f(f.theta, x).log_softmax(1))
    V = torch.randn(f.size, 2).double()
    torch.testing.assert_close(fisher(net, x, y) @ V, wanted @ V, **EXACT)
    torch.testing.assert_close(gauss_newton(net, x, y) @ V, wanted @ V, **EXACT)
    labels = per_example_gradients(net, x, y, loss=F.cross_entropy)
    found = fisher(net, x, y, kind="empirical") @ V
    torch.testing.assert_close(found, second_moment(labels) @ V, **EXACT)


def half(z, y):
    return F.mse_loss(z, y) / 2


def bits(z, y):
    return F.binary_cross_entropy_with_logits(z, y)


REAL = torch.rand(5, 3).double()
LOSSES = {
    "log-probabilities": (lambda z, y: F.nll_loss(z.log_softmax(1), y), Y),
    "ignored": (F.cross_entropy, Y.where(Y != 1, -100)),
    "sum": (lambda z, y: F.cross_entropy(z, y, reduction="sum"), Y),
    "squared error": (F.mse_loss, REAL),
    "half of it": (half, REAL),
    "sum of squares": (lambda z, y: F.mse_loss(z, y, reduction="sum"), REAL),
    "bits": (bits, REAL.round()),
    "sum of bits": (nn.BCEWithLogitsLoss(reduction="sum"), REAL.round()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_natural_parameters_have_the_gauss_newton_matrix(name):
    net = mlp([3, 2, 3], nn.Tanh).double()
    loss, y = LOSSES[name]
    V = torch.randn(functional(net).size, 3).double()
    found, wanted = fisher(net, X, y, loss=loss) @ V, gauss_newton(net, X, y, loss=loss) @ V
    torch.testing.assert_close(found, wanted, **EXACT)


@pytest.mark.parametrize("name", LOSSES)
def test_labels_that_are_drawn_have_it_as_their_mean(name):
    net = mlp([3, 2, 3], nn.Tanh).double()
    loss, y = LOSSES[name]
    x, y = X.repeat(60, 1), y.repeat(60, *[1] * (y.ndim - 1))
    v = torch.randn(functional(net).size).double()
    exact = fisher(net, x, y, loss=loss) @ v
    groups: Any = {"loss": loss, "kind": "sampled", "samples": 2}
    draws = torch.stack([fisher(net, x, y, **groups) @ v for _ in range(10)])
    gap, error = (draws.mean(0) - exact).norm(), draws.std(0).norm() / 10**0.5
    assert gap < 5 * error


def test_labels_stay_the_same_for_an_operator():
    net, g = mlp([3, 2, 3], nn.Tanh).double(), torch.Generator().manual_seed(1)
    F_ = fisher(net, X, Y, kind="sampled", generator=g)
    again = fisher(net, X, Y, kind="sampled", generator=g)
    assert torch.equal(F_.dense(), F_.dense())
    assert not torch.equal(F_.dense(), again.dense())
    g.manual_seed(1)
    assert torch.equal(F_.dense(), fisher(net, X, Y, kind="sampled", generator=g).dense())


def test_the_data_have_terms_of_their_own():
    net = mlp([3, 2, 3], nn.Tanh).double()
    for loss, y in (
        (half, REAL),
        (F.mse_loss, REAL),
        (lambda z, y: (z - y).abs().pow(1.5).mean(), REAL),
        (F.cross_entropy, REAL / REAL.sum(1, keepdim=True)),
    ):
        g = per_example_gradients(net, X, y, loss=loss)
        found = fisher(net, X, y, loss=loss, kind="empirical").dense()
        torch.testing.assert_close(found, second_moment(g), **EXACT)
    # entries of a binary cross-entropy are terms of their own
    one = mlp([3, 2, 1], nn.Tanh).double()
    g = per_example_gradients(one, X, REAL[:, :1].round(), loss=bits)
    found = fisher(one, X, REAL[:, :1].round(), loss=bits, kind="empirical").dense()
    torch.testing.assert_close(found, second_moment(g), **EXACT)


def test_tokens_are_terms():
    net = nn.Sequential(nn.Embedding(4, 2), nn.Tanh(), nn.Linear(2, 4)).double()
    x = torch.randint(4, (3, 5))
    y = torch.where(torch.rand(3, 5) < 0.4, -100, x.roll(-1, 1))
    kept = (y != -100).flatten()
    g = per_example_gradients(net, x.view(-1, 1), y.view(-1, 1), loss=lambda z, y: F.cross_entropy(
        z.flatten(0, 1), y.flatten()))[kept]  # fmt: skip
    for loss in (
        lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten()),
        lambda z, y: F.cross_entropy(z.mT, y),
    ):
        found = fisher(net, x, y, loss=loss, kind="empirical").dense()
        torch.testing.assert_close(found, second_moment(g), **EXACT)
        found = fisher(net, x, y, loss=loss).dense()
        torch.testing.assert_close(found, gauss_newton(net, x, y, loss=loss).dense(), **EXACT)


def test_laws():
    def instrument(model, data):
        v = torch.ones_like(functional(model).theta)
        return fisher(model, *data, kind="sampled", generator=torch.Generator().manual_seed(0)) @ v

    data = torch.randn(6, 5), torch.randint(3, (6,))
    without = {"no_parameters": "there is nothing to differentiate"}
    check_instrument(instrument, nn.Linear(5, 3), data, skip=without)


NET = mlp([3, 4, 3]).double()
ERRORS = [
    (lambda: fisher(nn.ReLU(), X, Y), "model must have parameters to differentiate"),
    (lambda: fisher(NET, X, Y, kind="true"), "kind must be one of 'exact', 'sampled', 'empirical'"),
    (lambda: fisher(NET, X, Y, samples=0), "samples must be >= 1, got 0"),
    (lambda: fisher(NET, X, REAL, loss=F.l1_loss), "loss must call one of cross_entropy, nll_loss"),
    (
        lambda: fisher(NET, X, Y, loss=nn.CrossEntropyLoss(weight=torch.ones(3).double())),
        "loss must be a log-likelihood, got cross_entropy with weight",
    ),
    (
        lambda: fisher(NET, X, Y, loss=nn.CrossEntropyLoss(label_smoothing=0.1)),
        "got cross_entropy with label_smoothing",
    ),
    (lambda: fisher(NET, X, Y, loss=lambda z, y: -F.cross_entropy(z, y)), "loss must grow with"),
    (lambda: fisher(NET, X, REAL, loss=lambda z, y: z), "one differentiable number"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()
