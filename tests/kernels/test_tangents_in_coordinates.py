"""Tangent kernels of networks in NTK coordinates, and of layers whose bias is named first."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from tests.kernels.test_tangent_kernel import OUTPUTS, close, kernel, rows
from vademecum.kernels import _tangent_passes, empirical_ntk, ntk_parametrize
from vademecum.models import peak_bytes
from vademecum.testing.laws import changes, snapshot


class Words(nn.Module):
    """An embedding, a convolution in groups, and a layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.embed, self.groups = nn.Embedding(9, 6, padding_idx=0), nn.Conv1d(6, 8, 3, groups=2)
        self.twice, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.groups(self.embed(tokens).mT).mT.tanh()
        return self.last(self.twice(self.twice(h).sin()).tanh().mean(1))


class Attentive(nn.Module):
    """Attention of torch, whose projections are parameters without a layer."""

    def __init__(self):
        super().__init__()
        self.attend, self.last = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.attend(x, x, x, need_weights=False)[0].mean(1))


def tied() -> nn.Module:
    model: Any = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3))
    model[2].weight = model[0].weight
    return model


MODELS = {
    "words": (Words, lambda n: torch.randint(9, (n, 7))),
    "images": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)),
        lambda n: torch.randn(n, 2, 4, 5),
    ),
    "attentive": (Attentive, lambda n: torch.randn(n, 4, 6)),
    "tied": (tied, lambda n: torch.randn(n, 6)),
}  # fmt: skip


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("name", MODELS)
def test_networks_in_ntk_coordinates(name, outputs):
    torch.manual_seed(2)
    model, data = MODELS[name]
    net = ntk_parametrize(model().double(), weight_variance=1.7, bias_variance=0.6)
    x, other = ((z.double() if z.is_floating_point() else z) for z in (data(5), data(4)))
    J, L, before = rows(net, x), rows(net, other), snapshot(net)
    close(empirical_ntk(net, x, outputs=outputs), kernel(J, J, outputs))
    close(empirical_ntk(net, x, other, outputs=outputs, memory=2**20), kernel(J, L, outputs))
    assert not list(changes(before, snapshot(net)))
    assert all(parametrize.is_parametrized(m) for m in net.modules() if isinstance(m, nn.Linear))


def test_coordinates_cost_no_more_than_parameters():
    net, x = nn.Sequential(nn.Linear(40, 90), nn.ReLU(), nn.Linear(90, 8)), torch.randn(30, 40)
    plain = peak_bytes(lambda: empirical_ntk(net, x, outputs="trace"))
    ntk_parametrize(net)
    weights = sum(p.nbytes for p in net.parameters())
    assert peak_bytes(lambda: empirical_ntk(net, x, outputs="trace")) < plain + 2 * weights


def test_coordinates_where_no_rule_helps(monkeypatch):
    monkeypatch.setattr(_tangent_passes, "_divided", lambda f, plan, x: (None, plan, f))
    net = ntk_parametrize(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double())
    x = torch.randn(6, 4).double()
    J = rows(net, x)
    close(empirical_ntk(net, x), kernel(J, J))


class Halved(nn.Module):
    def forward(self, w: Tensor) -> Tensor:
        return w / 2


def test_other_parametrisations_beside_coordinates():
    net: Any = ntk_parametrize(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double())
    parametrize.register_parametrization(net[0], "weight", Halved())
    parametrize.register_parametrization(net[2], "bias", Halved())
    x = torch.randn(6, 4).double()
    J = rows(net, x)
    close(empirical_ntk(net, x), kernel(J, J))


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_biases_that_are_named_before_their_weights(outputs):
    """As after pruning, or back from other coordinates: they count once."""
    net: Any = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    prune.random_unstructured(net[0], "weight", 0.3)
    prune.remove(net[0], "weight")
    ntk_parametrize(ntk_parametrize(net), remove=True)
    assert next(name for name, _ in net.named_parameters()) == "0.bias"
    x = torch.randn(6, 4).double()
    J = rows(net, x)
    close(empirical_ntk(net, x, outputs=outputs), kernel(J, J, outputs))
