"""A network that gives the same whatever goes in, as a view of its own parameters."""

import math

import pytest
import torch
from torch import nn

from vademecum.examine import examine


class Same(nn.Module):
    """Scores that are a row of parameters, expanded: torch gives such views gradients anywhere."""

    def __init__(self):
        super().__init__()
        self.row = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return self.row.expand(len(x), 3)


@pytest.fixture(scope="module")
def dossier():
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    return examine(Same(), x, torch.arange(30) % 3, budget=math.inf)


@pytest.mark.parametrize("name", ["generalisation", "calibration", "kernel", "curvature"])
def test_sections_are_measured_and_drawn(dossier, name):
    assert dossier[name].status == "measured", dossier[name].reason
    assert dossier[name].figure is not None, dossier[name].traceback


def test_wrong_answers_are_not_called_right(dossier):
    assert dossier["generalisation"].train_error == pytest.approx(2 / 3)
    assert (
        "at no temperature are its scores better than equal ones" in dossier["calibration"].sentence
    )


def test_directions_that_are_all_alike_take_no_more_steps(dossier):
    assert "half of the 3 directions" in dossier["kernel"].sentence
    assert dossier["kernel"].sentence.endswith("would take 1 step or more.")
