"""Sharpness against dense Hessians, closed forms, and runs that diverge where it says so."""

import math

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from vademecum.gradients import functional
from vademecum.models import mlp
from vademecum.optimization import sharpness
from vademecum.testing import check_instrument

X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.arange(12) % 3


def dense(net, x=X, y=Y, loss=F.cross_entropy, **kind):
    f = functional(net, **kind)
    return torch.func.hessian(lambda theta: loss(f(theta, x), y))(f.theta)


def tied() -> nn.Module:
    net = mlp([3, 3, 3, 3], nn.Tanh)
    net[2].weight = net[0].weight
    return net


def normalised() -> nn.Module:
    net = nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(), nn.Linear(8, 3)
    )
    with torch.no_grad():
        net.train()(torch.randn(50, 3))  # running statistics of its own
    return net


NETS = {
    "tanh": lambda: mlp([3, 8, 5, 3], nn.Tanh),
    "relu": lambda: mlp([3, 8, 3], nn.ReLU),
    "tied": tied,
    "normalised": normalised,
}


@pytest.mark.parametrize("name", NETS)
def test_sharpness(name):
    net = NETS[name]().double().train()
    found, H = sharpness(net, X, Y, tol=1e-6), dense(net)
    assert found.value == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]), rel=1e-9)
    gap = H @ found.vector - found.value * found.vector
    assert float(gap.norm()) <= 1.01e-6 * float(torch.linalg.eigvalsh(H).abs().max())
    assert found.residual == pytest.approx(float(gap.norm()), rel=1e-2, abs=1e-12)
    assert float(found.vector.norm()) == pytest.approx(1)
    assert found.critical_step == pytest.approx(2 / found.value)
    assert found.converged


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_residual_meets_the_tolerance(dtype):
    net, x = mlp([3, 40, 3], nn.Tanh).to(dtype), X.to(dtype)
    H, loose = dense(net.double()), sharpness(net.to(dtype), x, Y)
    largest = float(torch.linalg.eigvalsh(H)[-1])
    v = loose.vector.double()
    assert float((H @ v - loose.value * v).norm()) <= 1e-3 * 1.01 * largest
    assert loose.value == pytest.approx(largest, rel=1e-4)
    assert loose.applications < sharpness(net, x, Y, tol=1e-4).applications < 30


def test_least_squares_in_closed_form():
    y = torch.randn(12, 1).double()
    net = nn.Linear(3, 1, bias=False).double()
    wanted = 2 * torch.linalg.matrix_norm(X, 2) ** 2 / 12
    assert sharpness(net, X, y).value == pytest.approx(float(wanted))
    half = sharpness(net, X, y, loss=lambda z, y: (z - y).square().sum() / 2)
    assert half.value == pytest.approx(6 * float(wanted))


def test_a_loader_is_all_data_at_once():
    net = mlp([3, 12, 3], nn.Tanh).double()
    loader = DataLoader(TensorDataset(X, Y), batch_size=5, shuffle=True)
    assert sharpness(net, loader).value == pytest.approx(sharpness(net, X, Y).value, rel=1e-5)


def test_frozen_parameters_are_left_out_on_request():
    net = mlp([3, 12, 3], nn.Tanh).double()
    net[0].requires_grad_(False)
    H = dense(net, frozen=False)
    found = sharpness(net, X, Y, frozen=False)
    assert len(found.vector) == len(H) == 39
    assert found.value == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]), rel=1e-5)
    assert sharpness(net, X, Y).value > found.value


def test_a_start_close_by_saves_products():
    net = mlp([3, 20, 20, 3], nn.Tanh).double()
    cold = sharpness(net, X, Y, tol=1e-4)
    warm = sharpness(net, X, Y, tol=1e-3, v0=cold.vector)
    assert warm.applications == 1
    assert warm.value == pytest.approx(cold.value, rel=1e-6)


def test_a_concave_loss_has_no_critical_step():
    net = nn.Linear(3, 1, bias=False).double()
    found = sharpness(net, X, X[:, :1], loss=lambda z, y: -(z - y).square().mean())
    assert found.value < 0
    assert found.critical_step == math.inf


def test_memory_limits_the_basis():
    net = mlp([3, 40, 3], nn.Tanh).double()
    width = 8 * functional(net).size
    tight, roomy = (sharpness(net, X, Y, tol=1e-6, memory=m) for m in (16 * width, None))
    assert tight.value == pytest.approx(roomy.value, rel=1e-5)
    assert tight.applications > roomy.applications


def test_max_iter_warns():
    net = mlp([3, 40, 3], nn.Tanh).double()
    with pytest.warns(ConvergenceWarning, match="max_iter=2 reached"):
        assert not sharpness(net, X, Y, max_iter=2).converged


def test_laws():
    def instrument(model, data):
        return sharpness(model, *data, generator=torch.Generator().manual_seed(0))

    data = torch.randn(6, 5), torch.randint(3, (6,))
    without = {"no_parameters": "there is nothing to differentiate"}
    check_instrument(instrument, nn.Linear(5, 3), data, skip=without)
    check_instrument(lambda m, d: sharpness(m, *d), nn.Linear(5, 3), data, outputs=None)


NET = mlp([3, 4, 3], nn.Tanh).double()
ADAM = torch.optim.Adam(NET.parameters())
ERRORS = [
    ({"tol": 0.0}, "tol must be > 0, got 0"),
    ({"max_iter": 0}, "max_iter must be >= 1, got 0"),
    ({"memory": 7}, "memory must be >= 2480, got 7"),
    ({"v0": torch.zeros(31).double()}, "v0 must not be zero"),
    ({"loss": lambda z, y: z}, "one differentiable number"),
    ({"loss": lambda z, y: (z * 1e200).square().sum()}, "the Hessian must be finite"),
    ({"preconditioner": ADAM}, "must have made a step, got one that has made none"),
    ({"preconditioner": torch.optim.LBFGS(NET.parameters())}, "one of SGD, .* got LBFGS"),
    ({"preconditioner": 0.1}, "one of SGD, .* got float"),
    (
        {"preconditioner": torch.optim.SGD(mlp([2, 2]).parameters(), lr=0.1)},
        "preconditioner must hold parameters of model, got none",
    ),
    (
        {"preconditioner": torch.optim.SGD(NET.parameters(), lr=0.0)},
        "first rate of preconditioner must be > 0, got 0",
    ),
    (
        {
            "preconditioner": torch.optim.SGD(
                [{"params": [NET[0].weight]}, {"params": [NET[0].bias], "momentum": 0.5}], lr=0.1
            )
        },
        r"one momentum, got the bounds \[2.0, 3.0\]",
    ),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("options", "message"), ERRORS)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        sharpness(NET, X, Y, **options)


@pytest.mark.usefixtures("unchecked")
def test_half_precision_is_refused():
    with pytest.raises(ValueError, match=r"single or double precision, got torch\.bfloat16"):
        sharpness(mlp([3, 3]).bfloat16(), X.bfloat16(), Y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    net = mlp([3, 20, 3], nn.Tanh).double()
    here = sharpness(net, X, Y).value
    net = net.cuda()
    assert sharpness(net, X.cuda(), Y.cuda()).value == pytest.approx(here, rel=1e-5)
    seeded = torch.Generator("cuda").manual_seed(0)
    assert sharpness(net, X.cuda(), Y.cuda(), generator=seeded).value == pytest.approx(
        here, rel=1e-5
    )
