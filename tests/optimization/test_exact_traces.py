"""Which networks the layers' rules are right for: places of factors, and examples in company."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from tests.optimization.test_curvature_trace import IMAGES, X, Y, dense_hessian
from vademecum.models import mlp
from vademecum.optimization import curvature_trace


class Sums(nn.Module):
    """A product with constants that is added to an activation: linear, with two activations."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 3)
        self.register_buffer("constant", torch.arange(16.0).view(4, 4) / 16)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).relu()
        return self.b(torch.addmm(h, h, self.get_buffer("constant")))


class Products(Sums):
    """A product of two activations that is added to a constant."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).relu()
        return self.b(torch.addmm(torch.zeros_like(h), h, h.T @ h / len(h)))


class Centred(nn.Module):
    """Examples that influence each other, which a layer of zeros hides from the outputs."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 3)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).relu()
        return self.b(h - h.mean(0))


EXACT = {
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 2), nn.Flatten(), nn.Linear(18, 3)
        ),
        IMAGES,
    ),
    "inputs are normalised": (
        lambda: nn.Sequential(nn.BatchNorm1d(3), *mlp([3, 4, 3], nn.ReLU)),
        X,
    ),
    "sums of activations": (Sums, X),
}


@pytest.mark.parametrize("name", EXACT)
def test_each_place_of_a_factor_counts(name):
    make, x = EXACT[name]
    torch.manual_seed(0)
    net = make().double()
    found = curvature_trace(net, x, Y)
    assert found.applications == 0
    assert found.value == pytest.approx(float(dense_hessian(net, x, Y).trace()), rel=1e-9)


@pytest.mark.parametrize("make", [Products, Centred])
def test_what_the_rules_do_not_cover_is_probed(make):
    torch.manual_seed(0)
    net = make().double()
    found = curvature_trace(net, X, Y, applications=100)
    assert found.applications == sum(p.numel() for p in net.parameters())
    assert found.value == pytest.approx(float(dense_hessian(net, X, Y).trace()), rel=1e-9)


class Graded(nn.Module):
    """Reads tokens, scales them by a bare parameter, and gives its loss beside its outputs."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(5, 4), nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.rand(4))

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        z = self.out(self.embed(tokens) * self.scale.sin())
        return {"scores": z, "loss": F.cross_entropy(z, tokens % 3)}


def test_what_gives_more_than_a_tensor_is_probed():
    torch.manual_seed(0)
    net, tokens = Graded().double(), torch.tensor([0, 1, 2, 4, 4])
    found = curvature_trace(net, tokens, loss=lambda z, y: z["loss"], applications=100)
    assert found.applications == sum(p.numel() for p in net.parameters())
    theta = {name: p.detach() for name, p in net.named_parameters()}

    def loss(theta: dict[str, Tensor]) -> Tensor:
        return functional_call(net, theta, (tokens,))["loss"]

    H = torch.func.hessian(loss)(theta)
    wanted = sum(H[name][name].reshape(p.numel(), -1).trace() for name, p in theta.items())
    assert found.value == pytest.approx(float(wanted), rel=1e-9)
