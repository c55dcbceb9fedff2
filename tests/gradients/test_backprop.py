"""Backpropagation layer by layer against autograd through the whole network."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.gradients.backpropagation import backprop
from vademecum.gradients.backpropagation_drawing import draw_backprop
from vademecum.randomness import own_randomness
from vademecum.testing import check_instrument
from vademecum.testing.laws import changes, snapshot


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.Tanh())

    def forward(self, x):
        return x + self.inner(x)


def shared():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Sequential(nn.Tanh(), layer))


class SharedInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = self.second = nn.Linear(4, 4)
        self.gain = self.again = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return self.gain * self.second(torch.tanh(self.first(x) * self.again))


def tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.ELU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return model


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.GELU())),
                                    nn.Sequential(), nn.Linear(6, 3)),
    "residual": lambda: nn.Sequential(nn.Linear(4, 5), Residual(5), nn.LayerNorm(5)),
    "batch_norm": lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh()),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3)),
    "cnn": lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2, padding=1),
                                 nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3, 3)),
    "shared": shared,
    "tied": tied,
    "shared_inside": lambda: nn.Sequential(SharedInside(), nn.Tanh()),
    "single": lambda: nn.Sequential(nn.Softmax(-1)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_equals_autograd(name, dtype):
    model = MODELS[name]().to(dtype)
    x, y = torch.randn(6, 4, dtype=dtype), torch.randint(0, 3, (6,))
    found = backprop(model, x, y)
    x.requires_grad_()
    mirror = copy.deepcopy(model)
    with own_randomness(None):
        loss = F.cross_entropy(mirror(x), y)
    parameters = dict(mirror.named_parameters())
    wanted = torch.autograd.grad(loss, [x, *parameters.values()])
    torch.testing.assert_close(found.loss, loss.detach())
    torch.testing.assert_close(found.input_error, wanted[0])
    assert found.gradients.keys() == parameters.keys()
    for key, gradient in zip(parameters, wanted[1:], strict=True):
        torch.testing.assert_close(found.gradients[key], gradient)


@pytest.mark.parametrize("name", ["nested", "cnn", "shared", "batch_norm"])
def test_activations_and_errors_are_those_of_the_whole_network(name):
    model = MODELS[name]().double()
    x, y = torch.randn(6, 4).double(), torch.randint(0, 3, (6,))
    found = backprop(model, x, y)
    z = x.clone().requires_grad_()
    outputs = []
    for trace in found.layers:
        z = trace.layer(z)
        outputs.append(z)
    errors = torch.autograd.grad(F.cross_entropy(z, y), outputs)
    for trace, output, error in zip(found.layers, outputs, errors, strict=True):
        torch.testing.assert_close(trace.activation, output.detach())
        torch.testing.assert_close(trace.error, error)


def test_a_linear_chain_by_hand():
    model = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(3)))
    for factor, weight in zip((2.0, 3.0, 5.0), model.parameters(), strict=True):
        nn.init.constant_(weight, factor)
    found = backprop(model, torch.ones(1, 1), None, loss=lambda z, y: z.sum())
    assert [t.activation.item() for t in found.layers] == [2, 6, 30]
    assert [t.error.item() for t in found.layers] == [15, 5, 1]
    assert [g.item() for g in found.gradients.values()] == [15, 10, 6]
    assert found.input_error is not None
    assert found.input_error.item() == 30
    rows = found.table().splitlines()
    assert rows[2].split() == ["1", "Linear", "6", "5", "10"]
    assert found.norms[1] == ("1", "Linear", 6, 5, 10)


def test_embedding_and_default_losses():
    model = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2))
    x, y = torch.tensor([[0, 1], [4, 4]]), torch.randn(2, 2)
    found = backprop(model, x, y)
    assert found.input_error is None
    wanted = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
    torch.testing.assert_close(list(found.gradients.values()), list(wanted))


class Modulus(nn.Module):
    def forward(self, z):
        return z.abs()


def test_complex_layers():
    model = nn.Sequential(nn.Linear(4, 3, dtype=torch.complex128), Modulus())
    x, y = torch.randn(6, 4, dtype=torch.complex128), torch.randint(0, 3, (6,))
    found = backprop(model, x, y)
    loss = F.cross_entropy(model(x.requires_grad_()), y)
    wanted = torch.autograd.grad(loss, [x, *model.parameters()])
    torch.testing.assert_close([found.input_error, *found.gradients.values()], list(wanted))
    with pytest.raises(ValueError, match="x must be finite, got"):
        backprop(model, x.detach() * math.nan, y)


def test_parameters_are_still_the_models_own():
    model = MODELS["shared_inside"]()
    before = dict(model.named_parameters(remove_duplicate=False))
    backprop(model, torch.randn(6, 4), torch.randint(0, 3, (6,)))
    after = dict(model.named_parameters(remove_duplicate=False))
    assert after.keys() == before.keys()
    assert all(after[key] is p for key, p in before.items())


def test_embeddings_that_are_sparse_or_renormalised():
    x, y = torch.tensor([[0, 1], [4, 4]]), torch.tensor([0, 1])
    embedding = nn.Embedding(5, 3, sparse=True, max_norm=0.5)
    model = nn.Sequential(embedding, nn.Flatten(), nn.Linear(6, 2))
    before = embedding.weight.detach().clone()
    found = backprop(model, x, y)
    assert torch.equal(embedding.weight, before)
    wanted = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    torch.testing.assert_close(found.gradients["0.weight"], wanted[0].to_dense())
    norm = wanted[0].to_dense().norm().item()
    assert found.norms[0].gradient == pytest.approx(norm, rel=1e-5)


def test_laws():
    x, y = torch.randn(6, 4), torch.randint(0, 3, (6,))

    def instrument(model, data):
        return backprop(model, *data)

    assert "untouched" in check_instrument(instrument, {k: m() for k, m in MODELS.items()}, (x, y))


def test_works_without_grad_mode():
    model, x = MODELS["mlp"](), torch.randn(3, 4)
    with torch.no_grad():
        found = backprop(model, x, torch.zeros(3, 3))
    torch.testing.assert_close(found.gradients, backprop(model, x, torch.zeros(3, 3)).gradients)


def test_draw_backprop():
    found = backprop(MODELS["mlp"](), torch.randn(6, 4), torch.randint(0, 3, (6,)))
    axes = draw_backprop(found).axes[0]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["0 Linear", "1 ReLU", "2 Linear"]
    expected = [float(t.error.square().mean().sqrt()) for t in found.layers]
    assert np.asarray(axes.lines[1].get_ydata()).tolist() == pytest.approx(expected)
    assert np.asarray(axes.lines[2].get_xdata()).tolist() == [0, 2]


class Step(nn.Module):
    def forward(self, x):
        return torch.heaviside(x.detach(), x.new_ones(()))


X, Y = torch.ones(2, 4), torch.zeros(2, dtype=torch.long)
ERRORS = [
    (nn.Linear(4, 2), X, {}, "model must be an nn.Sequential, got Linear"),
    (nn.Sequential(), X, {}, "model must have layers"),
    (nn.Sequential(nn.Linear(4, 2)), X * math.nan, {}, "x must be finite, got nan"),
    (nn.Sequential(nn.Linear(4, 2)), X[:0], {}, "x must not be empty"),
    (nn.Sequential(nn.Linear(4, 2), nn.LSTM(2, 2)), X, {}, "layer 1 must give one .* got tuple"),
    (nn.Sequential(nn.Sequential(Step())), X, {}, "layer 0.0 must be differentiable, got a Step"),
    (nn.Sequential(nn.Flatten()), X.long(), {}, "layer 0 must give one floating-point tensor"),
    (nn.Sequential(nn.Tanh()), X, {"loss": lambda z, y: z}, "loss must give one .*, got torch.f"),
    (nn.Sequential(nn.Tanh()), X, {"loss": lambda z, y: 1.0}, "loss must give one .*, got float"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "x", "knobs", "message"), ERRORS)
def test_errors(model, x, knobs, message, unchecked):
    with pytest.raises(ValueError, match=message):
        backprop(model, x, Y, **knobs)


@pytest.mark.parametrize("y", [torch.ones(2), torch.ones(2, 1), [0.0, 1.0]])
def test_targets_are_not_broadcast(y):
    with pytest.raises(
        ValueError, match=r"y must be shaped like the output, \(2, 4\), got|y must be a tensor"
    ):
        backprop(nn.Sequential(nn.Tanh()), X, y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    model = MODELS["cnn"]().double()
    x, y = torch.randn(6, 4).double(), torch.randint(0, 3, (6,))
    here = backprop(model, x, y)
    there = backprop(model.cuda(), x.cuda(), y.cuda())
    for key, gradient in here.gradients.items():
        torch.testing.assert_close(there.gradients[key].cpu(), gradient)


def test_dropout_draws_from_the_generator_that_is_given():
    model, x, y = MODELS["dropout"](), torch.randn(6, 4), torch.randint(0, 3, (6,))
    state = torch.get_rng_state()
    first, again, other = (
        backprop(model, x, y, generator=torch.Generator().manual_seed(s)).loss for s in (3, 3, 4)
    )
    assert first == again != other
    assert torch.equal(torch.get_rng_state(), state)
    here = backprop(model, x, y).loss
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(1)
    assert backprop(model, x, y).loss != here


# Models as they come


class Sum(nn.Module):
    """Two inputs, and a memory of how many examples it has seen."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen, self.last = nn.Linear(4, 3), [], None

    def forward(self, one, two):
        self.seen.append(len(one))
        self.last = one
        return self.layer(one) * two


@pytest.mark.parametrize("kind", [dict, tuple])
def test_inputs_of_any_structure(kind):
    model, given = nn.Sequential(Sum(), nn.Tanh()), {"one": X, "two": torch.randn(len(X), 3)}
    x = given if kind is dict else tuple(given.values())
    before = snapshot(model)
    found = backprop(model, x, None, loss=lambda z, y: z.sum())
    assert not list(changes(before, snapshot(model)))
    assert found.input_error is None
    value = torch.tanh(model[0](**given)).sum()
    wanted = torch.autograd.grad(value, list(model.parameters()))
    for gradient, other in zip(found.gradients.values(), wanted, strict=True):
        torch.testing.assert_close(gradient, other)
    with pytest.raises(ValueError, match=r"x\[.*\] must not hold NaN"):
        backprop(model, {**given, "two": torch.nan * X}, None, loss=lambda z, y: z.sum())


def test_compiled_models_go_by_the_names_of_their_layers():
    model: Any = nn.Sequential(nn.Linear(4, 2), nn.Tanh())
    wanted = backprop(model, X, None, loss=lambda z, y: z.sum())
    compiled: Any = torch.compile(model, backend="eager")
    found = backprop(compiled, X, None, loss=lambda z, y: z.sum())
    assert list(found.gradients) == list(wanted.gradients) == ["0.weight", "0.bias"]
