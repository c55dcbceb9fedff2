"""Norms of per-example gradients against the gradients themselves."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.gradients.nets import NETS, close, make, slowly
from tests.gradients.test_per_example import ERRORS, loop
from vademecum.gradients import example_norms
from vademecum.gradients.example_norms import gradient_norms
from vademecum.gradients.per_example import per_example_gradients
from vademecum.testing import check_instrument
from vademecum.testing.laws import changes, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even")


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("gram", [None, True])
@pytest.mark.parametrize("name", NETS)
def test_they_are_the_norms(name, gram, together, monkeypatch):
    net, x, y = make(name)
    if together:  # as on a GPU
        monkeypatch.setattr(example_norms, "_ONE_BY_ONE", set())
    if gram:  # for all layers that have one
        monkeypatch.setattr(example_norms, "gram_is_smaller", lambda times, size: True)
    before = snapshot(net.train())
    with slowly(name == "recurrent"):
        found = gradient_norms(net, x, y, loss=F.cross_entropy)
    assert not list(changes(before, snapshot(net)))
    close(name, found, loop(net, x, y).to(found.dtype).norm(dim=1))


class Stack(nn.Module):
    """Layers of which many are alike, and some in all but a setting."""

    def __init__(self):
        super().__init__()
        norms = [nn.LayerNorm(4), nn.LayerNorm(4), nn.LayerNorm(4, eps=0.5), nn.LayerNorm(4, 0.5)]
        norms += [nn.RMSNorm(4), nn.RMSNorm(4), nn.RMSNorm(4, eps=0.5)]
        linear = [nn.Linear(4, 4) for _ in range(5)]
        self.inner = nn.ModuleList([*linear, *norms])
        self.last = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.last[2].weight = self.last[0].weight

    def forward(self, x):
        for layer in self.inner:
            x = x + torch.tanh(layer(x))
        x = x.mean(1)
        for layer in self.last:  # with other shapes of what goes in
            x = x + torch.tanh(layer(x))
        return x


@pytest.mark.parametrize("memory", [2**28, 1500, 1])
@pytest.mark.parametrize("gram", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_layers_that_are_taken_together(dtype, gram, memory, monkeypatch):
    """As on a GPU."""
    torch.manual_seed(0)
    net, (x, y) = Stack().to(dtype), (torch.randn(5, 3, 4, dtype=dtype), torch.arange(5) % 4)
    monkeypatch.setattr(example_norms, "gram_is_smaller", lambda times, size: gram)
    formed = spy(monkeypatch)
    wanted = gradient_norms(net, x, y, loss=F.cross_entropy)
    count = len(formed)
    monkeypatch.setattr(example_norms, "_ONE_BY_ONE", set())
    monkeypatch.setattr(example_norms, "_TOGETHER", memory)
    found = gradient_norms(net, x, y, loss=F.cross_entropy)
    torch.testing.assert_close(found, wanted)
    assert (len(formed) < 2 * count) == (memory > 1)


def test_no_gradient_of_a_wide_layer_is_formed(monkeypatch):
    net = nn.Sequential(nn.Conv2d(2, 64, 3), nn.Flatten(), nn.Linear(64, 3)).double()
    x, y = torch.randn(4, 2, 3, 3, dtype=torch.float64), torch.randint(3, (4,))
    wanted = per_example_gradients(net, x, y, loss=F.cross_entropy).norm(dim=1)
    formed = spy(monkeypatch)
    torch.testing.assert_close(gradient_norms(net, x, y, loss=F.cross_entropy), wanted)
    assert formed == [torch.Size([64]), torch.Size([3])]  # the biases


def spy(monkeypatch) -> list[torch.Size]:
    """The shapes of the parameters whose gradients are formed."""
    shapes = []

    def formed(uses, shape, like):
        shapes.append(shape)
        return plain(uses, shape, like)

    plain = example_norms._formed
    monkeypatch.setattr(example_norms, "_formed", formed)
    return shapes


@pytest.mark.parametrize(("times", "formed"), [(1, False), (2, False), (3, True)])
@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_the_smaller_is_formed(kind, times, formed, monkeypatch):
    """The gradient of twelve entries, or two Gram matrices of one for each pair of times."""
    if kind == "linear":
        net, x = nn.Linear(3, 4, bias=False), torch.randn(5, times, 3)
    else:
        net, x = nn.Conv1d(3, 4, 1, bias=False), torch.randn(5, 3, times)
    wanted = loop(net, x, torch.zeros(5), lambda z, y: z.sin().sum()).norm(dim=1)
    shapes = spy(monkeypatch)
    found = gradient_norms(net, x, torch.zeros(5), loss=lambda z, y: z.sin().sum())
    torch.testing.assert_close(found, wanted)
    assert shapes == ([net.weight.shape] if formed else [])


def test_frozen_parameters_are_left_out_on_request():
    net, x, y = make("planar")
    net[0].requires_grad_(False)
    wanted = per_example_gradients(net, x, y, loss=F.cross_entropy, frozen=False).norm(dim=1)
    torch.testing.assert_close(
        gradient_norms(net, x, y, loss=F.cross_entropy, frozen=False), wanted
    )
    assert (gradient_norms(net, x, y, loss=F.cross_entropy) > wanted).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [600.0, 1e-3, 1e5])
def test_half_precision_has_room_for_squares(dtype, size):
    """A norm of 600 has a square beyond the range, one of 0.001 below; 1e5 is beyond itself."""
    net = nn.Linear(9, 4, bias=False).to(dtype)
    x, y = torch.full((2, 9), size / 6, dtype=dtype), torch.zeros(2)
    found = gradient_norms(net, x, y, loss=lambda z, y: z.sum())  # 36 entries of size / 6
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, 6 * x[:, 0].float(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_without_rules(dtype):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, 3))

        def forward(self, x):
            return (self.weight @ x.mT).mT  # examples come last

    x = torch.full((2, 3), 600.0, dtype=dtype)
    found = gradient_norms(Recurrent().to(dtype), x, x, loss=lambda z, y: z.sum())
    torch.testing.assert_close(found, 3 * x[:, 0].float())


def test_laws():
    def instrument(model, data):
        return gradient_norms(model, *data, loss=F.cross_entropy)

    data = torch.randn(6, 2, 3), torch.randint(3, (6,))
    without = {"no_parameters": "there is nothing to differentiate"}
    check_instrument(instrument, nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), data,
                     per_example=True, skip=without)  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_errors(arguments, message):
    model, loss, x, y = arguments
    with pytest.raises(ValueError, match=message):
        gradient_norms(model, x, y, loss=loss)
