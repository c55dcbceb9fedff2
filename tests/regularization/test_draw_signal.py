"""Drawings of signals show what was measured, and break off where theory knows nothing."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from vademecum.regularization import draw_signal, signal_propagation


@pytest.fixture
def found():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Softmax(1), nn.Linear(8, 8), nn.ReLU())
    return signal_propagation(model, torch.randn(5, 6))


def test_draw_signal_has_marks_lines_and_names(found):
    figure = draw_signal(found)
    above, below = figure.axes
    lines = {line.get_label(): line for line in above.get_lines()}
    guesses = [r.predicted and r.predicted.second_moment for r in found.rows]
    shown: list[float] = np.asarray(lines["signal, predicted"].get_ydata()).tolist()
    assert math.isnan(shown[1])
    assert [s for s in shown if s == s] == [g for g in guesses if g is not None]
    marks: Any = above.containers[0]
    assert list(marks.lines[0].get_ydata()) == [r.forward.second_moment for r in found.rows]
    assert [t.get_text() for t in below.get_xticklabels()] == [
        "0 Linear", "1 Softmax", "2 Linear", "3 ReLU",
    ]  # fmt: skip
    assert above.get_yscale() == "log"


def test_moments_alone_are_drawn_where_it_is_said(found):
    axes = Figure().subplots()
    figure = draw_signal(found, axes)
    assert figure.axes == [axes]
    assert axes.get_xlabel() == "call"
