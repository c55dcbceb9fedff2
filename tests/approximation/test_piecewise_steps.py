"""Each kind of step alone: slopes by differences, windows by torch's indices, |L| as a matrix."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from tests.approximation.region_models import with_statistics
from vademecum.approximation.local_affine import local_affine_map
from vademecum.approximation.patterns import activation_pattern
from vademecum.approximation.piecewise import Affine, read_program
from vademecum.approximation.units import AbsUnit

EPS = torch.finfo(torch.float64).eps


class Does(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


SCALARS = [
    (nn.ReLU(), [0.0]),
    (nn.ReLU6(), [0.0, 6.0]),
    (nn.Hardtanh(-0.5, 2.0), [-0.5, 2.0]),
    (nn.Hardtanh(-math.inf, math.inf), []),
    (nn.LeakyReLU(-0.3), [0.0]),
    (nn.RReLU(0.1, 0.4), [0.0]),
    (nn.PReLU(1, 0.7), [0.0]),
    (nn.Hardsigmoid(), [-3.0, 3.0]),
    (nn.Softshrink(0.7), [-0.7, 0.7]),
    (AbsUnit(), [0.0]),
    (Does(lambda x: F.relu6(x)), [0.0, 6.0]),
    (Does(lambda x: F.leaky_relu(x, 0.2)), [0.0]),
    (Does(lambda x: F.hardtanh(x, -0.5, 2.0)), [-0.5, 2.0]),
    (Does(lambda x: F.hardsigmoid(x)), [-3.0, 3.0]),
    (Does(lambda x: F.softshrink(x, 0.7)), [-0.7, 0.7]),
    (Does(lambda x: x.clamp(max=1.5)), [1.5]),
    (Does(lambda x: torch.clip(x, -1, 3)), [-1.0, 3.0]),
    (Does(lambda x: F.prelu(x, WEIGHT[:1, 0])), [0.0]),
    (Does(lambda x: F.dropout(x, 0.5, False)), []),
]
WEIGHT = torch.tensor([[-2.0, 0.5, 1.0], [3.0, -1.0, 0.25]]).double()


@pytest.mark.parametrize(("unit", "thresholds"), SCALARS)
def test_units_of_one_variable(unit, thresholds):
    unit = copy.deepcopy(unit).double().eval().requires_grad_(False)
    x = torch.linspace(-8, 8, 320).double()  # none of them within h of a threshold
    rows, h = x[:, None], 2.0**-9
    found = local_affine_map(unit, rows)
    # values are at most 16: a product and a sum round by a few eps of that, differences by that / h
    torch.testing.assert_close(found(rows)[:, 0], unit(x), rtol=0, atol=64 * EPS)
    slope = (unit(x + h) - unit(x - h)) / (2 * h)
    torch.testing.assert_close(found.A.flatten(), slope, rtol=0, atol=64 * EPS / h)
    pieces = activation_pattern(unit, rows)
    below = [sum(v > t for t in thresholds) for v in x.tolist()]
    assert pieces.tolist() == [[k] for k in below] if thresholds else pieces.shape == (320, 0)
    on = torch.tensor(thresholds, dtype=torch.float64)[:, None]
    assert not thresholds or activation_pattern(unit, on)[:, 0].tolist() == [*range(len(on))]


POOLS = [
    (nn.MaxPool1d(3, 2, padding=1, dilation=2), (2, 9)),
    (nn.MaxPool1d(2, ceil_mode=True), (2, 5)),
    (nn.MaxPool2d((2, 3), (1, 2), padding=(1, 0)), (2, 5, 6)),
    (nn.MaxPool3d(2, 1), (2, 3, 3, 2)),
    (nn.AdaptiveMaxPool1d(3), (2, 7)),
    (nn.AdaptiveMaxPool2d((3, 2)), (2, 5, 7)),
    (nn.AdaptiveMaxPool3d(2), (1, 3, 3, 3)),
]


@pytest.mark.parametrize(("pool", "shape"), POOLS)
def test_pools_choose_the_entries_that_torch_chooses(pool, shape):
    x = torch.randn(6, *shape).double()
    telling = copy.copy(pool)
    telling.return_indices = True
    index = telling(x)[1].flatten(2) + torch.arange(shape[0])[:, None] * math.prod(shape[1:])
    A, b = local_affine_map(pool, x)
    assert torch.equal(A, F.one_hot(index.flatten(1), math.prod(shape)).double())
    assert not b.any()


def norm(**options):
    layer = with_statistics(nn.BatchNorm1d(3, **options))
    for p in layer.parameters():
        nn.init.normal_(p)
    return layer


AFFINE = {
    "dense": (lambda: nn.Linear(3, 4), (3,)),
    "convolution": (lambda: nn.Conv2d(2, 4, 2, stride=2, padding=1, groups=2), (2, 3, 4)),
    "no bias": (lambda: nn.Conv1d(1, 2, 2, bias=False), (1, 4)),
    "transposed": (lambda: nn.ConvTranspose1d(2, 3, 2, stride=2), (2, 3)),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Conv1d(1, 2, 2)), (1, 4)),
    "batch norm": (norm, (3,)),
    "plain batch norm": (lambda: norm(affine=False), (3,)),
    "average": (lambda: nn.AvgPool1d(2, padding=1), (1, 4)),
    "filled": (lambda: nn.ConstantPad1d(1, -0.5), (3,)),
    "mirrored": (lambda: nn.ReflectionPad1d(2), (1, 4)),
    "shuffled": (lambda: nn.PixelShuffle(2), (4, 1, 2)),
    "minus": (lambda: Does(lambda x: -x), (3,)),
    "add": (lambda: Does(lambda x: x + WEIGHT[0]), (3,)),
    "subtract": (lambda: Does(lambda x: x - 1), (3,)),
    "from one": (lambda: Does(lambda x: 1 - x), (3,)),
    "times": (lambda: Does(lambda x: WEIGHT[0] * x), (3,)),
    "divided": (lambda: Does(lambda x: x / -2), (3,)),
    "matrix": (lambda: Does(lambda x: x @ WEIGHT.T), (3,)),
    "to a matrix": (lambda: Does(lambda x: torch.matmul(WEIGHT, x)), (3, 2)),
    "F.linear": (lambda: Does(lambda x: F.linear(x, WEIGHT, WEIGHT[:, 0])), (3,)),
    "F.conv1d": (lambda: Does(lambda x: F.conv1d(x, WEIGHT[:, None], padding=1)), (1, 4)),
    "F.pad": (lambda: Does(lambda x: F.pad(x, (1, 2), value=-3.0)), (3,)),
    "mean": (lambda: Does(lambda x: x.mean(1)), (3, 2)),
}


@pytest.mark.parametrize("name", AFFINE)
def test_affine_steps_and_what_they_make_of_radii(name):
    make, shape = AFFINE[name]
    model = make().double().eval().requires_grad_(False)
    x = torch.randn(5, *shape).double()
    (step,) = read_program(model, shape, x).steps
    assert isinstance(step.map, Affine)
    dense = torch.autograd.functional.jacobian(model, x[:1]).reshape(-1, math.prod(shape))
    # sums of at most 8 terms, with coefficients of at most 10
    close = 8 * 10 * EPS * float(1 + x.abs().max())
    torch.testing.assert_close(step.map(x), model(x), rtol=0, atol=close)
    r = torch.rand(5, *shape).double()
    torch.testing.assert_close(
        step.map.radius(r).flatten(1), r.flatten(1) @ dense.abs().T, rtol=0, atol=close
    )


EXTREMES = {
    "maximum": lambda x: torch.maximum(x, 1 - 2 * x),
    "minimum": lambda x: torch.minimum(x, 1 - 2 * x),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: torch.amin(x, dim=1),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_maxima_and_minima(name):
    model, x = Does(EXTREMES[name]), torch.randn(9, 2, 3).double()
    found = local_affine_map(model, x)
    jacobian = torch.stack([torch.autograd.functional.jacobian(model, z[None]) for z in x])
    assert torch.equal(found.A, jacobian.reshape(found.A.shape))
    torch.testing.assert_close(found(x), model(x).flatten(1), rtol=0, atol=64 * EPS)


class Later(nn.ReLU):
    """A cousin of a known unit, which is not one."""

    def forward(self, input):
        return super().forward(input - 1)


COUSINS = [
    (nn.PReLU(2), (2,)),
    (nn.PReLU(2), (2, 2, 3)),
    (Does(lambda x: F.prelu(x, WEIGHT[:, 0])), (2, 2, 3)),
    (Later(), (3,)),
]


@pytest.mark.parametrize(("model", "shape"), COUSINS)
def test_slopes_by_channel_and_cousins(model, shape):
    for p in model.parameters():
        p.data = torch.tensor([-0.5, 0.3])
    x = 2 * torch.randn(9, *shape).double()
    wanted = torch.stack([torch.autograd.functional.jacobian(model.double(), z[None]) for z in x])
    found = local_affine_map(model, x).A
    assert torch.equal(found, wanted.reshape(found.shape))


class Bent(nn.Module):
    """One of its pieces is affine, the other is not."""

    def forward(self, x):
        return torch.stack([x, x * x], -1).amax(-1)


REFUSED = [
    (Bent(), (3,), r"must be piecewise linear, got mul in the model"),
    (Does(lambda x: x.clamp(0.5, 0.5)), (3,), "lower end below the upper one, got 0.5 and 0.5"),
    (nn.MaxPool1d(2, return_indices=True), (1, 4), "got tuple: say which part counts"),
    (nn.Sequential(nn.AdaptiveMaxPool1d(2, return_indices=True), Does(lambda y: y[1] / 2)), (1, 4),
     r"got submodule '0' \(AdaptiveMaxPool1d\)"),
    (Does(lambda x: F.dropout(x, 0.5)), (3,), "got dropout in the model"),
    (Does(lambda x: torch.dropout(x, 0.5, True)), (3,), "got dropout in the model"),
    (Does(lambda x: torch.dropout(x, 1e-9, train=True)), (3,), "got dropout in the model"),
    (Does(lambda x: 1 / x), (3,), "got truediv in the model"),
    (Does(lambda x: x.amax(0)), (3,), "got amax in the model"),
    (Does(lambda x: x.amax(-2)), (3,), "got amax in the model"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("model", "shape", "message"), REFUSED)
def test_errors(model, shape, message):
    with pytest.raises(ValueError, match=message):
        read_program(model, shape, torch.zeros(()).double())
