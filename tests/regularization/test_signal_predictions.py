"""What theory predicts of layers: closed forms, counts by convolution, and means over draws."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.regularization.signal_models import Code, last
from vademecum.expectations import GaussianExpectations
from vademecum.regularization import signal_propagation
from vademecum.regularization.signal._gaussian_signals import closed_form, through


@pytest.fixture
def x():
    return torch.randn(6, 4, 10, 9, generator=torch.Generator().manual_seed(2)).double()


def test_signal_propagation_predicts_n_v_for_linear_layers():
    layer = nn.Linear(4, 3).double()
    x = torch.tensor([[1.0, 2.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    _, guess = last(layer, x)
    v, b = (p.detach().square().mean() for p in (layer.weight, layer.bias))
    q = 1.0  # (6 + 2) / 8
    assert guess.second_moment == pytest.approx(float(4 * v * q + b))
    cross = 2 / (math.sqrt(6) * math.sqrt(2)) * q  # the cosine of the rows
    assert guess.correlation == pytest.approx(float((4 * v * cross + b) / (4 * v * q + b)))


@pytest.mark.parametrize("options", [
    {"kernel_size": 3, "padding": 1}, {"kernel_size": 3, "stride": 2}, {"kernel_size": (1, 5)},
    {"kernel_size": 3, "padding": 2, "dilation": 2, "stride": (1, 2)},
    {"kernel_size": 5, "padding": "same"}, {"kernel_size": 3, "groups": 2, "padding": 1},
])  # fmt: skip
def test_inputs_of_convolutions_are_counted_at_the_edge(options):
    conv = nn.Conv2d(4, 6, bias=False, **options).double()
    x = torch.ones(1, 4, 8, 7, dtype=torch.float64)
    counts = F.conv2d(
        x, torch.ones_like(conv.weight), None, conv.stride, conv.padding, conv.dilation, conv.groups
    )
    v = float(conv.weight.detach().square().mean())
    assert last(conv, x)[1].second_moment == pytest.approx(v * float(counts.mean()))


@pytest.mark.parametrize("options", [
    {"kernel_size": 3}, {"kernel_size": 4, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 3, "output_padding": 1, "groups": 2, "dilation": 2},
])  # fmt: skip
def test_inputs_of_transposed_convolutions_are_counted(options):
    conv = nn.ConvTranspose2d(4, 6, bias=False, **options).double()
    x = torch.ones(1, 4, 5, 6, dtype=torch.float64)
    ones = nn.ConvTranspose2d(4, 6, bias=False, **options).double()
    nn.init.ones_(ones.weight)
    v = float(conv.weight.detach().square().mean())
    assert last(conv, x)[1].second_moment == pytest.approx(v * float(ones(x).detach().mean()))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.Sequential(nn.Flatten(), nn.Linear(360, 200), nn.ReLU(), nn.Linear(200, 9)),
    "tanh": lambda: nn.Sequential(nn.Flatten(), nn.Linear(360, 200), nn.Tanh(), nn.Linear(200, 9)),
    "convolution": lambda: nn.Sequential(
        nn.Conv2d(4, 40, 3, padding=1), nn.GELU(), nn.Conv2d(40, 8, 3, stride=2)
    ),
    "transposed": lambda: nn.ConvTranspose2d(4, 30, 3, stride=2),
    "batch norm": lambda: nn.Sequential(nn.Conv2d(4, 60, 3), nn.BatchNorm2d(60), nn.LeakyReLU(0.2)),
    "layer norm": lambda: nn.Sequential(nn.Flatten(), nn.Linear(360, 200), nn.LayerNorm(200)),
    "group norm": lambda: nn.Sequential(nn.Conv2d(4, 40, 3), nn.GroupNorm(2, 40), nn.SiLU()),
    "sum": lambda: Code(lambda x, a, b: (h := a(x.flatten(1))) + b(h.relu()), nn.Linear(360, 200),
                        nn.Linear(200, 200)),
    "difference": lambda: Code(lambda x, a, b: a(x.flatten(1)).sub(b(x.flatten(1)), alpha=2),
                               nn.Linear(360, 60), nn.Linear(360, 60)),
    "joined": lambda: Code(lambda x, a, b: torch.cat([a(x), 3 * b(x)], 1).relu() / 2,
                           nn.Conv2d(4, 40, 1), nn.Conv2d(4, 20, 1)),
    "dropout": lambda: Code(lambda x, a, b: b(F.dropout(a(x.flatten(1)), 0.4)), nn.Linear(360, 200),
                            nn.Linear(200, 20)),
    "means": lambda: nn.Sequential(nn.Conv2d(4, 50, 3), nn.AvgPool2d(2), nn.Conv2d(50, 9, 1)),
    "maxima": lambda: nn.Sequential(nn.Conv2d(4, 50, 3), nn.MaxPool2d(2), nn.Conv2d(50, 9, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_predictions_are_means_over_fifty_draws(name, x):
    """Within five standard errors, forward and backward; widths leave a bias below one of them."""
    torch.manual_seed(0)
    model = LAYERS[name]()
    # positions' moments differ: kernels of 3 x 3 over 10 x 9 weigh them with a relative variance of
    # 0.247, so 15 correlations from 360 entries spread by 0.0068, and this is three times that
    spatial = 0.02 * any(isinstance(m, nn.Conv2d) for m in model.modules())
    result = signal_propagation(model, x.float(), draws=50)
    assert all(r.predicted is not None for r in result.rows), result.table()
    for r in result.rows:
        both = [(r.forward, r.predicted), (r.backward, r.predicted_backward)]
        for found, guess in both:
            if guess is None:  # at the output, where it begins
                continue
            assert found is not None
            pairs = [
                (found.second_moment, found.second_moment_error, guess.second_moment),
                (found.correlation, found.correlation_error, guess.correlation),
            ]
            for mean, error, expected in pairs:
                assert mean is not None
                assert error is not None
                assert expected is not None
                # half a percent for widths of some hundred; kernels see the edge less often
                room = 5 * error + 0.005 * abs(expected)
                room += (spatial + 2e-3) * (mean == found.correlation)
                assert abs(mean - expected) < room, (name, r.name, mean, error, expected)


SAME: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "moves": (lambda h: h.view(6, -1).unsqueeze(1).transpose(0, 1).contiguous(), lambda h: h),
    "factors": (lambda h: -(2 * h * 3 / 4), lambda h: -1.5 * h),
    "summands": (lambda h: 1 + h - 3, lambda h: h - 2),
    "reflected": (lambda h: 5 - h, lambda h: 5 - h),
    "itself": (lambda h: h + h, lambda h: 2 * h),
    "square": (lambda h: h.square(), lambda h: h * h),
}


@pytest.mark.parametrize("name", SAME)
def test_arithmetic_is_exact_where_a_map_of_moments_is(name):
    """Of signals as they are, except squares, which are of Gaussian ones."""
    torch.manual_seed(3)
    x = torch.randn(6, 2000).double()
    code, plain = SAME[name]
    if name == "square":
        _, guess = last(Code(lambda x, layer: code(layer(x)), nn.Identity()), x)
        assert guess.second_moment == pytest.approx(3 * float(x.square().mean()) ** 2)
        return
    model = Code(lambda x, layer, end: end(code(layer(x))), nn.Identity(), nn.Identity())
    (_, guess), h = last(model, x), plain(x)
    assert guess.second_moment == pytest.approx(float(h.square().mean()))
    assert guess.variance == pytest.approx(float(h.var(correction=0)), rel=1e-6)


def test_products_with_weights_in_any_spelling_are_linear_layers():
    torch.manual_seed(4)
    weight = nn.Parameter(torch.randn(8, 5).double())
    x = torch.randn(3, 8).double()
    wanted = 8 * float(weight.detach().square().mean() * x.square().mean())
    spellings: list[Callable[[Tensor, Tensor], Tensor]] = [
        torch.matmul,
        torch.mm,
        lambda x, w: x @ w,
        lambda x, w: F.linear(x, w.mT),
        lambda x, w: torch.addmm(torch.zeros(5).double(), x, w),
    ]

    class Product(nn.Module):
        def __init__(self, spelling: Callable[[Tensor, Tensor], Tensor]):
            super().__init__()
            self.weight, self.spelling = weight, spelling

        def forward(self, x: Tensor) -> Tensor:
            return self.spelling(x, self.weight)

    for spelling in spellings:
        model = Product(spelling)
        assert last(model, x)[1].second_moment == pytest.approx(wanted)


def test_alpha_dropout_that_is_on_has_no_prediction():
    def dropped(x, layer, after):
        return after(F.alpha_dropout(layer(x), 0.5, training=True))

    model = Code(dropped, nn.Identity(), nn.Identity())
    found, guess = last(model, 100 * torch.ones(4, 1000))  # begins anew behind the dropout
    assert guess.second_moment == pytest.approx(found.second_moment)


@pytest.mark.parametrize("f", [F.gelu, torch.tanh, F.elu, F.softplus, F.hardtanh, torch.sigmoid])
def test_series_agree_with_double_integrals(f):
    exact = GaussianExpectations(f)
    for q, c in ((0.3, 0.5), (1.0, -0.4), (2.0, 0.95), (1.0, 1.0)):
        found = through(f, None, q, c * q, 0.0)
        wanted = [exact.square(q), exact.product(q, c), exact.mean(q)]
        slopes = [exact.slope(q), exact.slope_product(q, c)]
        kinks = f is F.hardtanh
        assert torch.tensor(found[:3]).allclose(
            torch.stack(wanted).float(), rtol=0, atol=(1e-3 if kinks else 1e-5) * float(wanted[0])
        )
        assert torch.tensor(found[3:]).allclose(
            torch.stack(slopes).float(), rtol=0, atol=(5e-2 if kinks else 1e-4) * float(slopes[0])
        )


def test_a_mean_shifts_the_gaussian():
    found = through(F.gelu, None, 1.25, 1.0, 0.5)  # mean 1/2, variance 1, covariance 3/4
    exact = GaussianExpectations(lambda u: F.gelu(u + 0.5))
    assert found[0] == pytest.approx(float(exact.square(1.0)))
    assert found[1] == pytest.approx(float(exact.product(1.0, 0.75)))
    assert found[2] == pytest.approx(float(exact.mean(1.0)))


def test_small_means_count():
    """E (u)_+^2 = (m^2 + 1) P(z < m) + m p(m) for u of mean m = 0.08 and variance 1."""
    found = through(torch.relu, closed_form("relu"), 1 + 0.08**2, 0.0, 0.08)
    below = 0.5 * (1 + math.erf(0.08 / math.sqrt(2)))
    density = math.exp(-(0.08**2) / 2) / math.sqrt(2 * math.pi)
    assert found[0] == pytest.approx((1 + 0.08**2) * below + 0.08 * density, rel=1e-6)
    assert found[3] == pytest.approx(below, rel=2e-3)  # half the distance of points


def test_what_theory_does_not_know_is_named_and_measured():
    end = nn.Linear(8, 3)
    model = nn.Sequential(nn.Linear(5, 8), nn.Softmax(1), end)
    first, second, third = signal_propagation(model, torch.randn(4, 5)).rows
    assert (first.note, second.note, third.note) == ("", "no prediction: Softmax", "")
    assert second.predicted is None
    assert third.predicted is not None
    v, b = (p.detach().square().mean() for p in (end.weight, end.bias))
    wanted = float(8 * v * second.forward.second_moment + b)
    assert third.predicted.second_moment == pytest.approx(wanted)
    assert first.predicted_backward is None  # its gradient came through what is not known
    assert second.predicted_backward is not None


def test_activations_that_torch_has_not_are_found_by_what_they_do():
    class Smooth(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.04 * x**3)))

    class Centred(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(1, keepdim=True)

    torch.manual_seed(0)
    for kind, known in ((Smooth, True), (Centred, False)):
        model = nn.Sequential(nn.Linear(20, 500), kind(), kind())
        rows = signal_propagation(model, torch.randn(5, 20)).rows[1:]
        assert [r.kind for r in rows] == [kind.__name__] * 2
        assert [r.predicted is not None for r in rows] == [known] * 2
        assert [r.dead is not None for r in rows] == [known] * 2


def test_two_examples_are_one_pair_whose_correlation_has_no_spread():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])  # cosines of pairs: 0, 0 and 1
    of_two, of_three = (signal_propagation(nn.Identity(), x[:n]).rows[0].forward for n in (2, 3))
    assert (of_two.correlation, of_two.correlation_error) == (0, None)
    assert of_three.correlation == pytest.approx(1 / 3)
    means = torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64)  # of each with the others
    assert of_three.correlation_error == pytest.approx(2 * float(means.std()) / math.sqrt(3))
