"""Norms of networks against dense matrices and Jacobians, and bounds against their formulas."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.convolution import conv_matrix
from vademecum.generalization import norm_bounds
from vademecum.models import mlp

CONVOLUTIONS = [
    (nn.Conv2d(3, 5, 3, padding=1), (3, 7, 6)),
    (nn.Conv2d(3, 4, 3, stride=2, padding=1), (3, 8, 7)),
    (nn.Conv2d(4, 6, 3, dilation=2, groups=2), (4, 8, 8)),
    (nn.Conv1d(2, 3, 4, stride=3, bias=False), (2, 20)),
    (nn.Conv3d(1, 2, 2, padding=1), (1, 4, 3, 3)),
    (nn.Conv2d(4, 3, 2, stride=2), (4, 6, 6)),
]


@pytest.mark.parametrize(("layer", "shape"), CONVOLUTIONS)
def test_convolutions_are_dense_matrices(layer, shape):
    torch.manual_seed(0)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    width = math.prod(conv_matrix(layer, shape).out_shape)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(width, 2))
    x = torch.randn(4, *shape)
    found = norm_bounds(model, x, torch.tensor([0, 1, 0, 1])).layers[0]
    A = conv_matrix(layer, shape).dense().detach().double()
    norm = float(torch.linalg.matrix_norm(A, 2))
    assert found.shape == tuple(A.shape)
    assert found.spectral == pytest.approx(norm, rel=1e-3)
    assert norm <= found.spectral_high * (1 + 1e-6)
    assert found.spectral_high < 4 * norm
    assert found.frobenius == pytest.approx(float(A.norm()), rel=1e-5)
    assert found.rows == pytest.approx(float(A.norm(dim=1).sum()), rel=1e-5)
    if layer.bias is not None:
        places = A.shape[0] // len(layer.bias)
        want = float(layer.bias.detach().norm()) * places**0.5
        assert found.bias == pytest.approx(want, rel=1e-5)


def test_zero_padding_at_stride_one_is_bounded_closely():
    torch.manual_seed(1)
    layer = nn.Conv2d(3, 8, 3, padding=1)
    model = nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16 * 16, 2))
    found = norm_bounds(model, torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 0, 1])).layers[0]
    assert found.spectral <= found.spectral_high <= 1.05 * found.spectral
    reshaped = float(torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2))
    assert found.spectral > 1.2 * reshaped  # which is what is often taken for it


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "length"),
    [
        ([1.0, -1.0], 1, 1, 4),  # a torus of 3 has no frequency as high
        ([1.0, 1.0, 1.0], 2, 2, 41),  # all three entries meet the same inputs
        ([1.0, 1.0, 1.0, 1.0], 2, 1, 40),  # two do
        ([1.0, 1.0, 1.0, 1.0], 4, 6, 60),
    ],
)
def test_the_upper_bound_holds_for_kernels_that_attain_it(kernel, stride, dilation, length):
    layer = nn.Conv1d(1, 1, len(kernel), stride=stride, dilation=dilation, bias=False)
    layer.weight.data = torch.tensor([[kernel]])
    A = conv_matrix(layer, (1, length)).dense().detach().double()
    norm = float(torch.linalg.matrix_norm(A, 2))
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(len(A), 2))
    found = norm_bounds(model, torch.randn(4, 1, length), torch.tensor([0, 1, 0, 1])).layers[0]
    assert norm <= found.spectral_high <= 1.2 * norm


def network() -> nn.Sequential:
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 6, 3), nn.SiLU(), nn.AvgPool2d(2), nn.Dropout(0.5), nn.Flatten(),
        nn.Linear(6, 5), nn.ELU(), nn.Linear(5, 3),
    )  # fmt: skip
    model(3 * torch.randn(50, 2, 8, 8) + 1)  # running statistics
    return model.eval()


def test_no_jacobian_is_longer_than_the_constant():
    model, x = network(), torch.randn(10, 2, 8, 8)
    found = norm_bounds(model, x, torch.arange(10) % 3)
    assert [layer.kind for layer in found.layers] == ["conv", "scale", "conv", "linear", "linear"]
    for each in x:
        J = torch.autograd.functional.jacobian(lambda v: model(v[None])[0], each)
        assert float(torch.linalg.matrix_norm(J.flatten(1), 2)) <= found.lipschitz_high
    assert found.lipschitz <= found.lipschitz_high
    assert found.path == math.inf
    assert [b.reason != "" for b in found.bounds] == [False, True, True]
    assert "does not apply: gelu is not homogeneous" in found.table()


def test_a_linear_network_attains_the_constant():
    torch.manual_seed(3)
    Q = torch.linalg.qr(torch.randn(4, 4)).Q
    first, last = nn.Linear(4, 4, bias=False), nn.Linear(4, 3, bias=False)
    model = nn.Sequential(first, last)
    first.weight.data = 2.0 * Q
    found = norm_bounds(model, torch.randn(6, 4), torch.arange(6) % 3)
    want = float(torch.linalg.matrix_norm((last.weight @ first.weight).detach(), 2))
    assert found.lipschitz == pytest.approx(want, rel=1e-5)


def test_path_norm_is_a_sum_over_paths():
    torch.manual_seed(4)
    model = mlp([3, 5, 4, 2], nn.ReLU)
    found = norm_bounds(model, torch.randn(6, 3), torch.arange(6) % 2)
    W = [m.weight.detach().abs() for m in model if isinstance(m, nn.Linear)]
    b = [m.bias.detach().abs() for m in model if isinstance(m, nn.Linear)]
    want = [0.0, 0.0]
    for k in range(2):
        for j in range(4):
            inner = sum(float(W[1][j, i] * (W[0][i].sum() + b[0][i])) for i in range(5))
            want[k] += float(W[2][k, j]) * (inner + float(b[1][j]))
        want[k] += float(b[2][k])
    assert found.path == pytest.approx(max(want), rel=1e-5)
    product = math.prod(float(w.norm()) for w in W)
    assert found.frobenius == pytest.approx(product, rel=1e-5)


def test_margins_and_errors():
    layer = nn.Linear(2, 3, bias=False)
    layer.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    x = torch.tensor([[3.0, 1.0], [1.0, 3.0], [0.0, 5.0], [-1.0, -2.0]])
    found = norm_bounds(layer, x, torch.tensor([0, 0, 1, 2]))
    want = torch.quantile(torch.tensor([2.0, -2.0, 5.0, 1.0]).double(),
                          torch.tensor([0.01, 0.1, 0.25, 0.5, 0.75, 0.9]).double())  # fmt: skip
    torch.testing.assert_close(found.margins, want)
    assert found.errors == 0.25
    wrong = norm_bounds(layer, x[:2], torch.tensor([1, 0]))
    assert all(b.reason == "no margin is positive" for b in wrong.bounds)


def test_norm_bounds_are_their_formulas():
    """One linear map without bias and examples of margin 1: all norms are powers of two."""
    n, delta = 1000, 0.05
    x = torch.zeros(1000, 2)
    x[::2, 0], x[1::2, 1] = 1.0, 1.0
    layer = nn.Linear(2, 2, bias=False)
    layer.weight.data = torch.eye(2)
    y = torch.arange(1000) % 2
    spectral, frobenius, path = norm_bounds(layer, x, y, delta=delta).bounds

    def root(*places: int) -> float:
        union = sum(math.log(2 * (abs(j) + 1) * (abs(j) + 2)) for j in places)
        return 3 * math.sqrt((math.log(2 / delta) + union) / (2 * n))

    size = math.sqrt(1000)
    T = 8 / n**1.5 + 72 * math.log(n) * math.sqrt(math.log(9)) / n * size * 2
    assert spectral.value == pytest.approx(T + root(0, 1, 0))  # the sum of rows is 2 = 2^1
    T = 4 * 2 * (math.sqrt(2 * math.log(2)) + 1) * size / n
    assert frobenius.value == pytest.approx(T + root(0))
    T = 4 * 2 * 2 * math.sqrt(2 + math.log(2)) * math.sqrt(500) / n
    assert path.value == pytest.approx(T + root(0))
    assert all(b.margin == 1 for b in (spectral, frobenius, path))


def test_many_examples_make_a_bound_that_says_something():
    x = torch.zeros(200_000, 2)
    x[::2, 0], x[1::2, 1] = 1.0, 1.0
    layer = nn.Linear(2, 2, bias=False)
    layer.weight.data = torch.eye(2)
    found = norm_bounds(layer, x, torch.arange(200_000) % 2)
    assert [b.vacuous for b in found.bounds] == [True, False, False]
    assert found.table().count("below 1") == 2


class Shortcut(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.inner(x)


@pytest.mark.usefixtures("unchecked")
def test_errors():
    x, y, chain = torch.randn(6, 4), torch.arange(6) % 2, "model must be a chain of linear layers"
    infinite = nn.Linear(4, 2)
    nn.init.constant_(infinite.bias, torch.inf)
    table: list[tuple[Any, ...]] = [
        (Shortcut(), x, y, chain + r".*got add in"),
        (nn.Sequential(nn.Linear(4, 2), nn.LayerNorm(2)), x, y, "got layer_norm in submodule '1'"),
        (nn.Sequential(nn.Linear(4, 2), nn.Softmax(1)), x, y, "got softmax in submodule '1'"),
        (
            nn.Conv1d(2, 2, 3, padding=1, padding_mode="circular"),
            torch.randn(6, 2, 4),
            y,
            "got pad in the model",
        ),
        (nn.Identity(), x, y, "model must have a layer with weights, got none"),
        (nn.Linear(4, 1), x, y, "model must give scores of at least two classes"),
        (nn.Linear(4, 2), x, y + 1, "y must be 6 classes from 0 to 1"),
        (nn.Linear(4, 2), x, y.double(), "y must be 6 classes from 0 to 1"),
        (nn.Linear(4, 2), x[:1], y[:1], "x must have at least 2 examples, got 1"),
        (nn.Linear(4, 2), x * torch.nan, y, "x must be finite, got nan"),
        (nn.Sequential(infinite, nn.ReLU()), x, y, "model must give finite scores"),
    ]
    for model, inputs, labels, message in table:
        with pytest.raises(ValueError, match=message):
            norm_bounds(model, inputs, labels)
    with pytest.raises(ValueError, match="delta must be < 1"):
        norm_bounds(nn.Linear(4, 2), x, y, delta=1.0)


def test_the_model_is_left_alone():
    model, x, y = network().train(), torch.randn(6, 2, 8, 8), torch.arange(6) % 3
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()
    first = norm_bounds(model, x, y, generator=torch.Generator().manual_seed(0))
    assert model.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    again = norm_bounds(model, x, y, generator=torch.Generator().manual_seed(0))
    assert first.lipschitz == again.lipschitz
