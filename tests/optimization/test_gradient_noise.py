"""Noise scales against closed forms, the definitions written densely, and intervals that hold."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from vademecum.gradients import per_example_gradients
from vademecum.models import mlp
from vademecum.optimization import gradient_noise
from vademecum.optimization.noise_scale import _noise
from vademecum.testing import check_instrument

X = torch.randn(15, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.arange(15) % 3


def of_rows(rows):
    """The noise of gradients that are these rows."""
    return _noise(rows.square().sum(1), rows @ rows.sum(0), 1.96)


def test_a_linear_model_has_its_inputs_for_gradients():
    net, rows = nn.Linear(3, 1, bias=False).double(), X + 1
    found = gradient_noise(net, rows, rows, loss=lambda z, _: z.sum())
    assert found == pytest.approx(of_rows(rows), rel=1e-4)


def test_gradient_noise():
    net = mlp([3, 8, 3], nn.Tanh).double()
    rows, found = per_example_gradients(net, X, Y, loss=F.cross_entropy), gradient_noise(net, X, Y)
    trace = float(torch.cov(rows.T).trace())
    pairs = rows @ rows.T
    signal = float(pairs.sum() - pairs.trace()) / (15 * 14)
    assert found.trace == pytest.approx(trace)
    assert found.squared_norm == pytest.approx(signal)
    assert found.scale == pytest.approx(trace / signal if signal > 0 else math.inf)
    assert found.examples == 15


def test_the_estimates_have_no_bias():
    generator = torch.Generator().manual_seed(0)
    mean = torch.tensor([0.3, -0.2, 0.1]).double()
    runs = [of_rows(mean + torch.randn(5, 3, generator=generator).double()) for _ in range(400)]
    for values, wanted in (
        ([run.trace for run in runs], 3.0),
        ([run.squared_norm for run in runs], float(mean @ mean)),
    ):
        t = torch.tensor(values)
        assert abs(float(t.mean()) - wanted) < 5 * float(t.std()) / 20


@pytest.mark.parametrize("signal", [1.0, 0.3])
def test_the_interval_holds_as_often_as_it_says(signal):
    generator = torch.Generator().manual_seed(1)
    mean = torch.full((4,), signal / 2).double()
    found = [of_rows(mean + torch.randn(60, 4, generator=generator).double()) for _ in range(200)]
    wanted = 4 / signal**2
    held = sum(each.low <= wanted <= each.high for each in found)
    assert 0.85 * 200 <= held <= 0.99 * 200  # 95 %, and five standard errors of 1.5 %
    assert (sum(each.high == math.inf for each in found) > 0) is (signal < 0.5)


def test_no_signal_has_no_upper_end():
    rows = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)).double()
    found = of_rows(torch.cat([rows, -rows]))
    assert found.squared_norm < 0
    assert (found.scale, found.high) == (math.inf, math.inf)
    assert 0 < found.low < math.inf


def test_no_noise_has_no_scale():
    found = of_rows(torch.ones(4, 2).double())
    assert found.trace == pytest.approx(0, abs=1e-12)
    assert found.squared_norm == pytest.approx(2)
    assert found.scale == pytest.approx(0, abs=1e-12)


def test_the_level_widens_the_interval():
    net = mlp([3, 8, 3], nn.Tanh).double()
    wide, narrow = (gradient_noise(net, X, Y, level=level) for level in (0.99, 0.5))
    assert wide.low <= narrow.low <= narrow.scale <= narrow.high <= wide.high
    assert wide.low < narrow.low


@pytest.mark.parametrize("memory", [None, 2**16])
def test_a_loader_or_little_memory_give_the_same(memory):
    net = mlp([3, 40, 3], nn.Tanh).double()
    wanted = gradient_noise(net, X, Y)
    loader = DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True)
    for x, y in ((X, Y), (loader, None)):
        found = gradient_noise(net, x, y, memory=memory)
        assert found == pytest.approx(wanted, rel=1e-9)


def test_laws():
    data = torch.randn(6, 5), torch.randint(3, (6,))
    without = {"no_parameters": "there is nothing to differentiate"}

    def instrument(model, data):
        return gradient_noise(model, *data)[3:]  # the rest may be infinite

    check_instrument(instrument, nn.Linear(5, 3), data, skip=without)


@pytest.mark.usefixtures("unchecked")
def test_errors():
    net = nn.Linear(3, 3).double()
    with pytest.raises(ValueError, match="x must hold at least 3 examples, got 2"):
        gradient_noise(net, X[:2], Y[:2])
    with pytest.raises(ValueError, match="level must be < 1, got 1"):
        gradient_noise(net, X, Y, level=1.0)
    with pytest.raises(ValueError, match="gradients of model must be finite, got NaN"):
        gradient_noise(net, X, Y, loss=lambda z, y: z.sum() * math.nan)
    with pytest.raises(ValueError, match="y must be a tensor"):
        gradient_noise(net, X)
    with pytest.raises(ValueError, match="x must hold at least 3 examples, got 0"):
        gradient_noise(net, DataLoader(TensorDataset(X[:0], Y[:0])))
