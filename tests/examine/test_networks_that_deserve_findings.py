"""Every finding is told of a network that deserves it, and not of its control."""

import math
import re
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine import examine
from vademecum.examine.findings import RULES


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def layer(weight: Any, bias: float | None = None) -> nn.Linear:
    """A layer with these weights, and this bias everywhere."""
    W = torch.as_tensor(weight).float()
    found = nn.Linear(W.shape[1], W.shape[0], bias=bias is not None)
    found.weight.data = W.clone()
    if bias is not None:
        nn.init.constant_(found.bias, bias)
    return found


class Aside(nn.Module):
    """A layer that is used, and one that may be."""

    def __init__(self, used: bool):
        super().__init__()
        self.one, self.other, self.used = nn.Linear(3, 3), nn.Linear(3, 3), used

    def forward(self, x):
        return self.one(x) + self.other(x) if self.used else self.one(x)


def numbers(d: int = 8, n: int = 40) -> torch.Tensor:
    return torch.randn(n, d, generator=seeded())


def unused(deserves: bool) -> dict[str, Any]:
    return {"model": Aside(not deserves), "x": numbers(3)}


def dead(deserves: bool) -> dict[str, Any]:
    hidden = layer(torch.eye(8), -10.0 if deserves else 0.0)
    model = nn.Sequential(hidden, nn.ReLU(), nn.Linear(8, 2))
    return {"model": model, "x": numbers(), "y": torch.arange(40) % 2}


def chain(factor: float) -> dict[str, Any]:
    """Gradients change by the factor, nine times."""
    model = nn.Sequential(*(layer(factor * torch.eye(8)) for _ in range(10)))
    return {"model": model, "x": numbers(), "y": numbers().flip(0)}


def vanishing(deserves: bool) -> dict[str, Any]:
    return chain(0.4 if deserves else 0.6)  # 3.6 decades, or 2.0


def exploding(deserves: bool) -> dict[str, Any]:
    return chain(2.5 if deserves else 1.5)  # 3.6 decades, or 1.6


def steep(deserves: bool) -> dict[str, Any]:
    """The loss has the curvature 2 mean x^2, about 5000 or 2."""
    x = (50.0 if deserves else 1.0) * numbers(1)
    return {"model": layer([[0.0]]), "x": x, "y": numbers(1).flip(0)}


def saddle(deserves: bool) -> dict[str, Any]:
    side = -1.0 if deserves else 1.0
    loss = lambda z, y: side * z.square().mean()  # noqa: E731
    return {"model": layer(torch.eye(3)), "x": numbers(3), "y": numbers(3), "loss": loss}


def unlearnable(deserves: bool) -> dict[str, Any]:
    """One input with targets on both sides, or on one."""
    y = torch.ones(10, 1)
    y[::2] = -1.0 if deserves else 1.0
    return {"model": layer([[0.0]]), "x": torch.ones(10, 1), "y": y + 0.01 * numbers(1, 10)}


def unaligned(deserves: bool) -> dict[str, Any]:
    y = torch.arange(60) % 2
    x = numbers(6, 60)
    x[:, 0] += 0.0 if deserves else 4.0 * y
    return {"model": nn.Linear(6, 2), "x": x, "y": y}


def shifts(deserves: bool) -> dict[str, Any]:
    """A way to see that knows places, or counts all alike."""
    W = torch.randn(3, 36, generator=seeded())
    place = nn.Sequential(nn.Flatten(), layer(W - W.mean(1, keepdim=True)))
    circle = nn.Conv2d(1, 3, 3, padding=1, padding_mode="circular")
    alike = nn.Sequential(circle, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    x = torch.rand(40, 1, 6, 6, generator=seeded())
    return {"model": place if deserves else alike, "x": x, "y": torch.arange(40) % 3}


def guessing(deserves: bool) -> dict[str, Any]:
    x = numbers(2)
    W = torch.zeros(2, 2) if deserves else torch.tensor([[9.0, 0.0], [-9.0, 0.0]])
    return {"model": layer(W), "x": x, "y": (x[:, 0] < 0).long()}


def constant(deserves: bool) -> dict[str, Any]:
    x = numbers(2)
    return {"model": layer([[0.0 if deserves else 1.0, 0.0]]), "x": x, "y": x[:, :1]}


def gap(deserves: bool) -> dict[str, Any]:
    """Fresh examples whose classes are the others, or the same."""
    given = guessing(False)
    x = numbers(2).flip(0)
    y = (x[:, 0] > 0) if deserves else (x[:, 0] < 0)
    return {**given, "test": (x, y.long())}


def relative_gap(deserves: bool) -> dict[str, Any]:
    given = constant(False)
    x, noise = numbers(2), 0.1 * numbers(1)
    fresh = x[:, :1] + (5.0 if deserves else 1.0) * noise
    return {**given, "y": x[:, :1] + noise, "test": (x, fresh)}


def masking(deserves: bool) -> dict[str, Any]:
    """The scores are so large that their softmax has no gradient in single precision."""
    x = torch.rand(60, 6, generator=seeded())
    W = torch.randn(3, 6, generator=seeded())
    model = layer((1e4 if deserves else 1.0) * W)
    return {"model": model, "x": x, "y": model(x).argmax(1)}


def fragile(deserves: bool) -> dict[str, Any]:
    """All of 100 entries tell the class, by 0.02 each or by 0.6; a change of 0.03 is allowed."""
    y = torch.arange(40) % 2
    x = 0.5 + (0.01 if deserves else 0.3) * (2.0 * y[:, None] - 1) * torch.ones(1, 100)
    x[:2] = torch.tensor([[0.0], [1.0]])
    W = torch.stack([-torch.ones(100), torch.ones(100)])
    return {"model": nn.Sequential(layer(W, 0.0), Centre(50.0)), "x": x, "y": y}


class Centre(nn.Module):
    """Two scores that are equal where the sum of inputs is so large."""

    def __init__(self, middle: float):
        super().__init__()
        self.middle = middle

    def forward(self, z):
        return z + self.middle * torch.tensor([1.0, -1.0])


def collapse(deserves: bool) -> dict[str, Any]:
    """All goes through one number that has nothing to do with the class."""
    W = torch.zeros(8, 8)
    W[:, 7] = 1.0
    x = numbers(8, 200)
    hidden = layer(torch.eye(8)), nn.Tanh(), layer(W if deserves else torch.eye(8))
    model = nn.Sequential(*hidden, nn.Tanh(), layer(torch.eye(8)[:2]))
    return {"model": model, "x": x, "y": (x[:, 0] > 0).long()}


forgotten = collapse
"""The first layer still knows the class."""


def scores(factor: float) -> dict[str, Any]:
    """Classes that are drawn from the softmax of numbers, of which the scores are a multiple."""
    z, draw = 2 * numbers(3, 600), seeded()
    y = torch.multinomial(z.softmax(1), 1, generator=draw)[:, 0]
    return {"model": layer(factor * torch.eye(3)), "x": z, "y": y}


def calibration(deserves: bool) -> dict[str, Any]:
    return scores(4.0 if deserves else 1.0)


def too_sure(deserves: bool) -> dict[str, Any]:
    return scores(3.0 if deserves else 1.5)


def too_unsure(deserves: bool) -> dict[str, Any]:
    return scores(0.25 if deserves else 0.75)


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_findings_are_of_networks_that_deserve_them(rule):
    made = globals()[rule.name.replace(" ", "_")]
    words = re.split(r"\{[^}]*\}", rule.text)
    told = []
    for deserves in (True, False):
        dossier = examine(
            **made(deserves), sections=[rule.section], budget=math.inf, generator=seeded()
        )
        section = dossier[rule.section]
        assert section.status == "measured", section.reason + section.traceback
        said = [f for f in dossier.findings if all(each in f.text for each in words)]
        assert len(said) <= 1
        told.append(bool(said))
    assert told == [True, False]
