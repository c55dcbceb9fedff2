"""NTK coordinates: the same function, descent by other steps, there and back again."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.kernels import empirical_ntk, ntk_parametrize

X = torch.linspace(-1, 1, 30, dtype=torch.float64).reshape(5, 6)


def net() -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 4), nn.LayerNorm(4)).double()


def layers() -> dict[str, tuple[Any, torch.Tensor, int]]:
    """A layer of each kind, an input, and its fan-in by hand."""
    torch.manual_seed(4)
    ids = torch.tensor([[1, 4, 0], [2, 2, 3]])
    return {
        "linear": (nn.Linear(6, 3), torch.randn(5, 6), 6),
        "conv1d": (nn.Conv1d(4, 6, 3, groups=2), torch.randn(2, 4, 9), 2 * 3),
        "conv2d": (nn.Conv2d(3, 5, (2, 4)), torch.randn(2, 3, 6, 7), 3 * 2 * 4),
        "conv3d": (nn.Conv3d(2, 3, 2), torch.randn(2, 2, 4, 4, 4), 2 * 8),
        "transposed": (nn.ConvTranspose2d(4, 6, 3, groups=2), torch.randn(2, 4, 5, 5), 2 * 9),
        "embedding": (nn.Embedding(5, 3, padding_idx=0), ids, 1),
        "bag": (nn.EmbeddingBag(5, 3), ids, 1),
    }


@pytest.mark.parametrize("name", layers())
def test_each_kind_of_layer_has_its_fan_in(name):
    layer, x, fan_in = layers()[name]
    layer = layer.double()
    x = x.double() if x.is_floating_point() else x
    wanted, w = layer(x), layer.weight.detach().clone()
    p = layer.weight
    assert ntk_parametrize(layer, weight_variance=3.0) is layer
    omega = layer.parametrizations.weight.original
    assert omega is p  # optimisers go on
    torch.testing.assert_close(omega.detach(), w * math.sqrt(fan_in / 3.0), rtol=1e-14, atol=0)
    torch.testing.assert_close(layer(x), wanted, rtol=1e-13, atol=1e-14)
    ntk_parametrize(layer, remove=True)
    assert layer.weight is p
    assert type(layer) is type(layers()[name][0])
    torch.testing.assert_close(layer.weight.detach(), w, rtol=1e-15, atol=0)


def test_a_step_is_smaller_by_the_variance_over_the_fan_in():
    """SGD in the coordinates against steps by hand in the parameters, of which biases keep none."""
    model, plain = net(), net()
    ntk_parametrize(model, weight_variance=1.5, bias_variance=0.3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        model(X).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        grads = torch.autograd.grad(plain(X).square().sum(), list(plain.parameters()))
        factors = [1.5 / 6, 0.3, 1.5 / 7, 0.3, 1.0, 1.0]
        with torch.no_grad():
            for p, g, factor in zip(plain.parameters(), grads, factors, strict=True):
                p -= 0.1 * factor * g
    torch.testing.assert_close(model(X), plain(X), rtol=1e-11, atol=1e-12)


def test_its_tangent_kernel_weighs_each_layer():
    model, x = net()[:3], X
    K = torch.zeros(5, 5, 4, 4, dtype=torch.float64)
    for factor, p in zip((2 / 6, 1.0, 2 / 7, 1.0), model.parameters(), strict=True):
        J = [torch.autograd.grad(z, p, retain_graph=True)[0] for z in model(x).flatten()]
        rows = torch.stack(J).flatten(1)
        K += factor * (rows @ rows.T).view(5, 4, 5, 4).permute(0, 2, 1, 3)
    torch.testing.assert_close(empirical_ntk(ntk_parametrize(model), x), K)


def test_tied_weights_stay_tied():
    model: Any = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)).double()
    model[2].weight = model[0].weight
    wanted, w, p = model(X), model[0].weight.detach().clone(), model[0].weight
    ntk_parametrize(model)
    assert model[0].parametrizations.weight.original is p
    assert model[2].parametrizations.weight.original is p
    torch.testing.assert_close(p.detach(), w * math.sqrt(3))
    torch.testing.assert_close(model(X), wanted)
    assert len(list(model.parameters())) == 3
    ntk_parametrize(model, remove=True)
    assert model[0].weight is p is model[2].weight
    torch.testing.assert_close(p.detach(), w, rtol=1e-15, atol=0)


def test_an_embedding_that_is_the_last_layer_needs_a_word():
    model: Any = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)).double()
    model[1].weight = model[0].weight
    with pytest.raises(ValueError, match=r"one fan-in, got .*fan_in="):
        ntk_parametrize(model)
    w = model[0].weight.detach().clone()
    ntk_parametrize(model, fan_in={"1.weight": 3}, weight_variance=1.0)
    torch.testing.assert_close(model[0].parametrizations.weight.original.detach(), w * 3**0.5)


def test_gradients_frozen_parameters_and_states_go_along():
    model = net()
    model(X).square().sum().backward()
    gradient = model[0].weight.grad.clone()
    model[2].weight.requires_grad_(False)
    ntk_parametrize(model)
    torch.testing.assert_close(model[0].parametrizations.weight.original.grad, gradient / 3**0.5)
    assert not model[2].parametrizations.weight.original.requires_grad
    other: Any = ntk_parametrize(net())
    with torch.no_grad():
        other[0].parametrizations.weight.original.normal_()
    model.load_state_dict(other.state_dict())
    assert torch.equal(model(X), other(X))
    assert torch.equal(copy.deepcopy(model)(X), other(X))
    ntk_parametrize(model, remove=True)
    torch.testing.assert_close(model[0].weight.grad, gradient)
    model.load_state_dict(net().state_dict())  # by the names that it had at first


def test_attention_of_torch():
    torch.manual_seed(0)
    layer: Any = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).double()
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    wanted, w = layer(x), layer.self_attn.in_proj_weight.detach().clone()
    ntk_parametrize(layer, weight_variance=4.0)
    coordinate = layer.self_attn.parametrizations.in_proj_weight.original.detach()
    torch.testing.assert_close(coordinate, w * math.sqrt(8 / 4))
    torch.testing.assert_close(layer(x), wanted)
    torch.testing.assert_close(layer.eval()(x), wanted)


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.ones(3, 6))

    def forward(self, x):
        return x @ self.table.T


def test_other_parameters_by_their_names():
    odd: Any = Odd()
    ntk_parametrize(odd, fan_in={"table": 6}, weight_variance=6.0)
    torch.testing.assert_close(odd(torch.ones(2, 6)), torch.full((2, 3), 6.0))
    assert odd.parametrizations.table.original[0, 0] == 1.0


def scaled() -> nn.Module:
    return ntk_parametrize(nn.Linear(2, 1))


def normed() -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))


BAD = [
    (lambda: ntk_parametrize(Odd()), r"the fan-in of table in Odd is not known: say it with fan_in="
     r"\{'table': ...\}"),
    (lambda: ntk_parametrize(nn.LSTM(3, 4)), "the fan-in of weight_ih_l0 in LSTM is not known"),
    (lambda: ntk_parametrize(nn.RNN(3, 4), fan_in={"weight_ih_l0": 3, "weight_hh_l0": 4}),
     "parameters must be used by their names, and RNN keeps weight_ih_l0 in _flat_weights, too"),
    (lambda: ntk_parametrize(scaled()), "must not be parametrised already, and"
     " parametrizations.weight is in NTK coordinates"),
    (lambda: ntk_parametrize(normed()), "must not be parametrised already, and .*: _WeightNorm"),
    (lambda: ntk_parametrize(nn.ReLU()), "model must have parameters, got none"),
    (lambda: ntk_parametrize(nn.Linear(2, 1), remove=True), "must be in NTK coordinates"),
    (lambda: ntk_parametrize(nn.Linear(2, 1), fan_in={"w": 2}), r"fan_in must name .*\['w'\]"),
    (lambda: ntk_parametrize(nn.Linear(2, 1), fan_in={"weight": 0}), "fan_in.* must be >= 1"),
    (lambda: ntk_parametrize(nn.Linear(2, 1), weight_variance=0.0), "weight_variance must be > 0"),
    (lambda: ntk_parametrize(nn.Linear(2, 1), bias_variance=-1.0), "bias_variance must be > 0"),
    (lambda: ntk_parametrize(nn.LazyLinear(2)), "model must be initialised"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
def test_on_a_gpu():
    model, x = net().cuda(), X.cuda()
    wanted = model(x)
    ntk_parametrize(model)
    assert model[0].parametrizations.weight.original.is_cuda
    torch.testing.assert_close(model(x), wanted)
    torch.testing.assert_close(ntk_parametrize(model, remove=True)(x), wanted)
