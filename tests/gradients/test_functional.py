"""The network as a pure function: the same numbers as the module, and the module as it was."""

import copy

import pytest
import torch
from torch import nn

from tests.gradients.nets import NETS, call, make, tied
from vademecum.gradients.network_function import Functional, functional
from vademecum.testing import check_instrument
from vademecum.testing.laws import changes, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even")


@pytest.mark.parametrize("name", NETS)
def test_it_is_the_module_in_evaluation_mode(name):
    net, x, _ = make(name)
    f = functional(net.train())
    before = snapshot(net)
    found = f(f.theta, x)
    assert not list(changes(before, snapshot(net)))
    torch.testing.assert_close(found, call(net, x))


@pytest.mark.parametrize("name", NETS)
def test_theta_sets_the_parameters(name):
    net, x, _ = make(name)
    f, other = functional(net), copy.deepcopy(net)
    for p in other.parameters():
        p.data = torch.randn_like(p)
    theta = torch.cat([p.detach().flatten().to(f.dtype) for p in other.parameters()])
    torch.testing.assert_close(f(theta, x), call(other, x))
    assert torch.equal(functional(other).theta, theta)


@pytest.mark.parametrize("name", NETS)
def test_ravel_and_unravel_are_inverse(name):
    f = functional(make(name)[0])
    back = f.ravel(f.unravel(f.theta))
    assert torch.equal(back, f.theta)
    for named, p in zip(f.unravel(f.theta).values(), f.model.parameters(), strict=True):
        assert torch.equal(named, p)
        assert named.dtype == p.dtype
    batch = torch.stack([f.theta, 2 * f.theta])
    assert torch.equal(f.ravel(f.unravel(batch)), batch)


def test_tied_parameters_count_once():
    net = tied()
    f = functional(net)
    assert f.size == 25 + 5 + 5 + 18
    x, parts = torch.randn(2, 5), f.unravel(f.theta)
    doubled = f.ravel(parts | {"0.weight": 2 * parts["0.weight"]})
    h = torch.tanh(x @ (2 * parts["0.weight"].T) + parts["0.bias"])
    expected = net[3](h @ (2 * parts["0.weight"].T) + parts["2.bias"])
    torch.testing.assert_close(f(doubled, x), expected)


def test_frozen_parameters_are_constants_on_request():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    net[0].requires_grad_(False)
    f = functional(net, frozen=False)
    assert list(f.shapes) == ["1.weight", "1.bias"]
    x = torch.randn(3, 2)
    torch.testing.assert_close(f(f.theta, x), net(x))
    assert not f(f.theta, x).requires_grad


def test_buffers_that_a_forward_pass_changes_stay():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x + self.calls

    net = Counting()
    f = functional(net)
    assert [f(f.theta, torch.zeros(1)).item() for _ in range(2)] == [1.0, 1.0]
    assert net.calls == 0


def test_a_module_with_two_names_comes_back():
    shared = nn.Linear(2, 2)
    net = nn.Sequential(shared, shared)
    weight = shared.weight
    f = functional(net)
    f(2 * f.theta, torch.ones(1, 2))
    assert shared.weight is weight


def test_modes_come_back_after_an_error():
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    with pytest.raises(RuntimeError):
        functional(net)(functional(net).theta, torch.ones(1, 3))
    assert all(module.training for module in net.modules())
    assert torch.backends.cudnn.enabled


@pytest.mark.parametrize(("layer", "allowed"), [(nn.Linear(2, 2), True), (nn.GRU(2, 2), False)])
@pytest.mark.parametrize("enabled", [True, False])
def test_recurrent_layers_do_without_cudnn(layer, allowed, enabled):
    seen = []
    hook = layer.register_forward_hook(lambda *_: seen.append(torch.backends.cudnn.enabled))
    f, before = functional(layer), torch.backends.cudnn.enabled
    try:
        torch.backends.cudnn.enabled = enabled
        f(f.theta, torch.ones(1, 2))
        assert seen == [allowed and enabled]
        assert torch.backends.cudnn.enabled is enabled
    finally:
        hook.remove()
        torch.backends.cudnn.enabled = before


def test_transforms_go_through():
    net, x, _ = make("norms")
    f = functional(net)
    rows = torch.func.vmap(lambda x: f(f.theta, x[None])[0])(x)
    torch.testing.assert_close(rows, f(f.theta, x))
    theta = f.theta.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(f(theta, x).square().sum(), theta)
    torch.testing.assert_close(torch.func.grad(lambda t: f(t, x).square().sum())(f.theta), wanted)


def test_laws():
    def instrument(model, x):
        f = functional(model)
        return f(f.theta, x)

    check_instrument(instrument, nn.Linear(5, 3), torch.randn(6, 5), per_example=True)


F = Functional(nn.Linear(2, 1))
ERRORS = [
    (lambda: F(torch.zeros(4), torch.zeros(1, 2)), "theta must be 3 wide .* got shape"),
    (lambda: F(torch.zeros(1, 3), torch.zeros(1, 2)), "theta must have 1 axis"),
    (lambda: F(torch.zeros(3).double(), torch.zeros(1, 2)), "dtype torch.float32, got .*float64"),
    (lambda: F.unravel(torch.zeros(())), "theta must be 3 wide"),
    (lambda: F.ravel({"weight": torch.zeros(1, 2)}), r"names of the model's, not so: \['bias'\]"),
    (
        lambda: F.ravel({"weight": torch.zeros(2, 1), "bias": torch.zeros(1)}),
        r"weight must have the shape \(1, 2\), got \(2, 1\)",
    ),
    (lambda: functional(3), "model must be an nn.Module, got int"),  # pyright: ignore
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    net, x, _ = make("norms")
    f = functional(net)
    on_cpu = f(f.theta, x)
    f = functional(net.cuda())
    assert f.theta.is_cuda
    torch.testing.assert_close(f(f.theta, x.cuda()).cpu(), on_cpu)
