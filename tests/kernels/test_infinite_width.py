"""Networks of infinite width against closed forms, loops over pixels and wide networks."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.kernels.wide_oracles import Pixels, dense_relu, finite_kernels
from vademecum.kernels import infinite_width
from vademecum.kernels.wide._architecture import Network
from vademecum.kernels.wide._positions import joint_diagonal

W, B = 1.7, 0.3


class Residual(nn.Module):
    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.inner(x)


def mlp(n: int = 5, activation: Any = nn.ReLU, d: int = 3, bias: bool = True) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(d, n, bias=bias), activation(), nn.Linear(n, n + 1, bias=bias), activation(),
        nn.Linear(n + 1, 2, bias=bias),
    )  # fmt: skip


def inputs(*shape: int, seed: int = 0, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("bias", [True, False])
def test_dense_relu_is_the_arc_cosine_recursion(bias):
    x, y = inputs(5, 3), inputs(4, 3, seed=1)
    limit = infinite_width(mlp(bias=bias), weight_variance=W, bias_variance=B)
    b = B if bias else 0.0
    for other in (None, y):
        nngp, ntk = dense_relu(x, x if other is None else other, 2, W, b)
        torch.testing.assert_close(limit.nngp(x, other), nngp, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(limit.ntk(x, other), ntk, rtol=1e-12, atol=1e-13)
    both = limit.diagonal(x)
    nngp, ntk = dense_relu(x, x, 2, W, b)
    torch.testing.assert_close(both.nngp, nngp.diagonal(), rtol=1e-12, atol=0)
    torch.testing.assert_close(both.ntk, ntk.diagonal(), rtol=1e-12, atol=0)
    torch.testing.assert_close(limit.ntk.diagonal(x), ntk.diagonal(), rtol=1e-12, atol=0)
    torch.testing.assert_close(limit.nngp.diagonal(x), nngp.diagonal(), rtol=1e-12, atol=0)


CONVOLUTIONS = {
    "valid": {},
    "padded": {"padding": 1},
    "strided": {"stride": 2, "padding": 1},
    "dilated": {"dilation": 2, "padding": 2},
    "circular": {"padding": 1, "padding_mode": "circular"},
    "reflected": {"padding": 1, "padding_mode": "reflect", "stride": 2},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("end", ["flatten", "global average", "pool and flatten"])
def test_convolutions_on_small_images_by_loops_over_pixels(name, end):
    """A 4 x 4 image, with covariances between pixels only where something is pooled."""
    options = dict(CONVOLUTIONS[name])
    x, y = inputs(2, 2, 4, 4), inputs(2, 2, 4, 4, seed=1)
    layers = [nn.Conv2d(2, 3, 2, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 3, **options), nn.ReLU()]
    tail = {
        "flatten": [nn.Flatten()],
        "global average": [nn.AdaptiveAvgPool2d(1), nn.Flatten()],
        "pool and flatten": [nn.AvgPool2d(2), nn.Flatten()],
    }[end]
    model = nn.Sequential(*layers, *tail, nn.LazyLinear(2))
    model(x.float())  # which gives the last layer its width
    limit = infinite_width(model, weight_variance=W, bias_variance=B)
    mode = options.pop("padding_mode", "zeros")
    pixels = Pixels(x[0], y[1]).conv(2, W, B, padding=1).relu()
    pixels.conv(3, W, B, mode=mode, **options).relu()
    if end == "global average":
        pixels.mean()
    elif end == "pool and flatten":
        pixels.pool(2)
    nngp, ntk = pixels.dense(W, B)
    assert limit.nngp(x, y)[0, 1].item() == pytest.approx(nngp, rel=1e-12)
    assert limit.ntk(x, y)[0, 1].item() == pytest.approx(ntk, rel=1e-12)
    mixes = Network(model, 1e-9, None).program(x).mixes
    assert mixes == (end != "flatten")
    torch.testing.assert_close(limit.ntk(x), limit.ntk(x, x.clone()), rtol=1e-12, atol=0)
    torch.testing.assert_close(limit.ntk(x).diagonal(), limit.diagonal(x).ntk, rtol=1e-12, atol=0)


def test_sequences_by_loops_over_positions():
    x, y = inputs(2, 3, 7), inputs(1, 3, 7, seed=1)
    model = nn.Sequential(
        nn.Conv1d(3, 4, 3, stride=2, padding=2), nn.ReLU(), nn.Conv1d(4, 4, 2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 1),
    )  # fmt: skip
    limit = infinite_width(model, weight_variance=W, bias_variance=B)
    pixels = Pixels(x[1], y[0]).conv(3, W, B, stride=2, padding=2).relu().conv(2, W, B).relu()
    nngp, ntk = pixels.mean().dense(W, B)
    assert limit.nngp(x, y)[1, 0].item() == pytest.approx(nngp, rel=1e-12)
    assert limit.ntk(x, y)[1, 0].item() == pytest.approx(ntk, rel=1e-12)


class Tokens(nn.Module):
    """A linear layer for each token, and their mean: a convolution of one tap."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)).mean(1))


def test_channels_at_the_end_are_a_convolution_of_one_tap():
    x = inputs(3, 7, 3)
    convolved = nn.Sequential(
        nn.Conv1d(3, 4, 1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 1)
    )
    one, other = (infinite_width(m, bias_variance=0.2).ntk for m in (Tokens(), convolved))
    torch.testing.assert_close(one(x), other(x.mT), rtol=1e-13, atol=0)


def tail(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ReLU(), *layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(3, 1),
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_padding_of_the_same_size_is_more_at_the_end():
    x = inputs(3, 2, 7, 6)
    same = tail(nn.Conv2d(3, 3, (2, 4), padding="same"))
    padded = tail(nn.ZeroPad2d((1, 2, 0, 1)), nn.Conv2d(3, 3, (2, 4)))
    given = infinite_width(same, bias_variance=B).ntk(x)
    assert given.equal(infinite_width(padded, bias_variance=B).ntk(x))
    wide = tail(nn.Conv2d(3, 3, (2, 4), padding="same", dilation=(3, 1)))
    padded = tail(nn.ZeroPad2d((1, 2, 1, 2)), nn.Conv2d(3, 3, (2, 4), dilation=(3, 1)))
    dilated = infinite_width(wide, bias_variance=B).ntk(x)
    assert dilated.equal(infinite_width(padded, bias_variance=B).ntk(x))
    other = tail(nn.ZeroPad2d((2, 1, 1, 0)), nn.Conv2d(3, 3, (2, 4)))
    assert not torch.allclose(given, infinite_width(other, bias_variance=B).ntk(x), rtol=1e-3)


POOLS = {
    "overlapping": nn.AvgPool2d(3, 2, 1),
    "counting": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "uneven": nn.AvgPool2d((2, 3), ceil_mode=True),
    "adaptive": nn.AdaptiveAvgPool2d((3, 2)),
    "side by side": nn.AvgPool2d((2, 3)),
}


@pytest.mark.parametrize("name", POOLS)
def test_pooling_is_a_linear_map_of_positions(name):
    """A k A^T with the matrix A of the pooling, for signals that are still linear in inputs."""
    pool, (h, w) = POOLS[name], (7, 8)
    x, y = inputs(2, 3, h, w), inputs(3, 3, h, w, seed=1)
    A = pool(torch.eye(h * w, dtype=torch.float64).view(h * w, 1, h, w)).flatten(1).T
    model = nn.Sequential(nn.Conv2d(3, 4, 1), pool, nn.Flatten(), nn.Linear(4 * len(A), 1))
    limit = infinite_width(model, weight_variance=W, bias_variance=B)
    k = W * torch.einsum("ncp,mcq->nmpq", x.flatten(2), y.flatten(2)) / 3 + B
    mean = torch.einsum("op,nmpq,oq->nm", A, k, A) / len(A)
    torch.testing.assert_close(limit.nngp(x, y), W * mean + B, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(limit.ntk(x, y), 2 * W * mean + B, rtol=1e-12, atol=1e-13)


def test_each_axis_of_a_convolution_has_its_own_geometry():
    """A linear network, by the patches that torch takes out of images."""
    geometry: Any = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 3)}
    x, y = inputs(2, 3, 6, 9), inputs(3, 3, 6, 9, seed=1)
    model = nn.Sequential(
        nn.Conv2d(3, 4, (2, 3), **geometry), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)
    )  # fmt: skip
    one, other = (F.unfold(t, (2, 3), **geometry) for t in (x, y))
    k = W * torch.einsum("nfo,mfp->nmop", one, other) / one.shape[1] + B
    found = infinite_width(model, weight_variance=W, bias_variance=B).nngp(x, y)
    torch.testing.assert_close(found, W * k.mean((2, 3)) + B, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("chosen", "to"), [((0, 2), "nmqs"), ((0, 1), "nmrt"), ((1,), "nmprsu")])
def test_equal_positions_along_some_axes(chosen, to):
    """Means of k(p, p') where both agree in chosen axes, by an index sum."""
    k = inputs(2, 3, 4, 5, 6, 4, 5, 6)
    names = {(0, 2): "nmpqrpsr", (0, 1): "nmpqrpqt", (1,): "nmpqrsqu"}[chosen]
    wanted = torch.einsum(f"{names}->{to}", k) / math.prod((4, 5, 6)[i] for i in chosen)
    torch.testing.assert_close(joint_diagonal(k, 3, chosen, True), wanted)


def test_buffers_stay_as_they_are():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return self.layer(x)

    model = Counts()
    infinite_width(model).nngp(inputs(2, 3))
    assert model.calls == 0


def test_layers_that_are_frozen_later():
    x, model = inputs(3, 3), mlp()
    limit = infinite_width(model, bias_variance=B)
    before = limit.ntk(x)
    model[0].requires_grad_(False)
    assert bool((limit.ntk(x).diagonal() < before.diagonal()).all())


def wide_residual() -> nn.Module:
    n = 2**10
    block = Residual(nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n))
    return nn.Sequential(nn.Linear(3, n), block, nn.ReLU(), nn.Linear(n, 1))


def wide_norm() -> nn.Module:
    n = 2**10
    return nn.Sequential(
        nn.Linear(3, n), nn.ReLU(), nn.LayerNorm(n), nn.Linear(n, n),
        nn.LayerNorm(n, elementwise_affine=False), nn.Tanh(), nn.Linear(n, 1),
    )  # fmt: skip


def wide_convolution() -> nn.Module:
    n = 2**8
    return nn.Sequential(
        nn.Conv2d(2, n, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
        nn.Conv2d(n, n, 3, padding=1, padding_mode="circular"), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n, 1),
    )  # fmt: skip


WIDE = {
    "residual": (wide_residual, (3,), 12),
    "normalised": (wide_norm, (3,), 12),
    "convolution": (wide_convolution, (2, 4, 4), 16),
}


@pytest.mark.parametrize("name", WIDE)
def test_tangent_kernels_of_wide_networks(name):
    """Their mean, to five standard errors; what a width n leaves is of the order 1 / n."""
    make, shape, draws = WIDE[name]
    x = inputs(3, *shape, seed=2).float()
    wanted, error = finite_kernels(make, x, W, B, draws)
    found = infinite_width(make(), weight_variance=W, bias_variance=B).ntk(x).double()
    assert bool((error < 0.04 * wanted.diagonal().mean()).all())
    assert bool(((found - wanted).abs() <= 5 * error).all()), (found, wanted, error)


@pytest.mark.parametrize("log_width", [6, 10, 14])
@pytest.mark.parametrize("activation", [torch.cos, F.silu])
def test_covariances_of_random_features(log_width, activation):
    """The mean product of hidden units, over 2**18 of them in networks of each width."""
    x = inputs(3, 4, seed=3)
    n, draws = 2**log_width, 2 ** (18 - log_width)
    chance = torch.Generator().manual_seed(1)
    products = []
    for _ in range(draws):
        weights = torch.randn(4, n, generator=chance, dtype=torch.float64) * math.sqrt(W / 4)
        biases = torch.randn(n, generator=chance, dtype=torch.float64) * math.sqrt(B)
        h = activation(x @ weights + biases)
        products.append(W * h[:, None] * h[None] + B)
    units = torch.cat(products, -1)
    error = units.std(-1) / math.sqrt(units.shape[-1])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 2), nn.Linear(2, 1)

        def forward(self, x):
            return self.two(activation(self.one(x)))

    found = infinite_width(Net(), weight_variance=W, bias_variance=B).nngp(x)
    assert bool(((found - units.mean(-1)).abs() <= 5 * error).all())
