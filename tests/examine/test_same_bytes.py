"""Geometry, generalisation, robustness, representations: the same seed, the same bytes."""

import math
import re

import torch
from torch import nn

from vademecum.examine import examine

NAMES = ["geometry", "generalisation", "robustness", "representations"]


def text(budget: float) -> str:
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(30, 1, 6, 6, generator=draw)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=draw) / 4)
        y = model(x).argmax(1)
    found = examine(model, x, y, test=(x, y), sections=NAMES, budget=budget, generator=draw)
    assert [section.status for section in found.sections] == ["measured"] * 4
    assert all(section.figure for section in found.sections)
    return re.sub(r'"(seconds|budget)": [^\n]*', "", found.to_json())


def test_a_budget_that_is_large_enough_changes_nothing():
    assert text(math.inf) == text(600.0)
