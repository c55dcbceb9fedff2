"""Per-example gradients against a loop of plain backward passes, for every rule and way around."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.gradients.nets import NETS, call, close, make, one, slowly
from vademecum.gradients._independent_rows import study
from vademecum.gradients.example_norms import gradient_norms
from vademecum.gradients.network_function import functional
from vademecum.gradients.per_example import per_example_gradients
from vademecum.models import map_tensors
from vademecum.testing import check_instrument
from vademecum.testing.laws import changes, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even")


def loop(net, x, y, loss=F.cross_entropy):
    parameters = list(net.parameters())
    found_rows = []
    for i in range(len(y)):
        value = loss(call(net, one(x, i)), y[i : i + 1]).sum()
        found = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        found_rows.append(torch.cat([g.flatten() for g in found]))
    return torch.stack(found_rows)


@pytest.mark.parametrize("name", NETS)
def test_it_agrees_with_a_loop(name):
    net, x, y = make(name)
    before = snapshot(net.train())
    with slowly(name == "recurrent"):
        found = per_example_gradients(net, x, y, loss=F.cross_entropy)
    assert not list(changes(before, snapshot(net)))
    close(name, found, loop(net, x, y).to(found.dtype))


@pytest.mark.parametrize("name", NETS)
def test_the_rules_cover_what_they_should(name):
    net, x, _ = make(name)
    assert study(functional(net), x).covered is NETS[name][2]


@pytest.mark.parametrize("name", ["planar", "language"])
def test_portions_do_not_matter(name, monkeypatch):
    net, x, y = make(name, 7)
    whole = per_example_gradients(net, x, y, loss=F.cross_entropy)
    monkeypatch.setattr("vademecum.gradients._independent_rows._PORTION", {"cpu": 1})
    monkeypatch.setattr("vademecum.gradients._independent_rows._MANY", 2)
    monkeypatch.setattr("vademecum.gradients._layer_rules.convolutions._CACHE", {"cpu": 1})
    torch.testing.assert_close(per_example_gradients(net, x, y, loss=F.cross_entropy), whole)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_reduction_of_the_loss_does_not_matter(reduction):
    net, x, y = make("residual")
    loss = nn.CrossEntropyLoss(reduction=reduction)
    torch.testing.assert_close(per_example_gradients(net, x, y, loss=loss), loop(net, x, y))


def test_a_loss_that_cannot_be_mapped():
    net, x, y = make("residual")

    def loss(z, y):
        return z[0, 0] ** 2 if y.item() else z[0].sum()

    with slowly(True):
        found = per_example_gradients(net, x, y, loss=loss)
    torch.testing.assert_close(found, loop(net, x, y, loss))


class Several(nn.Module):
    """Gives hidden layers and a class beside the scores, in a structure."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        z = self.second(h)
        return {"hidden": (h, h.unflatten(1, (2, 2))), "scores": z, "class": z.argmax(1), "n": 7}


class ByColumns(Several):
    """Without a rule."""

    def forward(self, x):
        return super().forward((self.first.weight.T[:, :1] * x.mT).mT)


@pytest.mark.parametrize("kind", [Several, ByColumns])
def test_a_loss_may_take_any_output(kind):
    def loss(result, y):
        scale = 1 + result["class"].to(result["scores"].dtype).sum()
        return F.cross_entropy(result["scores"] * result["n"], y) + scale * (
            result["hidden"][1].square().sum()
        )

    net, x, y = kind().double(), torch.randn(5, 5).double(), torch.arange(5) % 3
    assert study(functional(net), x).covered is (kind is Several)
    wanted = loop(net, x, y, loss)
    torch.testing.assert_close(per_example_gradients(net, x, y, loss=loss), wanted)
    torch.testing.assert_close(gradient_norms(net, x, y, loss=loss), wanted.norm(dim=1))


class WithLoss(Several):
    """Computes the mean of the losses itself, if it knows the classes."""

    def forward(self, x, labels):  # pyright: ignore[reportIncompatibleMethodOverride]
        result = super().forward(x)
        return result | {"loss": F.cross_entropy(result["scores"], labels)}


def test_a_model_may_know_its_loss():
    net, x, y = WithLoss().double(), torch.randn(5, 5).double(), torch.arange(5) % 3

    def loss(result, _):
        return result["loss"]

    data, at = {"x": x, "labels": y}, torch.zeros(5)
    wanted = loop(net, data, at, loss)
    torch.testing.assert_close(per_example_gradients(net, data, at, loss=loss), wanted)
    torch.testing.assert_close(gradient_norms(net, data, at, loss=loss), wanted.norm(dim=1))


def test_frozen_parameters_are_left_out_on_request():
    net, x, y = make("residual")
    whole = functional(net).unravel(per_example_gradients(net, x, y, loss=F.cross_entropy))
    net.first.requires_grad_(False)
    net.last.bias.requires_grad_(False)
    found = per_example_gradients(net, x, y, loss=F.cross_entropy, frozen=False)
    kept = [whole[name].flatten(1) for name, p in net.named_parameters() if p.requires_grad]
    torch.testing.assert_close(found, torch.cat(kept, 1))
    assert per_example_gradients(net, x, y, loss=F.cross_entropy).shape[1] > found.shape[1]


def test_padding_gets_no_gradient():
    net = nn.Sequential(nn.Embedding(4, 2, padding_idx=1), nn.Flatten(), nn.Linear(6, 2)).double()
    x, y = torch.tensor([[1, 2, 2], [0, 1, 3]]), torch.tensor([0, 1])
    found = functional(net).unravel(per_example_gradients(net, x, y, loss=F.cross_entropy))
    assert (found["0.weight"][:, 1] == 0).all()
    torch.testing.assert_close(
        per_example_gradients(net, x, y, loss=F.cross_entropy), loop(net, x, y)
    )


def test_a_layer_without_effect_has_gradient_zero():
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(2, 1), nn.Linear(2, 1)

        def forward(self, x):
            self.idle(x)
            return self.used(x)

    found = per_example_gradients(Idle(), torch.ones(3, 2), torch.zeros(3), loss=lambda z, y: z)
    assert found.tolist() == [[1, 1, 1, 0, 0, 0]] * 3


def test_other_hooks_count():
    net, x, y = make("time axis")
    net[0].register_forward_hook(lambda module, args, z: 2 * z)
    net[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    torch.testing.assert_close(
        per_example_gradients(net, x, y, loss=F.cross_entropy), loop(net, x, y)
    )


def test_under_no_grad():
    net, x, y = make("planar")
    with torch.no_grad():
        found = per_example_gradients(net, x, y, loss=F.cross_entropy)
    torch.testing.assert_close(found, loop(net, x, y))


def test_laws():
    def instrument(model, data):
        return per_example_gradients(model, *data, loss=F.cross_entropy)

    data = torch.randn(6, 2, 3), torch.randint(3, (6,))
    without = {"no_parameters": "there is nothing to differentiate"}
    check_instrument(instrument, nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), data,
                     per_example=True, skip=without)  # fmt: skip


class Detached(nn.Linear):
    def forward(self, input):
        return super().forward(input).detach()


class Argmax(nn.Linear):
    def forward(self, input):
        return super().forward(input).argmax(1)


class AcrossExamples(nn.Linear):
    def forward(self, input):
        z = super().forward(input)
        return z - z.mean(0)


class Pooled(nn.Linear):
    def forward(self, input):
        return super().forward(input).sum()


class Pair(nn.Linear):
    def forward(self, input: torch.Tensor) -> Any:
        return super().forward(input), input


X, Y = torch.linspace(-1, 1, 12).view(4, 3).sin(), torch.tensor([0, 1, 0, 1])
NET = nn.Linear(3, 2)
CE = F.cross_entropy
ERRORS = [
    ((nn.ReLU(), CE, X, Y), "model must have parameters to differentiate, got none"),
    ((Detached(3, 2), CE, X, Y), "outputs of model must be differentiable"),
    ((Argmax(3, 2), CE, X, Y), "outputs of model must be floating point, got torch.int64"),
    ((AcrossExamples(3, 2), CE, X, Y), "model must treat examples independently"),
    ((Pooled(3, 2), CE, X, Y), r"one output for each of 3 examples, got shape \(\)"),
    ((nn.LSTM(3, 2), CE, X, Y), "model must treat examples independently"),
    ((Pair(3, 2), None, X, Y), "model must give a tensor, got tuple: say which entry"),
    ((NET, CE, X[:0], Y[:0]), "x must not be empty"),
    ((NET, CE, X, Y[:2]), "x and y must have equally many examples"),
    ((NET, CE, X * math.nan, Y), "x must be finite, got nan"),
    ((NET, CE, (), Y), "must have equally many examples|x must have examples"),
    ((NET, CE, X, [0, 1, 0, 1]), "y must be a tensor, got list"),
    ((NET, lambda z, y: 1.0, X, Y), "loss must give one number as a tensor, got float"),
    ((NET, CE, {"input": X, "more": X * math.nan}, Y), r"x\['more'\] must not hold NaN"),
    ((NET, lambda z, y: z, X, Y), r"loss must give one number for one example.* \(1, 2\)"),
    ((NET, lambda z, y: z.argmax(1), X, Y), "loss must give one number for one .* torch.int64"),
    ((NET, lambda z, y: z.detach().sum(), X, Y), "loss must be differentiable"),
    ((lambda x: x, CE, X, Y), "model must be an nn.Module, got function"),
    ((nn.Linear(3, 2, dtype=torch.complex64), CE, X, Y), "parameters of model must be real"),
    ((nn.LazyLinear(2), CE, X, Y), "model must be initialised, and weight is not"),
    ((nn.Embedding(3, 2, max_norm=1.0), CE, Y, Y), "must not renormalise its weights"),
    (
        (nn.Sequential(NET, nn.BatchNorm1d(2, track_running_stats=False)), CE, X, Y),
        "model must treat examples independently",
    ),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_errors(arguments, message):
    model, loss, x, y = arguments
    with pytest.raises(ValueError, match=message):
        per_example_gradients(model, x, y, loss=loss)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", NETS)
def test_cuda(name):
    net, x, y = make(name)
    there = map_tensors(x, lambda t: t.cuda())
    with slowly(name == "recurrent"):
        found = per_example_gradients(net, x, y, loss=CE)
    with slowly(name == "recurrent"):
        moved = per_example_gradients(net.cuda(), there, y.cuda(), loss=CE)
    assert moved.is_cuda
    torch.testing.assert_close(moved.cpu(), found, rtol=1e-5, atol=1e-6)
