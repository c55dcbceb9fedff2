"""The Gauss-Newton matrix against the product of its three factors from torch.func."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.gradients.nets import make
from vademecum.foundations import eigsh, trace
from vademecum.gradients import functional, hessian
from vademecum.models import mlp
from vademecum.optimization import gauss_newton
from vademecum.testing import check_instrument
from vademecum.testing.laws import changes, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even")

EXACT: Any = {"rtol": 1e-10, "atol": 1e-10}


def jacobian_of(net, x, output=None):
    """Outputs of a network, and their Jacobian, from torch.func."""
    f = functional(net, output=output)
    z = f(f.theta, x)
    return z.detach(), torch.func.jacrev(lambda theta: f(theta, x).flatten())(f.theta)


def three_factors(net, x, y, loss):
    z, J = jacobian_of(net, x)
    H = torch.func.hessian(lambda u: loss(u.view_as(z), y))(z.flatten())
    return J.T @ H @ J


@pytest.mark.parametrize(
    "name", ["tied", "words", "norms", "planar", "keywords", "time first", "attention"]
)
def test_gauss_newton(name):
    net, x, y = make(name, 3)
    net.train()
    wanted = three_factors(net, x, y, F.cross_entropy)
    V = torch.randn(len(wanted), 2).double()
    before = snapshot(net)
    G = gauss_newton(net, x, y)
    torch.testing.assert_close(G @ V, wanted @ V, **EXACT)
    assert torch.equal(G @ V, G @ V)  # the graph is still there
    assert not list(changes(before, snapshot(net)))


W = torch.tensor([0.5, 2.0, 1.0]).double()
LOSSES = {
    "mean": F.cross_entropy,
    "weights": lambda z, y: F.cross_entropy(z, y, W),
    "smoothing": lambda z, y: F.cross_entropy(z, y, W, label_smoothing=0.2),
    "squared sum": lambda z, y: F.cross_entropy(z, y, reduction="sum") ** 2,
    "each": lambda z, y: (
        F.cross_entropy(z, y, W, reduction="none", label_smoothing=0.1).exp().sum()
    ),
    "a module": nn.CrossEntropyLoss(weight=W, label_smoothing=0.3),
}
HARD, SOFT = torch.tensor([0, 2, -100, 1, 1]), torch.rand(5, 3).double()


@pytest.mark.parametrize("y", [HARD, SOFT], ids=["classes", "distributions"])
@pytest.mark.parametrize("name", LOSSES)
def test_the_closed_form_of_the_cross_entropy(name, y):
    net, x = nn.Linear(2, 3, bias=False).double(), torch.randn(5, 2).double()
    wanted = three_factors(net, x, y, LOSSES[name])
    torch.testing.assert_close(gauss_newton(net, x, y, loss=LOSSES[name]).dense(), wanted, **EXACT)
    f = functional(net)
    wanted = torch.func.hessian(lambda theta: LOSSES[name](f(theta, x), y))(f.theta)
    torch.testing.assert_close(hessian(net, x, y, loss=LOSSES[name]).dense(), wanted, **EXACT)


def test_tokens_that_are_padded():
    net = nn.Sequential(nn.Embedding(4, 2), nn.Tanh(), nn.Linear(2, 4)).double()
    x = torch.randint(4, (3, 5))
    y = torch.where(torch.rand(3, 5) < 0.4, -100, x.roll(-1, 1))
    for loss in (
        lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten()),
        lambda z, y: F.cross_entropy(z.mT, y),
    ):
        wanted = three_factors(net, x, y, loss)
        torch.testing.assert_close(gauss_newton(net, x, y, loss=loss).dense(), wanted, **EXACT)


def test_linear_regression():
    x, y = torch.randn(11, 3).double(), torch.randn(11, 1).double()
    G = gauss_newton(nn.Linear(3, 1, bias=False).double(), x, y)
    torch.testing.assert_close(G.dense(), 2 * x.T @ x / 11)
    torch.testing.assert_close(
        hessian(nn.Linear(3, 1, bias=False).double(), x, y).dense(), G.dense()
    )


def test_losses_of_any_kind():
    net, x = mlp([2, 2, 3], nn.Tanh).double(), torch.randn(5, 2).double()
    y = torch.randn(5, 3).double()
    for loss in (F.mse_loss, F.huber_loss, lambda z, y: (z - y).pow(4).sum() ** 0.5):
        wanted = three_factors(net, x, y, loss)
        torch.testing.assert_close(gauss_newton(net, x, y, loss=loss).dense(), wanted, **EXACT)
    assert not gauss_newton(net, x, y, loss=lambda z, y: (z * y).sum()).dense().any()


def test_it_is_for_the_instruments_of_foundations():
    net, x, y = make("twice")
    G = gauss_newton(net, x, y)
    spectrum = torch.linalg.eigvalsh(G.dense())
    torch.testing.assert_close(eigsh(G, 1).values, spectrum[-1:])
    found = trace(G, applications=len(spectrum))
    torch.testing.assert_close(found.value, spectrum.sum())


def test_frozen_parameters_are_left_out_on_request():
    net, x, y = make("twice", 3)
    whole = gauss_newton(net, x, y).dense()
    net[4].requires_grad_(False)
    torch.testing.assert_close(gauss_newton(net, x, y, frozen=False).dense(), whole[:30, :30])


def test_laws():
    def instrument(model, data):
        return gauss_newton(model, *data) @ torch.ones_like(functional(model).theta)

    data = torch.randn(6, 5), torch.randint(3, (6,))
    without = {"no_parameters": "there is nothing to differentiate"}
    check_instrument(instrument, nn.Linear(5, 3), data, skip=without)


NET, X, Y = mlp([3, 4, 2]), torch.ones(4, 3), torch.tensor([0, 1, 0, 1])
ERRORS = [
    (lambda: gauss_newton(nn.ReLU(), X, Y), "model must have parameters to differentiate"),
    (lambda: gauss_newton(NET, X * torch.nan, Y), "x must be finite, got nan"),
    (lambda: gauss_newton(NET, X[:0], Y[:0]), "x must not be empty"),
    (lambda: gauss_newton(NET, X), "y must be a tensor unless a loss is given, got NoneType"),
    (lambda: gauss_newton(NET, X, Y, loss=lambda z, y: z), "one differentiable number, got"),
    (lambda: gauss_newton(NET, X, Y, output=lambda z: (z, z)), "must give a tensor, got tuple"),
    (lambda: gauss_newton(NET, X, Y) @ torch.ones(3), "x must have 26 rows"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", ["planar", "attention", "recurrent"])
def test_cuda(name):
    net, x, y = make(name)
    v = torch.randn_like(functional(net).theta)
    wanted = gauss_newton(net, x, y) @ v
    found = gauss_newton(net.cuda(), x.cuda(), y.cuda()) @ v.cuda()
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-6, atol=1e-8)
