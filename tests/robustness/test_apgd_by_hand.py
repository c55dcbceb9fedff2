"""Auto-PGD against its definition, example by example, and gradients that are not numbers."""
# pyright: reportCallIssue=false, reportIndexIssue=false

import math

import pytest
import torch
from torch import Tensor, nn

from vademecum.models import mlp
from vademecum.robustness import apgd, fgsm
from vademecum.robustness.attacks import adaptive_ascent
from vademecum.robustness.attacks._goals import Goal
from vademecum.robustness.attacks.adaptive_ascent import _adapted, _State


def clipped(x0: Tensor, z: Tensor, norm: str, radius: float) -> Tensor:
    """The projection onto a ball without a box."""
    r = z - x0
    return x0 + (
        r.clamp(-radius, radius) if norm == "linf" else r * min(1.0, radius / float(r.norm()))
    )


def by_hand(net: nn.Module, x0: Tensor, y: Tensor, norm: str, radius: float, steps: int) -> Tensor:
    """One example, as the paper writes it, from the example itself."""

    def look(x: Tensor) -> tuple[float, Tensor]:
        x = x.clone().requires_grad_()
        value = Goal(y[None]).margin(net(x[None]))[0]
        (g,) = torch.autograd.grad(value, x)
        return float(value.detach()), (g.sign() if norm == "linf" else g / g.norm())

    eta, (value, v) = 2 * radius, look(x0)
    x, before, best, top, best_v = x0, x0, x0, value, v
    points, rises, then, halved = [0.0, 0.22], 0, value, True
    while points[-1] < 1:
        points.append(points[-1] + max(points[-1] - points[-2] - 0.03, 0.06))
    looks = [math.ceil(round(p * steps, 9)) for p in points[1:]]
    last = 0
    for k in range(steps):
        a = 0.75 if k else 1.0
        z = clipped(x0, x + eta * v, norm, radius)
        new = clipped(x0, x + a * (z - x) + (1 - a) * (x - before), norm, radius)
        old, (value, v) = value, look(new)
        before, x = x, new
        rises += value > old
        if value > top:
            best, top, best_v = x, value, v
        if k + 1 in looks:
            halve = rises < 0.75 * (k + 1 - last) or (top <= then and not halved)
            if halve:
                eta, x, before, value, v = eta / 2, best, best, top, best_v
            rises, then, halved, last = 0, top, halve, k + 1
    return best


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("steps", [1, 7, 30, 100])
def test_apgd_is_its_definition(norm, steps, monkeypatch):
    """Also in a batch: what adapts belongs to one example."""
    net = mlp([5, 12, 4], nn.Tanh).double()
    x = torch.randn(12, 5, dtype=torch.float64)
    with torch.no_grad():
        net[0].weight.mul_(6)
        net[-1].bias[0] += 40.0  # nothing is fooled
    y = torch.zeros(12, dtype=torch.long)
    monkeypatch.setattr(adaptive_ascent, "start_in_ball", lambda battle, active: battle.x[active])
    found = apgd(net, x, y, norm=norm, radius=0.8, box=None, steps=steps, loss="margin")
    wanted = torch.stack([by_hand(net, x[i], y[i], norm, 0.8, steps) for i in range(12)])
    torch.testing.assert_close(found.x, wanted, rtol=0, atol=1e-7)
    assert found.steps.tolist() == [steps] * 12


def test_steps_are_halved_where_nothing_changed():
    """The loss rose in every step, yet not above the best: only if the last step was not halved."""
    one, many = torch.ones(4), torch.ones(4, 2)
    best, then = torch.tensor([5.0, 5.0, 6.0, 5.0]), torch.tensor([5.0, 5.0, 5.0, 5.0])
    rises, halved = torch.tensor([8, 8, 8, 5]), torch.tensor([False, True, False, True])
    state = _State(many, many, many, many, many, 4 * one, many, 2 * many, best, 3 * many, one,
                   rises, then, halved)  # fmt: skip
    after = _adapted(state, 8)  # of which three quarters are 6
    assert after.eta.tolist() == [0.5, 1.0, 1.0, 0.5]
    assert after.halved.tolist() == [True, False, False, True]
    assert after.value.tolist() == [5.0, 4.0, 4.0, 5.0]
    assert after.x[:, 0].tolist() == after.before[:, 0].tolist() == [2.0, 1.0, 1.0, 2.0]
    assert after.slope[:, 0].tolist() == [3.0, 1.0, 1.0, 3.0]
    assert torch.equal(after.then, best)
    assert not after.rises.any()


def test_l1_steps_have_a_tenth_of_the_entries_and_fewer():
    """On a flat slope: 4 of 40 entries move at first, each by half the radius, and then fewer."""

    class Slope(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            value = x @ torch.arange(1.0, 41.0)
            return torch.stack([torch.full_like(value, 1e6), value], 1)

    x, y = torch.zeros(2, 40), torch.zeros(2, dtype=torch.long)
    found = apgd(Slope(), x, y, norm="l1", radius=1.0, box=None, steps=60, loss="margin")
    assert float((found.x @ torch.arange(1.0, 41.0)).min()) > 0.95 * 40
    assert float(found.distance.max()) <= 1.0


def test_derivatives_that_are_not_numbers_do_not_move_an_entry():
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            score = x[:, 1] + 0 * x[:, 0].sqrt()
            return torch.stack([score, 0.5 + 0 * score], 1)

    x, y = torch.tensor([[0.0, 0.6]]), torch.tensor([0])
    found = fgsm(Root(), x, y, radius=0.2)
    torch.testing.assert_close(found.x, torch.tensor([[0.0, 0.4]]))
    assert bool(found.fooled)
