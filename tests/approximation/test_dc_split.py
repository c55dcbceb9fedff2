"""Networks as differences of convex ones: pointwise, and convexity by a search for bad chords."""

import math

import pytest
import torch
from torch import nn

from vademecum.approximation.convex_split import dc_split
from vademecum.approximation.max_affine import MaxAffine
from vademecum.approximation.pwl import pwl_to_abs
from vademecum.approximation.units import AbsUnit, Maxout
from vademecum.foundations.convexity import convexity_violation
from vademecum.foundations.regions import Box


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 5), nn.Linear(5, 3)

    def forward(self, x):
        return x - self.outer(torch.relu(self.inner(x))) + 1


def normalised():
    norm = nn.BatchNorm1d(4)
    norm.running_mean, norm.running_var = torch.randn(4), torch.rand(4) + 0.5
    norm.weight.data.normal_()
    return nn.Sequential(nn.Linear(3, 4), norm, nn.ReLU(), nn.Dropout(), nn.Linear(4, 2))


MODELS = {
    "affine": lambda: nn.Linear(3, 2),
    "relu": lambda: nn.Sequential(
        nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)
    ),
    "leaky": lambda: nn.Sequential(
        nn.Linear(3, 6), nn.LeakyReLU(0.3), nn.Linear(6, 6), nn.LeakyReLU(-0.5), nn.Linear(6, 1)
    ),
    "abs": lambda: nn.Sequential(nn.Linear(3, 6), AbsUnit(), nn.Linear(6, 6), AbsUnit()),
    "maxout": lambda: nn.Sequential(Maxout(3, 4, 3), nn.Linear(4, 4), Maxout(4, 2, 3)),
    "max_affine": lambda: nn.Sequential(
        nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), MaxAffine(torch.randn(3, 4), torch.randn(3))
    ),
    "hardtanh": lambda: nn.Sequential(
        nn.Linear(3, 6), nn.Hardtanh(-0.4, 0.7), nn.Linear(6, 6), nn.Hardtanh(), nn.Linear(6, 1)
    ),
    "prelu": lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(4, 0.2), nn.Linear(4, 1)),
    "residual": lambda: nn.Sequential(Residual(), Residual()),
    "normalised": normalised,
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 3, 2, padding=1), nn.ReLU(), nn.Conv1d(3, 2, 2),
        nn.MaxPool1d(2), nn.Flatten(), nn.Linear(2, 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_difference_and_convexity(name):
    model = MODELS[name]().double()
    x = 2 * torch.randn(300, 3).double()
    g, h, gap = dc_split(model, x[:50])
    model.eval()
    torch.testing.assert_close(g(x) - h(x), model(x).detach(), rtol=0, atol=1e-11)
    assert gap <= 1e-11
    y = torch.lerp(x, x.flip(0), torch.rand(300, 1).double() ** 4)  # chords of all lengths
    for part in (g, h):
        bump = part((x + y) / 2) - (part(x) + part(y)) / 2
        assert bump.max() <= 1e-11


def test_search_for_bad_chords():
    model = MODELS["relu"]().double()
    box = Box(torch.full((3,), -2.0).double(), torch.full((3,), 2.0).double())
    g, h, _ = dc_split(model, torch.zeros(1, 3).double())
    for f, found in ((model, True), (g, False), (h, False)):
        worst = convexity_violation(lambda z, f=f: f(z)[:, 0], box, chords=512, starts=4, steps=5)
        assert worst.found == found


def test_by_hand():
    """The network is 5 + 3 max(x, 0) - 2 max(x - 1, 0)."""
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    for p, v in zip(
        model.parameters(), ([[1.0], [1.0]], [0.0, -1.0], [[3.0, -2.0]], [5.0]), strict=True
    ):
        p.data = torch.tensor(v)
    x = torch.tensor([[-1.0], [0.5], [3.0]])
    g, h, gap = dc_split(model, x)
    assert g(x).flatten().tolist() == [5.0, 6.5, 14.0]  # 5 + 3 max(x, 0)
    assert h(x).flatten().tolist() == [0.0, 0.0, 4.0]  # 2 max(x - 1, 0)
    assert gap == 0.0


def test_affine_and_convex_networks_have_nothing_to_subtract():
    x = torch.randn(5, 3)
    assert not dc_split(nn.Linear(3, 2), x).h(x).any()
    assert not dc_split(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), x).h(x).any()
    assert not dc_split(Maxout(3, 2, 4), x).h(x).any()


def test_gradients_of_the_parts():
    model = MODELS["relu"]().double()
    x = torch.randn(10, 3).double()
    g, h, _ = dc_split(model, x)
    found, wanted = (
        torch.autograd.grad(f(z).sum(), z)[0]
        for f in (lambda z: g(z) - h(z), model)
        for z in [x.clone().requires_grad_()]
    )
    torch.testing.assert_close(found, wanted)


def test_the_model_is_left_alone_and_the_parts_stay():
    model = normalised()
    x = torch.randn(10, 3)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    g, _, _ = dc_split(model, x)
    value = g(x)
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    for p in model.parameters():
        p.data.zero_()
    assert torch.equal(g(x), value)
    assert torch.equal(g.train()(x), value)


def test_an_expansion_in_absolute_values():
    x, y = torch.arange(6.0).double(), torch.randn(6).double()
    model = pwl_to_abs(x, y)
    g, h, _ = dc_split(model, x[:, None])
    t = torch.linspace(-2, 8, 200, dtype=torch.float64)[:, None]
    torch.testing.assert_close(g(t) - h(t), model(t).detach())
    for part in (g, h):
        assert (part(t)[:, 0].diff(n=2) >= -1e-12).all()


def test_float32():
    model = MODELS["relu"]()
    x = torch.randn(20, 3)
    g, h, gap = dc_split(model, x)
    assert g(x).dtype == torch.float32
    assert gap < 1e-5
    torch.testing.assert_close(g(x) - h(x), model(x).detach(), rtol=0, atol=1e-5)


def deep():
    layers = [layer for _ in range(40) for layer in (nn.Linear(16, 16), nn.ReLU())]
    return nn.Sequential(nn.Linear(3, 16), *layers)


X = torch.linspace(-1, 1, 12).view(4, 3)
ERRORS = [
    (lambda: dc_split(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), X), "got submodule '1' .Tanh"),
    (lambda: dc_split(nn.Linear(2, 1), X), "model does not take inputs of shape"),
    (lambda: dc_split(nn.Linear(3, 1), X[0]), r"x must be a batch of points, got shape \(3,\)"),
    (lambda: dc_split(nn.Linear(3, 1), X * math.nan), "x must be finite"),
    (lambda: dc_split(nn.Linear(3, 1), X.long()), "x must be floating point"),
    (lambda: dc_split(nn.Linear(3, 1), X[:0]), "x must not be empty"),
    (lambda: dc_split(torch.relu, X), "must be an nn.Module"),  # type: ignore[arg-type]
    (lambda: dc_split(nn.ReLU(), X).g(X[:, :2]), r"x must be a batch of shape \(3,\), got \(4, 2"),
    (lambda: dc_split(nn.ReLU(), X).g(X.double()), "x must be torch.float32 as in the split, got"),
    (lambda: dc_split(deep(), X), "lost in the rounding of its convex parts"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", ["relu", "maxout", "residual"])
def test_cuda(name):
    model, x = MODELS[name]().double(), torch.randn(20, 3).double()
    here, there = dc_split(model, x), dc_split(model.cuda(), x.cuda())
    for one, two in zip(here[:2], there[:2], strict=True):
        torch.testing.assert_close(one(x), two(x.cuda()).cpu())
