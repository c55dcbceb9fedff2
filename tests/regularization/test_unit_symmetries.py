"""Units permuted and rescaled in real networks: the same outputs, other parameters."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from tests.regularization.unit_models import (
    Reading,
    Squeezed,
    Tied,
    Turned,
    convolutional,
    mlp,
)
from vademecum.convolution import DenseNet, LeNet5, ResNet
from vademecum.models import evaluation
from vademecum.regularization import permute_units, rescale_units

CHANGES = {"permuted": permute_units, "rescaled": rescale_units}


X3 = torch.ones(1, 3)
IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
MODELS = {
    "mlp": (lambda: mlp(nn.ReLU(), nn.ReLU()), torch.randn(5, 3), (2, 2)),
    "tanh": (lambda: mlp(nn.Tanh(), nn.ReLU()), torch.randn(5, 3), (2, 1)),
    "prelu": (lambda: mlp(nn.PReLU(4, init=0.3)), torch.randn(5, 3), (1, 1)),
    "convolutional": (convolutional, IMAGES, (3, 3)),
    "turned": (Turned, IMAGES, (2, 2)),
    "sequences": (lambda: mlp(nn.ReLU()), torch.randn(2, 7, 3), (1, 1)),
    "resnet": (lambda: ResNet(18, 3, width=4), torch.randn(2, 3, 32, 32), (20, 20)),
    "lenet": (lambda: LeNet5(3), torch.randn(2, 1, 32, 32), (4, 4)),
    "tied": (Tied, torch.tensor([[0, 3, 6], [1, 1, 2]]), (2, 0)),
    "squeezed": (Squeezed, IMAGES, (3, 1)),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 2, 2), nn.ReLU(), nn.Conv2d(4, 2, 1)),
        IMAGES, (1, 1),
    ),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), torch.randn(2, 5, 8),
        (1, 1),
    ),
}  # fmt: skip


def prepared(make):
    model = make()
    with torch.no_grad():
        for name, buffer in model.named_buffers():  # statistics that are not the same for all
            if "running" in name:
                buffer.copy_(torch.rand_like(buffer) + 0.5)
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model.double()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", MODELS)
def test_the_same_function(name, change):
    make, x, counts = MODELS[name]
    model, count = prepared(make), counts[list(CHANGES).index(change)]
    x = x.double() if x.is_floating_point() else x
    before = {k: v.clone() for k, v in model.state_dict().items()}
    if not count:
        with pytest.raises(ValueError, match="model must have units that can change, got none"):
            CHANGES[change](model, x)
        return
    found = CHANGES[change](model, x, generator=torch.Generator().manual_seed(5))
    assert len(found.layers) == count
    with evaluation(model), evaluation(found.model), torch.no_grad():
        for inputs in (x, x if name == "tied" else 2 * x + torch.randn_like(x)):
            torch.testing.assert_close(found.model(inputs), model(inputs), rtol=1e-9, atol=1e-11)
    moved = [k for k, v in found.model.state_dict().items() if not torch.equal(v, before[k])]
    assert len(moved) >= 2 * count - (name == "tied")
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert model.training
    assert found.model.training


def test_training_mode_is_the_same_function_too():
    model = prepared(convolutional)
    model[9] = nn.Identity()  # no dropout
    for change in (permute_units, rescale_units):
        other = change(model, IMAGES.double()).model
        x = torch.randn(4, 3, 16, 16).double()
        torch.testing.assert_close(other(x), model(x), rtol=1e-8, atol=1e-10)


def at(model, place):
    return model.get_parameter(place)


def test_permute_units_by_hand():
    model = mlp(nn.ReLU())
    order = torch.tensor([2, 0, 3, 1])
    found = permute_units(model, torch.ones(1, 3), permutations={"0": order})
    assert torch.equal(at(found.model, "0.weight"), at(model, "0.weight")[order])
    assert torch.equal(at(found.model, "0.bias"), at(model, "0.bias")[order])
    assert torch.equal(at(found.model, "2.weight"), at(model, "2.weight")[:, order])
    assert torch.equal(found.layers["0"], order)
    assert found.left == {"2": "they are outputs of the model"}


def test_rescale_units_by_hand():
    model, c = mlp(nn.LeakyReLU()), torch.tensor([2.0, 0.5, 4.0, 1.0])
    found = rescale_units(model, torch.ones(1, 3), scales={"0": c})
    assert torch.equal(at(found.model, "0.weight"), at(model, "0.weight") * c[:, None])
    assert torch.equal(at(found.model, "0.bias"), at(model, "0.bias") * c)
    assert torch.equal(at(found.model, "2.weight"), at(model, "2.weight") / c)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("change", CHANGES)
def test_half_precision_rounds_and_is_no_other_function(change, dtype):
    model, x = mlp(nn.ReLU(), nn.ReLU()).to(dtype), torch.randn(5, 3).to(dtype)
    found = CHANGES[change](model, x)
    assert len(found.layers) == 2
    assert {p.dtype for p in found.model.parameters()} == {dtype}
    with torch.no_grad():
        one, other = (each.double()(x.double()) for each in (model, found.model))
    gap = (other - one).abs().max() / one.abs().max()
    assert gap <= (0 if change == "permuted" else 8 * torch.finfo(dtype).eps) + 1e-12


def test_flattened_channels_move_in_blocks():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(8, 1))
    swap = {"0": torch.tensor([1, 0])}
    found = permute_units(model, torch.ones(1, 1, 2, 2), permutations=swap).model
    assert torch.equal(at(found, "2.weight")[0], at(model, "2.weight")[0].roll(4))


class Computed(nn.Module):
    """The second layer's weight is computed from the first one's, which no graph shows."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))
        self.end = nn.Linear(4, 4)

    def forward(self, x):
        return self.end(F.linear(x, self.weight).relu()) @ (2 * self.weight)


class Half(Computed):
    """It reads a part of its units only."""

    def forward(self, x):
        return F.linear(x, self.weight).relu()[:, :2]


REFUSALS = {
    "normalised weights": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), weight_norm(nn.Linear(4, 2))),
        torch.ones(1, 3), "'0': they are read by",
    ),
    "half": (Half, torch.ones(1, 3), "they are read by getitem"),
    "groups": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 1), nn.ReLU(), nn.Conv1d(4, 2, 1, groups=2)),
        torch.ones(1, 2, 3), "'0': they are read by submodule '2' \\(Conv1d\\)",
    ),
    "softmax": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Softmax(1), nn.Linear(4, 2)),
        torch.ones(1, 3), "'0': they are read by submodule '1' \\(Softmax\\)",
    ),
    "padded": (
        lambda: Reading(lambda h: F.pad(h[:, 1:], (1, 0))), torch.ones(1, 3), "'one': they are read"
    ),
    "filled": (
        lambda: nn.Sequential(nn.Conv1d(3, 4, 1), nn.ConstantPad1d(1, 1.0), nn.Conv1d(4, 2, 1)),
        torch.ones(1, 3, 2), r"'0': they are read by submodule '1' \(ConstantPad1d\)",
    ),
    "used elsewhere": (Computed, torch.ones(1, 3), "uses their weights|that its graph shows"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_followed_is_refused(name, change):
    make, x, message = REFUSALS[name]
    with pytest.raises(ValueError, match=message):
        CHANGES[change](make(), x)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda h: h + 1, "add"),
        (lambda h: torch.div(torch.tensor(2.0), h), "div"),
        (lambda h: h * h, "mul"),
        (lambda h: h.tanh(), "tanh"),
    ],
)
def test_what_does_not_scale_is_permuted_and_never_rescaled(function, name):
    model = Reading(function)
    assert list(permute_units(model, X3).layers) == ["one"]
    with pytest.raises(ValueError, match=f"'one': they are read by {name}"):
        rescale_units(model, X3)


def test_networks_that_concatenate_change_where_they_can():
    x = torch.randn(1, 3, 32, 32)
    found = permute_units(DenseNet(121, 3), x)
    assert found.layers
    assert any("cat" in reason for reason in found.left.values())


ERRORS = [
    (permute_units, {"permutations": {"0": torch.tensor([0, 0, 1, 2])}},
     "must hold each of 0, ..., 3 once"),
    (permute_units, {"permutations": {"0": torch.tensor([0, 1])}}, "must hold each of 0, ..., 3"),
    (permute_units, {"permutations": {"9": torch.tensor([0])}}, "layers among .*got '9'"),
    (permute_units, {"permutations": {"2": torch.tensor([1, 0])}},
     "leave the units of '2' alone: they are outputs"),
    (rescale_units, {"scales": {"0": torch.tensor([1.0, -2.0, 1.0, 1.0])}}, "must be > 0, got -2"),
    (rescale_units, {"scales": {"0": torch.ones(3)}}, "must be 4 wide"),
    (rescale_units, {"scales": {"0": torch.full((4,), torch.nan)}}, "must be finite"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("change", "knobs", "message"), ERRORS)
def test_bad_input(change, knobs, message):
    with pytest.raises(ValueError, match=message):
        change(mlp(nn.ReLU()), X3, **knobs)
    with pytest.raises(ValueError, match="x must be finite"):
        change(mlp(nn.ReLU()), X3 * torch.nan)


def test_layers_that_are_added_have_one_order():
    model = ResNet(18, 3, width=4)
    x, one = torch.randn(1, 3, 32, 32), torch.tensor([1, 0, 3, 2])
    names = ("conv1", "layer1.0.conv2")
    found = permute_units(model, x, permutations=dict.fromkeys(names, one))
    assert torch.equal(found.layers["layer1.1.conv2"], one)
    with pytest.raises(ValueError, match=r"must be the same for 'conv1' and 'layer1\.0\.conv2'"):
        permute_units(model, x, permutations=dict(zip(names, (one, one.flip(0)), strict=True)))


class Habits(nn.Module):
    """It counts its calls in a buffer, works in place, and reads its input by a weight twice."""

    def __init__(self):
        super().__init__()
        self.turn, self.end = nn.Linear(3, 3), nn.Linear(3, 2)
        self.calls = nn.Buffer(torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.end(self.turn(self.turn(x.relu_()).tanh()).tanh())


def test_models_and_inputs_are_left_as_they_were():
    model, x = Habits().double(), torch.randn(2, 3).double()
    before = x.clone()
    with pytest.raises(ValueError, match="reads something else by the same weights"):
        permute_units(model, x)
    assert torch.equal(x, before)
    assert model.calls == 0
