"""Signals on a GPU are those on the CPU."""

import copy

import pytest
import torch
from torch import nn

from vademecum.regularization import signal_propagation, suggest_init

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4),
    )  # fmt: skip


@CUDA
@pytest.mark.gpu
def test_signals_are_those_on_the_cpu():
    model, x, y = network(), torch.randn(6, 3, 8, 8), torch.arange(6) % 4
    here = signal_propagation(model, x, y)
    there = signal_propagation(model.cuda(), x.cuda(), y.cuda())
    for a, b in zip(here.rows, there.rows, strict=True):
        assert a.forward == pytest.approx(b.forward, rel=1e-2, abs=1e-6)
        assert a.backward == pytest.approx(b.backward, rel=1e-2, abs=1e-6)
        assert (a.predicted is None) == (b.predicted is None)
        if a.predicted is not None and b.predicted is not None:
            assert a.predicted == pytest.approx(b.predicted, rel=1e-2)


@CUDA
@pytest.mark.gpu
def test_generators_of_the_device_and_draws():
    model, x = network().cuda(), torch.randn(6, 3, 8, 8).cuda()
    source = torch.Generator("cuda").manual_seed(0)
    found = signal_propagation(model, x, draws=3, generator=source)
    assert found.draws == 3
    memory = signal_propagation(model, x, memory=10**6)
    whole = signal_propagation(model, x)
    for a, b in zip(whole.rows, memory.rows, strict=True):
        assert a.forward.second_moment == pytest.approx(b.forward.second_moment, rel=1e-4)


@CUDA
@pytest.mark.gpu
def test_plans_are_made_and_applied_there():
    model, x = network().cuda(), torch.randn(6, 3, 8, 8).cuda()
    plan = suggest_init(model, x, method="data")
    planned = plan.apply_(copy.deepcopy(model))
    rows = {r.name: r for r in signal_propagation(planned, x).rows}
    for name in ("0", "5", "8"):
        assert rows[name].forward.second_moment == pytest.approx(1, rel=1e-2)
