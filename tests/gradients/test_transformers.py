"""Networks with parts of transformers: what all examples share, against plain backward passes."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.gradients.nets import call
from tests.gradients.test_jacobian import by_rows
from tests.gradients.test_per_example import loop
from tests.gradients.transformers import MODELS, Conv1D
from vademecum.gradients import example_norms
from vademecum.gradients._independent_rows import study
from vademecum.gradients.example_norms import gradient_norms
from vademecum.gradients.jacobian_operator import jacobian
from vademecum.gradients.network_function import functional
from vademecum.gradients.per_example import per_example_gradients


@pytest.fixture(autouse=True)
def _imported(monkeypatch):
    """As if the class were that of transformers."""
    home = ModuleType("transformers.pytorch_utils")
    home.Conv1D = Conv1D  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(Conv1D, "__module__", home.__name__)
    monkeypatch.setitem(sys.modules, home.__name__, home)


def made(name, n=5):
    torch.manual_seed(0)
    build, inputs = MODELS[name]
    return build().double(), inputs(n), torch.arange(n) % 3


@pytest.mark.parametrize("gram", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_it_agrees_with_a_loop(name, gram, monkeypatch):
    net, x, y = made(name)
    assert study(functional(net), x).covered
    wanted = loop(net, x, y)
    found = per_example_gradients(net, x, y, loss=F.cross_entropy)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)
    monkeypatch.setattr(example_norms, "gram_is_smaller", lambda times, size: gram)
    norms = gradient_norms(net, x, y, loss=F.cross_entropy)
    torch.testing.assert_close(norms, wanted.norm(dim=1), rtol=1e-7, atol=0)


@pytest.mark.parametrize("name", MODELS)
def test_jacobians(name):
    net, x, _ = made(name, 3)
    torch.testing.assert_close(jacobian(net, x).dense(), by_rows(net, x), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["bert", "gpt", "relative"])
def test_portions_do_not_matter(name, monkeypatch):
    """Pairs, and one example that is left over; lengths that are by chance those of portions."""
    for n in (4, 5, 6, 7):
        net, x, y = made(name, n)
        wanted = loop(net, x, y)
        found = per_example_gradients(net, x, y, loss=F.cross_entropy)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)
        with monkeypatch.context() as context:
            context.setattr("vademecum.gradients._independent_rows._PORTION", {"cpu": 1})
            context.setattr("vademecum.gradients._independent_rows._MANY", 2)
            found = per_example_gradients(net, x, y, loss=F.cross_entropy)
            norms = gradient_norms(net, x, y, loss=F.cross_entropy)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(norms, wanted.norm(dim=1))


@pytest.mark.parametrize("name", MODELS)
def test_frozen_parameters_are_left_out_on_request(name):
    net, x, y = made(name)
    parameters = list(net.parameters())
    for p in parameters[::2]:
        p.requires_grad_(False)
    found = per_example_gradients(net, x, y, loss=F.cross_entropy, frozen=False)
    norms = gradient_norms(net, x, y, loss=F.cross_entropy, frozen=False)
    for p in parameters:
        p.requires_grad_(True)
    parts = loop(net, x, y).split([p.numel() for p in parameters], 1)
    wanted = torch.cat(parts[1::2], 1)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(norms, wanted.norm(dim=1))


@pytest.mark.parametrize("name", ["bert", "gpt"])
def test_half_precision(name):
    net, x, y = made(name)
    wanted = loop(net, x, y).norm(dim=1)
    norms = gradient_norms(net.bfloat16(), x, y, loss=F.cross_entropy)
    assert norms.dtype == torch.float32
    # Eight bits, rounded anew by each of about ten steps there and back.
    limit = 20 * 2.0**-8 * float(wanted.max())
    torch.testing.assert_close(norms.double(), wanted, rtol=0, atol=limit)


def test_the_gradient_of_a_tied_head_is_not_formed(monkeypatch):
    net, x, y = made("gpt")
    wanted = loop(net, x, y).norm(dim=1)
    shapes = []
    plain = example_norms._formed

    def formed(uses, shape, like):
        shapes.append(shape)
        return plain(uses, shape, like)

    monkeypatch.setattr(example_norms, "_formed", formed)
    monkeypatch.setattr(example_norms, "gram_is_smaller", lambda times, size: True)
    torch.testing.assert_close(gradient_norms(net, x, y, loss=F.cross_entropy), wanted)
    assert all(len(shape) == 1 for shape in shapes)


def test_outputs_stay_what_they_are():
    for name in MODELS:
        net, x, _ = made(name)
        plan = study(functional(net), x)
        wanted = call(net, x)[[0, 2, 4]]
        torch.testing.assert_close(plan.few.output, wanted.detach(), rtol=1e-9, atol=1e-11)


class Causal(nn.Module):
    """Attention that is told to be causal, with padding besides."""

    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

    def forward(self, h, padding):
        mask = nn.Transformer.generate_square_subsequent_mask(h.shape[1], dtype=h.dtype)
        options = {"key_padding_mask": padding, "attn_mask": mask, "is_causal": True}
        return self.head(self.attention(h, h, h, need_weights=False, **options)[0].mean(1))


def test_causal_attention_sees_no_padding():
    net, y = Causal().double(), torch.tensor([0, 1, 2, 0])
    padding = (
        torch.zeros(4, 5).double().masked_fill(torch.arange(5) > torch.arange(1, 5)[:, None], -1e9)
    )
    x, rows = {"h": torch.randn(4, 5, 4).double(), "padding": padding}, []
    for i in range(4):
        loss = F.cross_entropy(net(**{k: t[i : i + 1] for k, t in x.items()}), y[i : i + 1])
        found = torch.autograd.grad(loss, list(net.parameters()))
        rows.append(torch.cat([g.flatten() for g in found]))
    torch.testing.assert_close(per_example_gradients(net, x, y), torch.stack(rows))


class Positioned(nn.Module):
    """Positions that all examples share, put to use in some way."""

    def __init__(self, use):
        super().__init__()
        self.words, self.positions, self.use = nn.Embedding(9, 6), nn.Embedding(4, 6), use
        self.head = nn.Linear(6, 3)

    def forward(self, tokens):
        h, p = self.words(tokens), self.positions(torch.arange(4)[None])
        return self.head(self.use(h, p).tanh().sum(1))


def changed_later(h, p):
    h = h + p
    p.zero_()
    return h


POSITIONED = {
    "added": lambda h, p: h + p,
    "the first row": lambda h, p: h + p + p[0].square(),
    "one for each": lambda h, p: (h + p) * p.shape[0],
    "a sum": lambda h, p: h + p + p.sum(0),
    "changed later": changed_later,
    "used twice": lambda h, p: (h + p) * p,
}


@pytest.mark.parametrize("name", POSITIONED)
def test_positions_are_copied_only_where_each_example_has_its_own(name):
    torch.manual_seed(0)
    net, x, y = Positioned(POSITIONED[name]).double(), torch.randint(9, (5, 4)), torch.arange(5) % 3
    wanted, rows = loop(net, x, y), by_rows(net, x)
    for _ in range(3):  # what is known of a network does not change what it gives
        found = per_example_gradients(net, x, y, loss=F.cross_entropy)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)
        found = jacobian(net, x).dense()
        torch.testing.assert_close(found, rows, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["bert", "gpt", "vit, expanded"])
def test_several_backward_passes_at_once(name, monkeypatch):
    """As a GPU takes them."""
    monkeypatch.setattr("vademecum.gradients._recorded_pass._ONE_BY_ONE", set())
    monkeypatch.setattr("vademecum.gradients._layer_rules.products._ONE_BY_ONE", set())
    net, x, _ = made(name)
    torch.testing.assert_close(jacobian(net, x).dense(), by_rows(net, x), rtol=1e-9, atol=1e-11)
