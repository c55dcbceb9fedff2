"""Bounds by norms: a network worked out by hand, and risks that are known."""

import math

import pytest
import torch
from torch import nn

from vademecum.generalization import norm_bounds


def pair(first: nn.Linear, last: nn.Linear, between: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(first, between or nn.ReLU(), last)


def by_hand() -> nn.Sequential:
    """Rows with biases are (3, 0, 4), (0, 4, 3), then (3, 0, 4) and 0."""
    model = pair(nn.Linear(2, 2), nn.Linear(2, 2))
    for p, values in zip(
        model.parameters(),
        ([[3.0, 0.0], [0.0, 4.0]], [4.0, 3.0], [[3.0, 0.0], [0.0, 0.0]], [4.0, 0.0]),
        strict=True,
    ):
        p.data = torch.tensor(values)
    return model


def union(n: int, delta: float, *places: int) -> float:
    """The root, with the places in the grids that the norms are rounded up to."""
    cost = sum(math.log(2 * (abs(j) + 1) * (abs(j) + 2)) for j in places)
    return 3 * math.sqrt((math.log(2 / delta) + cost) / (2 * n))


@pytest.mark.parametrize(("v", "column"), [(2.0, 32.0), (0.5, 8.0)])
def test_norm_bounds_of_two_layers_with_biases(v, column):
    """All 8 inputs are (0, v), and score 3 * 4 + 4 = 16 against 0; with a 1 they have 3 columns."""
    n, delta = 8, 0.1
    x = torch.tensor([[0.0, v]]).expand(n, 2)
    found = norm_bounds(by_hand(), x, torch.zeros(n).long(), delta=delta)
    spectral, frobenius, path = (b.value for b in found.bounds)
    assert found.path == 25  # 3 (3 + 4) + 4
    length = math.sqrt(n * v**2 + n)
    # hidden rows of length 5, 5 and the row that keeps 1; sqrt(51) * 5 / 16 goes up to 4 = 2^2
    T = 4 * 2 * (math.sqrt(2 * math.log(2) * 2) + 1) * length / n * 4
    assert frobenius == pytest.approx(T + union(n, delta, 2))
    # 25 / 16 goes up to 2
    T = 4 * 2 * 2 * math.sqrt(2 + 1 + math.log(3)) * math.sqrt(column) / n * 2
    assert path == pytest.approx(T + union(n, delta, 1))
    # norms of ((4, 5), (0, 1)) and ((3, 4), (0, 1)) are 6.45 and 5.06, sums of rows 10 and 5
    s, b = (8.0, 2**2.5), (2**3.5, 2**2.5)
    ratios = sum((b[i] / s[i]) ** (2 / 3) for i in range(2)) ** 1.5
    T = 72 * math.log(n) * math.sqrt(math.log(2 * 9 + 1)) / 16 / n * length * s[0] * s[1] * ratios
    assert spectral == pytest.approx(8 / n**1.5 + T + union(n, delta, 6, 7, 5, 5, -4))
    assert all(bound.margin == 16 for bound in found.bounds)


def test_a_bias_of_zero_is_a_column_more():
    """The identity with a row that keeps 1 has the norm 1; inputs get a 1, and are 3 wide."""
    n, delta = 1000, 0.05
    layer = nn.Linear(2, 2)
    layer.weight.data, layer.bias.data = torch.eye(2), torch.zeros(2)
    y = torch.arange(n) % 2
    found = norm_bounds(layer, torch.eye(2)[y], y, delta=delta).bounds[0].value
    T = 72 * math.log(n) * math.sqrt(math.log(2 * 9 + 1)) / n * math.sqrt(2 * n) * 2
    assert found == pytest.approx(8 / n**1.5 + T + union(n, delta, 0, 1, 0))


@pytest.mark.parametrize("slope", [3, 3.0])
def test_slopes_count_whole_or_not(slope):
    torch.manual_seed(0)
    model = pair(nn.Linear(3, 3, bias=False), nn.Linear(3, 2, bias=False), nn.LeakyReLU(slope))
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    found = norm_bounds(model, x, y)
    assert found.lipschitz == pytest.approx(3 * math.prod(n.spectral for n in found.layers))
    model[1] = nn.ELU(slope)
    assert norm_bounds(model, x, y).lipschitz == found.lipschitz


def test_units_that_are_not_zero_at_zero():
    torch.manual_seed(0)
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    for unit in (nn.Hardtanh(0.5, 2.0), nn.Sigmoid()):
        (spectral, *_) = norm_bounds(pair(nn.Linear(3, 3), nn.Linear(3, 2), unit), x, y).bounds
        assert spectral.reason == f"{type(unit).__name__.lower()} is not 0 at 0"
    (spectral, *_) = norm_bounds(pair(nn.Linear(3, 3), nn.Linear(3, 2), nn.Tanh()), x, y).bounds
    assert spectral.reason == ""


def test_a_bias_is_not_averaged_away():
    """Pooling divides lengths by 2, but not the 1 that a bias is the weight of."""
    torch.manual_seed(1)
    x, y = torch.rand(30, 1, 8), torch.zeros(30).long()
    values = []
    for biased in (True, False):
        last = nn.Linear(2, 2, bias=biased)
        last.weight.data = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
        if biased:
            last.bias.data.zero_()
        model = nn.Sequential(nn.AvgPool1d(4), nn.Flatten(), last)
        found = norm_bounds(model, x, y)
        assert found.lipschitz == pytest.approx(1.0)  # 2 / sqrt(4)
        values.append(found.bounds[0].value)
    assert values[0] > 1.9 * values[1]


@pytest.mark.parametrize(
    ("pooling", "rho"),
    [
        (nn.AvgPool1d(2, 2, padding=1, count_include_pad=False), 1.0),  # the ends stand alone
        (nn.AvgPool1d(2, 2, padding=1), 0.5**0.5),
        (nn.AvgPool1d(4, 2), 0.5**0.5),  # means of 4, each entry in 2
        (nn.AdaptiveAvgPool1d(1), 8**-0.5),
        (nn.MaxPool1d(3, 2), 2**0.5),
    ],
)
def test_constants_of_pooling(pooling, rho):
    layer = nn.Conv1d(1, 2, 1, bias=False)
    layer.weight.data = torch.tensor([[[3.0]], [[4.0]]])
    model = nn.Sequential(layer, pooling, nn.Flatten())
    with torch.no_grad():
        width = model(torch.zeros(1, 1, 8)).shape[1]
    last = nn.Linear(width, 2, bias=False)
    last.weight.data = torch.eye(2, width)
    found = norm_bounds(model.append(last), torch.randn(6, 1, 8), torch.arange(6) % 2)
    assert found.lipschitz == pytest.approx(5 * rho, rel=1e-5)


def test_pooling_to_several_places_is_refused():
    model = nn.Sequential(
        nn.Conv1d(1, 2, 1), nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(4, 2)
    )
    with pytest.raises(ValueError, match="got adaptive_avg_pool1d in submodule '1'"):
        norm_bounds(model, torch.randn(6, 1, 8), torch.arange(6) % 2)


def test_a_bound_from_one_on_is_vacuous():
    layer = nn.Linear(2, 2, bias=False)
    layer.weight.data = torch.eye(2)
    y = torch.arange(200) % 2
    frobenius = norm_bounds(layer, torch.eye(2)[y], y).bounds[1]
    assert 1 < frobenius.value < 2
    assert frobenius.vacuous


class Chain(nn.Module):
    """A chain that also gives what is inside it, and what no chain gives."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 2), nn.Linear(2, 3)

    def forward(self, x):
        h = self.first(x)
        z = self.last(h)
        return {
            "inside": h,
            "end": z,
            "beside": torch.tensor([[9 * v for v in r] for r in z.tolist()]),
        }


@pytest.mark.usefixtures("unchecked")
def test_what_counts_is_the_end_of_the_chain():
    torch.manual_seed(0)
    x, y = torch.randn(10, 4), torch.arange(10) % 2
    model = Chain()
    found = norm_bounds(model, x, y, output="end")
    plain = norm_bounds(nn.Sequential(model.first, model.last), x, y)
    assert found.bounds == plain.bounds
    for output in ("inside", "beside"):
        with pytest.raises(ValueError, match="output must be what the last layer gives"):
            norm_bounds(model, x, y, output=output)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("n", [20, 150])
def test_norm_bounds_cover_a_risk_of_one_half(depth, n):
    """Labels are fair coins, fitted with margin 1 at the least norm: any classifier errs half."""
    torch.manual_seed(n + depth)
    for bias in (False, True):
        x, y = torch.randn(n, 2 * n), torch.randint(2, (n,))
        w = torch.linalg.lstsq(x.double(), 2.0 * y.double() - 1).solution.float()
        first = nn.Linear(2 * n, 2, bias=bias)
        first.weight.data = torch.stack([-w, w])
        if bias:
            first.bias.data.zero_()
        last = nn.Linear(2, 2, bias=False)
        last.weight.data = torch.eye(2)
        found = norm_bounds(first if depth == 1 else pair(first, last), x, y)
        assert found.errors == 0
        assert all(b.value > 0.5 for b in found.bounds)


def test_norm_bounds_cover_flipped_labels():
    """Two points, a tenth of whose labels is wrong; the bounds are below 1, and above 0.1."""
    torch.manual_seed(0)
    layer = nn.Linear(2, 2, bias=False)
    layer.weight.data = torch.eye(2)
    for _ in range(5):
        which = torch.randint(2, (100_000,))
        y = which ^ (torch.rand(100_000) < 0.1).long()
        for bound in norm_bounds(layer, torch.eye(2)[which], y).bounds[1:]:
            assert 0.1 < bound.value < 0.4
