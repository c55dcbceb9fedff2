"""Layers with noise: their laws, where the noise comes from, and what it does to whom."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.regularization import input_noise, weight_noise
from vademecum.testing import check_part

SIGMA = torch.tensor([[1.0, 0.6, 0.0], [0.6, 0.5, 0.1], [0.0, 0.1, 0.2]])


def fixed(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


PARTS = {
    "input_noise": lambda: nn.Sequential(input_noise(0.3), nn.Linear(3, 2)),
    "covariance": lambda: nn.Sequential(input_noise(covariance=SIGMA), nn.Linear(3, 2)),
    "weight_noise": lambda: weight_noise(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), 0.1),
}


@pytest.mark.parametrize("name", PARTS)
def test_laws(name):
    check_part(PARTS[name](), torch.randn(5, 3), devices=("cpu", "meta"))


def test_input_noise_of_a_covariance():
    layer = input_noise(covariance=SIGMA.double(), generator=fixed())
    noise = layer(torch.zeros(200, 100, 3).double()).view(-1, 3)
    found = noise.T @ noise / len(noise)
    # a product of Gaussians has the variance s_ii s_jj + s_ij^2
    error = (SIGMA.diag()[:, None] * SIGMA.diag() + SIGMA.square()).sqrt() / len(noise) ** 0.5
    assert ((found - SIGMA).abs() < 5 * error).all()


def test_a_singular_covariance_stays_in_its_plane():
    u = torch.tensor([1.0, -2.0, 0.5])
    noise = input_noise(covariance=torch.outer(u, u))(torch.zeros(50, 3))
    torch.testing.assert_close(noise, noise[:, :1] * u, rtol=1e-4, atol=1e-5)
    assert noise[:, 0].std() > 0.5


NOISY = {
    "inputs": lambda g: input_noise(0.5, generator=g),
    "weights": lambda g: weight_noise(nn.Linear(3, 3), 0.5, generator=g),
}


@pytest.mark.parametrize("name", NOISY)
def test_noise_comes_from_the_generator(name):
    torch.manual_seed(0)
    layer: Any = NOISY[name](fixed())
    x = torch.ones(4, 3)
    state = torch.get_rng_state()
    first, second = layer(x), layer(x)
    assert state.equal(torch.get_rng_state())
    assert not first.equal(second)
    layer.generator = fixed()
    assert layer(x).equal(first)
    twin = copy.deepcopy(layer)
    assert twin(x).equal(layer(x))


def test_gradients_pass_the_noise():
    x = torch.randn(4, 3, requires_grad=True)
    input_noise(2.0)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.equal(torch.ones(4, 3))


def test_weight_noise_moves_the_gradient():
    """That of a square is taken where the noise has moved the weight."""
    model = nn.Linear(1, 1, bias=False)
    noisy = weight_noise(model, 1.0)
    out = noisy(torch.ones(1, 1))
    out.square().sum().backward()
    assert model.weight.grad is not None
    torch.testing.assert_close(model.weight.grad, 2 * out.detach())
    assert dict(noisy.named_parameters()) == {"model.weight": model.weight}


class Twice(nn.Module):
    """A weight in two places, one of them a plain list."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight
        self.held = [self.a.weight]

    def forward(self, x):
        return self.a(x) - self.b(x), self.a(x) - x @ self.held[0].T


def test_weight_noise_moves_ties_together():
    model = Twice()
    before = model.a.weight.detach().clone()
    noisy = weight_noise(model, 1.0)
    x = torch.randn(3, 4)
    for gap in noisy(x):
        torch.testing.assert_close(gap, torch.zeros(3, 4), rtol=0, atol=1e-5)
    assert model.a.weight is model.b.weight is model.held[0]
    assert model.a.weight.equal(before)


def test_weight_noise_leaves_statistics_to_the_model():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    noisy = weight_noise(model, 0.1)
    noisy(torch.randn(6, 3))
    assert model[1].num_batches_tracked == 1
    noisy.eval()(torch.randn(6, 3))
    assert model[1].num_batches_tracked == 1


def test_inputs_by_name_and_integers_elsewhere():
    bilinear = weight_noise(nn.Bilinear(2, 3, 1), 0.1)
    assert bilinear(input1=torch.ones(4, 2), input2=torch.ones(4, 3)).shape == (4, 1)


def test_noise_of_size_zero_changes_nothing():
    x, model = torch.randn(3, 2), nn.Linear(2, 2)
    assert input_noise(0.0)(x).equal(x)
    assert weight_noise(model, 0.0)(x).equal(model(x))


@pytest.mark.usefixtures("unchecked")  # the run-time checks of types cannot be compiled
@pytest.mark.parametrize("name", ["input_noise", "covariance"])
def test_compiled_as_one_graph(name):
    torch.compiler.reset()
    net, x = PARTS[name](), torch.ones(4, 3)
    fast = torch.compile(net, fullgraph=True, backend="eager")
    torch.manual_seed(0)
    found = [fast(x), fast(x)]
    torch.manual_seed(0)
    for noisy in found:
        torch.testing.assert_close(noisy, net(x))
    assert not found[0].equal(found[1])
    net.eval()
    torch.testing.assert_close(fast(x), net[1](x))


def test_half_precision():
    x = torch.zeros(2000, dtype=torch.bfloat16)
    assert input_noise(0.5)(x).dtype == torch.bfloat16
    assert float(input_noise(0.5)(x).std()) == pytest.approx(0.5, rel=0.1)
    narrow = input_noise(covariance=SIGMA)(torch.zeros(4, 3, dtype=torch.bfloat16))
    assert narrow.dtype == torch.bfloat16


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_noise_on_a_gpu_is_that_of_the_cpu():
    x = torch.ones(5, 3)
    for make in (lambda: input_noise(0.5, generator=fixed()),
                 lambda: input_noise(covariance=SIGMA, generator=fixed())):  # fmt: skip
        torch.testing.assert_close(make().cuda()(x.cuda()).cpu(), make()(x))


@pytest.mark.usefixtures("unchecked")
def test_errors():
    indefinite = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    table = [
        (lambda: input_noise(), "one of std and covariance must be given, got none"),
        (lambda: input_noise(0.1, covariance=SIGMA), "must be given, got both"),
        (lambda: input_noise(-0.1), "std must be >= 0, got -0.1"),
        (lambda: input_noise(float("nan")), "std must be"),
        (lambda: input_noise(covariance=indefinite), "covariance must be positive semidefinite"),
        (lambda: input_noise(covariance=SIGMA.triu()), "covariance must be symmetric"),
        (lambda: input_noise(covariance=SIGMA[None]), "covariance must have 2 axes"),
        (lambda: input_noise(covariance=SIGMA)(torch.ones(4, 2)), "x must be 3 wide"),
        (lambda: input_noise(0.1)(torch.ones(3, dtype=torch.long)), "x must be floating point"),
        (lambda: weight_noise(nn.ReLU(), 0.1), "model must have parameters, got none"),
        (lambda: weight_noise(nn.Linear(1, 1), -1.0), "std must be >= 0, got -1"),
    ]
    for act, message in table:
        with pytest.raises(ValueError, match=message):
            act()
