"""Networks whose numbers are known: curvature, kernel, signal and calibration in closed form."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine import examine


def gaussian_classes(n=200, d=5, k=3, dtype=torch.float64):
    """Softmax regression with the Bayes rule's weights on unit Gaussians around k means."""
    means = 1.5 * torch.randn(k, d, dtype=dtype)
    y = torch.arange(n) % k
    x = means[y] + torch.randn(n, d, dtype=dtype)
    model = nn.Linear(d, k, dtype=dtype)
    with torch.no_grad():
        model.weight.copy_(means)
        model.bias.copy_(-means.square().sum(1) / 2)
    return model, x, y


def measured(name: str, model: nn.Module, x: torch.Tensor, y: torch.Tensor, **options) -> Any:
    """One section of the dossier."""
    found = examine(model, x, y, sections=[name], generator=seeded(), **options)[name]
    assert found.status == "measured", found.reason + found.traceback
    return found


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_curvature_of_softmax_regression():
    model, x, y = gaussian_classes()
    section = measured("curvature", model, x, y, budget=math.inf)
    p = model(x).softmax(1).detach()
    wide = torch.cat([x, torch.ones(len(x), 1).double()], 1)
    blocks = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    H = torch.einsum("nab,ni,nj->aibj", blocks, wide, wide).reshape(18, 18) / len(x)
    values = torch.linalg.eigvalsh(H).flip(0)
    assert section.largest_eigenvalue == pytest.approx(float(values[0]), rel=1e-6)
    assert section.eigenvalues == pytest.approx(values[:5].tolist(), rel=1e-5)
    assert section.critical_learning_rate == pytest.approx(2 / float(values[0]), rel=1e-6)
    assert section.trace == pytest.approx(float(values.sum()), rel=1e-6)
    assert abs(section.smallest_eigenvalue) < 1e-3 * float(values[0])
    assert section.negative_share == 0
    G = torch.einsum("na,ni->nai", p - nn.functional.one_hot(y, 3), wide).flatten(1)
    mean, total = G.mean(0), float(G.var(0).sum())
    signal = float(mean.square().sum()) - total / len(x)
    assert section.gradient_norm == pytest.approx(float(mean.norm()), rel=1e-6)
    if signal > 0:
        assert section.gradient_noise_scale == pytest.approx(total / signal, rel=1e-6)
    low, high = section["gradient_noise_scale"].error
    assert low <= section.gradient_noise_scale <= high
    assert "no direction of downward curvature" in section.sentence


def test_the_way_down_is_found_among_many_flat_directions():
    """The whole Hessian as a matrix: its smallest eigenvalue is some thousandths of the largest."""
    draw = seeded()
    model = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 1)).double()
    for p in model.parameters():
        p.data = torch.randn(p.shape, generator=draw, dtype=p.dtype) / p.shape[-1] ** 0.5
    x = torch.randn(80, 5, generator=draw, dtype=torch.float64)
    y = model(x).detach() + 0.1 * torch.randn(80, 1, generator=draw, dtype=torch.float64)
    section = measured("curvature", model, x, y, budget=math.inf)
    names, shapes = zip(*((name, p.shape) for name, p in model.named_parameters()), strict=True)

    def loss(theta):
        parts = theta.split([shape.numel() for shape in shapes])
        weights = {n: t.view(shape) for n, t, shape in zip(names, parts, shapes, strict=True)}
        return (torch.func.functional_call(model, weights, (x,)) - y).square().mean()

    theta = nn.utils.parameters_to_vector(model.parameters()).detach()
    values = torch.linalg.eigvalsh(torch.func.hessian(loss)(theta))
    assert section.largest_eigenvalue == pytest.approx(float(values[-1]), rel=1e-5)
    assert section.smallest_eigenvalue == pytest.approx(float(values[0]), rel=0.01)
    assert -0.01 < values[0] / values[-1] < -0.001
    assert "there is a way down" in section.sentence


def test_kernel_of_softmax_regression():
    model, x, y = gaussian_classes(120)
    section = measured("kernel", model, x, y, budget=math.inf)
    K = x @ x.T + 1
    values = torch.linalg.eigvalsh(K).flip(0)
    assert section.largest_eigenvalue == pytest.approx(float(values[0]), rel=1e-9)
    assert section.trace == pytest.approx(3 * float(K.trace()), rel=1e-9)
    assert section.rank == 18  # six features for each of three outputs
    assert section.condition == pytest.approx(float(values[0] / values[5]), rel=1e-6)
    assert section.lazy_ratio == 0
    assert (
        section.alignment > section.alignment_by_chance + 5 * section["alignment_by_chance"].error
    )
    hot = nn.functional.one_hot(y, 3).double()
    residual = hot - model(x).detach()
    basis = torch.linalg.svd(torch.cat([x, torch.ones(120, 1)], 1), full_matrices=False)[0]
    left = residual - basis @ (basis.T @ residual)
    share = float(left.square().sum() / residual.square().sum())
    assert section.unlearnable_share == pytest.approx(share, rel=1e-6)
    missed, spread = hot - model(x).softmax(1).detach(), hot - hot.mean(0)
    part = float(missed.square().sum() / spread.square().sum())
    assert section.left_to_learn == pytest.approx(part, rel=1e-6)
    assert section.twin_accuracy > 0.5
    assert section.own_accuracy > 0.5


def test_steps_that_a_kernel_predicts():
    """A diagonal regression: the residual of each direction falls by e in lambda_max / lambda."""
    x = torch.diag(torch.tensor([4.0, 2.0, 1.0, 0.5])).double()
    model = nn.Linear(4, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    y = torch.tensor([[0.0], [0.0], [0.0], [1.0]]).double()  # along the slowest
    section = measured("kernel", model, x, y)
    rates = torch.tensor([16.0, 4.0, 1.0, 0.25])
    assert section.steps == pytest.approx((16.0 / rates).tolist())
    assert section.steps_to_a_tenth == pytest.approx(64 * math.log(10), rel=1e-6)
    assert section.unlearnable_share == 0


def deep(bias: float) -> nn.Module:
    layers: list[nn.Module] = []
    for i in range(4):
        layer = nn.Linear(32, 32)
        nn.init.normal_(layer.weight, std=(2 / 32) ** 0.5)
        nn.init.constant_(layer.bias, bias if i == 1 else 0.0)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(32, 3))


def test_what_gradients_cannot_change_is_never_learned():
    """A line through zero: of a residual the part across the inputs stays."""
    model = nn.Linear(2, 1, bias=False)
    x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [2.0, 0.0], [2.0, 0.3], [1.0, 1.0]])
    y = torch.tensor([[1.0], [-1.0], [1.0], [-1.0], [0.5]])
    section = measured("kernel", model, x, y)
    r = (y - model(x)).detach().double()
    left = r - x.double() @ torch.linalg.lstsq(x.double(), r).solution
    assert section.rank == 2
    assert section.unlearnable_share == pytest.approx(float(left.square().sum() / r.square().sum()))
    assert section.steps_to_a_tenth == math.inf


def test_dead_units_are_seen():
    x, y = torch.randn(50, 32) / 4, torch.arange(50) % 3
    dead = measured("signal", deep(-10.0), x, y)
    assert dead.worst_dead == 1.0
    assert dead["worst_dead"].method == "3 ReLU"
    assert dead.dead_share == pytest.approx(3 / 4, abs=0.02)  # constant ones after it as well
    assert dead.vanishing_index == -math.inf
    assert "no gradient reaches the first layer" in dead.sentence
    alive = measured("signal", deep(0.0), x, y)
    assert alive.dead_share < 0.2
    assert abs(alive.vanishing_index) < 1


def test_vanishing_index_of_a_chain():
    """Halving ten times, with a square of the length of the gradient that is known."""
    layers = [nn.Linear(8, 8, bias=False) for _ in range(10)]
    for layer in layers:
        nn.init.eye_(layer.weight)
        layer.weight.data.mul_(0.5)
    model, x = nn.Sequential(*layers), torch.randn(30, 8)
    section = measured("signal", model, x, torch.randn(30, 8))
    assert section.vanishing_index == pytest.approx(9 * math.log10(0.5), rel=1e-5)
    assert section.layers == 10
    assert section.init_factor > 1.5


class Scores(nn.Module):
    """Scores that are given, times a factor; with a parameter, so that there is a device."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x):
        return self.factor * x


@pytest.fixture
def drawn():
    """Scores, and classes that are drawn from their softmax."""
    z = 2 * torch.randn(2000, 4)
    return z, torch.multinomial(z.softmax(1), 1)[:, 0]


def test_calibrated_scores(drawn):
    z, y = drawn
    section = measured("calibration", Scores(1.0), z, y)
    low, high = section["calibration_error"].error
    assert low < 0.02
    assert section.calibration_error <= high < 0.06
    low, high = section["best_temperature"].error
    assert low < section.best_temperature < high
    assert abs(section.best_temperature - 1) < high - low < 0.3  # four standard errors
    assert abs(section.overconfidence) < 4 * section["overconfidence"].error


def test_scores_times_ten_thousand(drawn):
    z, y = drawn
    section = measured("calibration", Scores(1e4), z, y)
    assert section.confidence > 0.999
    assert section.calibration_error == pytest.approx(1 - section.accuracy, abs=0.01)
    assert section["calibration_error"].error[0] > 0.2
    assert section.best_temperature == pytest.approx(1e4, rel=0.2)
    assert section.log_loss > 10 * section.log_loss_at_best
    assert "too sure" in section.sentence
    assert "divide its scores by" in section.sentence


def test_fresh_examples_are_taken(drawn):
    z, y = drawn
    found = examine(
        Scores(1.0), z[:100], y[:100], test=(z[100:], y[100:]), sections=["calibration"]
    )
    assert found["calibration"]["accuracy"].n == 1900
    assert "fresh" in found["calibration"]["accuracy"].method


def test_dropout_is_counted_on_fresh_examples(drawn):
    """As the log loss is, beside which it stands."""
    z, y = drawn
    model, wrong = nn.Sequential(nn.Dropout(1e-6)), (y + 1) % z.shape[1]
    draw = torch.Generator().manual_seed(0)
    section = examine(model, z, y, test=(z[:200], wrong[:200]), sections=["calibration"],
                      budget=math.inf, generator=draw)["calibration"]  # fmt: skip
    assert section["dropout_log_loss"].n == 200
    assert section.dropout_log_loss == pytest.approx(section.log_loss, rel=1e-4)


class Functional(nn.Linear):
    """A layer behind a function that drops."""

    def forward(self, input):
        return super().forward(nn.functional.dropout(input, 0.5, self.training))


class Recurrent(nn.Module):
    """The last state of two layers with dropout between them."""

    def __init__(self):
        super().__init__()
        self.body = nn.LSTM(1, 3, num_layers=2, dropout=0.5, batch_first=True)

    def forward(self, x):
        return self.body(x[:, :, None])[0][:, -1]


@pytest.mark.filterwarnings("ignore:passes are made one by one")
@pytest.mark.parametrize(
    ("model", "drops"),
    [
        (nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)), True),
        (Functional(4, 3), True),
        (Recurrent(), True),
        (nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 3)), False),
        (nn.Linear(4, 3), False),
    ],
    ids=["module", "function", "recurrent", "rate 0", "none"],
)
def test_dropout_is_met_wherever_it_is(model, drops):
    section = measured("calibration", model, torch.randn(20, 4), torch.arange(20) % 3)
    assert ("mutual_information" in section) is drops
    assert not [note for note in section.notes if "dropout's doubt" in note]
    if drops:
        assert section.mutual_information > 0


def test_twin_of_a_linear_layer_is_least_squares():
    model, x, y = gaussian_classes(150)
    fresh, labels = x[90:], y[90:]
    section = measured("kernel", model, x[:90], y[:90], test=(fresh, labels), budget=math.inf)
    hot = nn.functional.one_hot(y[:90], 3).double() - 1 / 3
    W = torch.linalg.lstsq(x[:90], hot).solution  # whose biases have no variance
    hits = int(((fresh @ W).argmax(1) == labels).sum())
    assert section.twin_accuracy == pytest.approx(hits / 60)
    assert section["twin_accuracy"].n == 60
    owns = int((model(fresh).argmax(1) == labels).sum())
    assert section.own_accuracy == pytest.approx(owns / 60)
    low, high = section["twin_accuracy"].error
    assert low < section.twin_accuracy <= high
