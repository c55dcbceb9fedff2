"""Linearised networks against dense Jacobians, and as parts that train, save and load."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.kernels.tangent_model_oracles import dense, displaced
from vademecum.gradients import functional
from vademecum.kernels import LinearizedNetwork, empirical_ntk
from vademecum.models import SlowPathWarning
from vademecum.testing import check_part
from vademecum.testing.laws import changes, snapshot

X = torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(5, 4)


def tied() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 2))
    model[2].weight = model[0].weight
    return model


def frozen() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 5), nn.Sigmoid(), nn.Linear(5, 3))
    model[0].weight.requires_grad_(False)
    return model


def normed() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.GELU())
    model.append(nn.Linear(6, 2))
    model(torch.randn(20, 4))  # statistics that are not those of the start
    return model


class Branches(nn.Module):
    """Inputs by name, outputs by name, a buffer that counts calls."""

    calls: Tensor

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(4, 3), nn.Linear(2, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, a: Tensor, b: Tensor) -> dict[str, Tensor]:
        self.calls += 1
        return {"scores": (self.one(a) * self.other(b)).tanh(), "a": a}


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)),
    "linear": lambda: nn.Linear(4, 2),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2, padding=1), nn.ELU(), nn.Flatten(),
        nn.LayerNorm(27), nn.Linear(27, 2),
    ),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2)), nn.TransformerEncoderLayer(2, 1, 5, batch_first=True)
    ),
    "inplace": lambda: nn.Sequential(nn.ReLU(True), nn.Linear(4, 6), nn.Hardtanh(-1, 1, True)),
    "tied": tied,
    "frozen": frozen,
    "batch_norm": normed,
}  # fmt: skip


def made(name: str) -> Any:
    torch.manual_seed(5)
    return MODELS[name]().double()


@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_those_of_the_dense_jacobian(name):
    model = made(name)
    before = snapshot(model)
    h = LinearizedNetwork(model)
    assert not list(changes(before, snapshot(model)))
    wanted = copy.deepcopy(model).eval()(X.clone())
    torch.testing.assert_close(h(X), wanted, rtol=1e-14, atol=1e-14)  # at beta = 0
    beta = displaced(h)
    found, x = h(X), X.clone()
    torch.testing.assert_close(
        found.detach(), dense(model, beta, X.clone()), rtol=1e-12, atol=1e-13
    )
    assert torch.equal(x, X)
    u = torch.linspace(-1, 2, found.numel(), dtype=found.dtype).view_as(found)
    grads = torch.autograd.grad(found, list(h.parameters()), u)
    reference = copy.deepcopy(model).eval()
    moving = [p for p in reference.parameters() if p.requires_grad]
    for g, p in zip(grads, torch.autograd.grad(reference(X.clone()), moving, u), strict=True):
        torch.testing.assert_close(g, p, rtol=1e-11, atol=1e-13)
    assert not list(changes(before, snapshot(model)))


def test_order_is_that_of_theta():
    model = made("tied")
    h = LinearizedNetwork(model)
    assert len(list(h.parameters())) == 5
    beta, f = displaced(h, 1e-5), functional(model)
    off = f(f.theta + beta, X) - h(X)
    assert off.norm() < 1e-2 * (f(f.theta, X) - h(X)).norm()  # of second order


def test_frozen_parameters_on_demand():
    model = made("frozen")
    h = LinearizedNetwork(model, frozen=True)
    assert len(list(h.parameters())) == 4
    model.requires_grad_(True)
    torch.testing.assert_close(h(X).detach(), dense(model, displaced(h) * 0, X))
    torch.testing.assert_close(h(X).detach(), dense(model, displaced(h), X))


def test_inputs_and_outputs_by_name():
    torch.manual_seed(0)
    model, x = Branches().double(), {"a": X, "b": X[:, :2] + 1}
    h = LinearizedNetwork(model, output="scores")
    plain = copy.deepcopy(model)
    beta = displaced(h)
    J = torch.autograd.functional.jacobian(
        lambda t: functional(plain, output="scores")(t, x), functional(plain).theta
    )
    wanted = plain(**x)["scores"].detach() + torch.as_tensor(J) @ beta
    torch.testing.assert_close(h(**x).detach(), wanted)
    torch.testing.assert_close(h(x["a"], b=x["b"]).detach(), wanted)
    assert model.calls == 0
    assert h.origin.get_buffer("calls") == 0
    with pytest.raises(ValueError, match=r"must give a tensor, got dict: .* with output="):
        LinearizedNetwork(model)(**x)


def test_the_model_may_move_on():
    model = made("mlp")
    h = LinearizedNetwork(model)
    before = h(X)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_()
    assert torch.equal(h(X), before)


def test_training_reaches_least_squares():
    model, y = made("mlp"), torch.randn(5, 3, dtype=torch.float64)
    h = LinearizedNetwork(model)
    optimizer = torch.optim.LBFGS(
        h.parameters(),
        max_iter=2000,
        tolerance_grad=1e-13,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (h(X) - y).square().sum() / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    f = functional(model)
    J = torch.as_tensor(torch.autograd.functional.jacobian(lambda t: f(t, X).flatten(), f.theta))
    beta = torch.linalg.pinv(J) @ (y - f(f.theta, X)).flatten()
    found = nn.utils.parameters_to_vector(h.parameters()).detach()
    torch.testing.assert_close(found, beta, rtol=1e-4, atol=1e-5)


def test_its_kernel_is_the_network_s():
    model = made("batch_norm")
    h = LinearizedNetwork(model)
    wanted = empirical_ntk(model, X)
    for scale in (0.0, 2.0):
        displaced(h, scale)
        torch.testing.assert_close(empirical_ntk(h, X), wanted, rtol=1e-11, atol=1e-12)


def test_gradients_in_the_inputs():
    model = made("mlp")
    h = LinearizedNetwork(model)
    displaced(h)
    assert torch.autograd.gradcheck(h, X.clone().requires_grad_())


def test_states_bring_both_points():
    h, other = (
        LinearizedNetwork(made("batch_norm")),
        LinearizedNetwork(MODELS["batch_norm"]().double()),
    )
    displaced(h)
    assert set(h.state_dict()) >= {"beta.0.weight", "origin.0.weight", "origin.1.running_mean"}
    other.load_state_dict(h.state_dict())
    assert torch.equal(h(X), other(X))
    assert torch.equal(copy.deepcopy(h)(X), h(X))
    single = copy.deepcopy(h).float()
    torch.testing.assert_close(single(X.float()), h(X).float(), rtol=1e-4, atol=1e-5)
    assert repr(h) == "LinearizedNetwork(Sequential, 56 parameters)"


@pytest.mark.parametrize("name", ["mlp", "tied", "batch_norm", "frozen"])
def test_laws(name):
    h = LinearizedNetwork(made(name).float())
    displaced(h)
    check_part(h, X.float(), devices=("cpu", "meta"))


def test_operations_without_forward_mode_take_the_slow_path():
    torch.manual_seed(1)
    model, x = nn.LSTM(3, 4, batch_first=True), torch.randn(2, 5, 3)
    h = LinearizedNetwork(model, output=0)
    beta = displaced(h)
    with pytest.warns(SlowPathWarning, match="backward pass's backward pass, which is slower"):
        found = h(x)
    f = functional(model.double(), output=0)
    J = torch.autograd.functional.jacobian(lambda t: f(t, x.double()), f.theta)
    wanted = f(f.theta, x.double()) + torch.as_tensor(J) @ beta.double()
    torch.testing.assert_close(found.double().detach(), wanted, rtol=1e-4, atol=1e-5)
    found.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in h.parameters())
    with torch.no_grad():
        torch.testing.assert_close(h(x), found.detach())  # and says so once


BAD = [
    (lambda: LinearizedNetwork(nn.ReLU()), "must have parameters that require a gradient"),
    (lambda: LinearizedNetwork(nn.Linear(2, 1).requires_grad_(False)), "got none"),
    (lambda: LinearizedNetwork(nn.LazyLinear(2)), "model must be initialised"),
    (lambda: LinearizedNetwork(nn.GRU(4, 2))(X.float()), "got tuple: say which entry counts"),
    (lambda: LinearizedNetwork(nn.Linear(4, 2), output=lambda z: z.argmax(1))(X.float()),
     "outputs of model must be floating point, got torch.int64"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_on_a_gpu(name):
    h = LinearizedNetwork(made(name))
    displaced(h)
    wanted = h(X)
    there = copy.deepcopy(h).cuda()
    torch.testing.assert_close(there(X.cuda()).cpu(), wanted)
    there(X.cuda()).square().sum().backward()
    h(X).square().sum().backward()
    for p, q in zip(there.parameters(), h.parameters(), strict=True):
        assert p.grad is not None
        torch.testing.assert_close(p.grad.cpu(), q.grad)
