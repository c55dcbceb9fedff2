"""Sharpness along training runs: against dense Hessians, and runs that go on as without it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.gradients import functional
from vademecum.models import mlp
from vademecum.optimization import SharpnessTracker, draw_sharpness, sharpness

X = torch.randn(16, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.arange(16) % 3


def top(net):
    f = functional(net)
    H = torch.func.hessian(lambda theta: F.cross_entropy(f(theta, X), Y))(f.theta)
    return float(torch.linalg.eigvalsh(H)[-1])


def train(net, steps, lr=0.5, **knobs):
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    tracker = SharpnessTracker(net, X, Y, preconditioner=optimizer, **knobs)
    wanted = []
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(X), Y).backward()
        optimizer.step()
        if tracker.step() is not None:
            wanted.append(top(net))
    return tracker, torch.tensor(wanted)


def test_sharpness_tracker():
    torch.manual_seed(0)
    tracker, wanted = train(mlp([3, 16, 3], nn.Tanh).double(), 45, every=3)
    history = tracker.history
    assert history.steps.tolist() == list(range(1, 45, 3))
    torch.testing.assert_close(history.values, wanted, rtol=1e-4, atol=0)
    assert (history.thresholds == 4).all()
    assert (history.residuals <= 1e-3 * wanted * 1.01).all()
    assert tracker.last is not None
    assert tracker.last.value == history.values[-1]
    cold = sharpness(tracker.model, X, Y).applications
    assert history.applications < 0.8 * cold * len(wanted)


def test_an_eigenvalue_that_overtakes_is_seen():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.theta = nn.Parameter(torch.zeros(400).double())

        def forward(self, curvatures):
            return (curvatures * self.theta**2).sum() / 2

    net, d = Pair(), torch.linspace(0, 0.1, 400).double()
    d[0], d[1] = 2.0, 1.0
    tracker = SharpnessTracker(net, d, loss=lambda z, _: z)
    for _ in range(20):
        tracker.step()
        d[1] += 0.1  # the same tensor each time
    assert tracker.history.values[-1] == pytest.approx(2.9, rel=1e-4)


def test_training_goes_on_as_without():
    def run(track: bool) -> list[Any]:
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3)
        )
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        x = X.float()
        tracker = SharpnessTracker(net, x, Y, preconditioner=optimizer, every=2)
        for _ in range(7):
            optimizer.zero_grad()
            F.cross_entropy(net(x + 0.1 * torch.randn_like(x)), Y).backward()
            optimizer.step()
            if track:
                tracker.step()
        assert len(tracker.history.values) == 4 * track
        return [*net.state_dict().values(), *(p.grad for p in net.parameters()), torch.rand(3)]

    for one, other in zip(run(True), run(False), strict=True):
        assert torch.equal(one, other)


def test_a_run_that_diverges_goes_on():
    net = mlp([3, 4, 3], nn.Tanh).double()
    weight = net.get_parameter("0.weight")
    tracker = SharpnessTracker(net, X, Y)
    tracker.step()
    nn.init.constant_(weight, math.nan)
    assert math.isnan(tracker.step() or 0)
    nn.init.ones_(weight)
    tracker.step()
    assert tracker.history.values.isnan().tolist() == [False, True, False]


def test_without_an_optimiser_no_threshold_is_known():
    tracker = SharpnessTracker(mlp([3, 4, 3], nn.Tanh).double(), X, Y)
    assert len(tracker.history.values) == 0
    assert tracker.last is None
    tracker.step()
    assert math.isnan(tracker.history.thresholds[0])
    assert repr(tracker) == "SharpnessTracker(Sequential, 1 looks in 1 steps)"


def test_a_generator_alone_is_drawn_from():
    net, generator = mlp([3, 16, 3], nn.Tanh).double(), torch.Generator().manual_seed(3)
    start, state = generator.get_state(), torch.get_rng_state()
    tracker = SharpnessTracker(net, X, Y, generator=generator)
    tracker.step()
    first = generator.get_state()
    tracker.step()
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(start, first)
    assert not torch.equal(first, generator.get_state())


def test_draw_sharpness():
    tracker, _ = train(mlp([3, 4, 3], nn.Tanh).double(), 3)
    lines = draw_sharpness(tracker.history).axes[0].lines
    assert [line.get_label() for line in lines] == ["sharpness", "what the steps bear"]
    assert np.array_equal(lines[0].get_ydata(), tracker.history.values)
    assert np.array_equal(lines[1].get_ydata(), [4.0, 4.0, 4.0])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("knobs", "message"),
    [({"every": 0}, "every must be >= 1, got 0"), ({"tol": -1.0}, "tol must be > 0, got -1")],
)
def test_errors(knobs, message):
    with pytest.raises(ValueError, match=message):
        SharpnessTracker(nn.Linear(3, 3), X, Y, **knobs)


def test_a_transformer_is_trained_as_without():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=8)
    tokens = torch.randint(50, (4, 8), generator=torch.Generator().manual_seed(0))

    def run(track: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        data: dict[str, Any] = {"x": {"input_ids": tokens, "labels": tokens}, "output": "loss"}
        data["loss"] = lambda value, _: value
        tracker = SharpnessTracker(model, preconditioner=optimizer, **data)
        for _ in range(3):
            optimizer.zero_grad()
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
            if track:
                assert tracker.step() is not None
        return [p.detach() for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(run(True), run(False), strict=True))
