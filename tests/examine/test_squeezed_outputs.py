"""Networks that squeeze their outputs: of one example they give no axis of examples."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine import examine
from vademecum.examine._study import Study

SECTIONS = ["curvature", "kernel", "geometry", "generalisation", "robustness", "calibration"]


class Squeezed(nn.Module):
    def __init__(self, k: int):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, k))

    def forward(self, x):
        return self.net(x).squeeze()


class Column(Squeezed):
    def forward(self, x):
        return self.net(x)[:, 0]


class Pair(Squeezed):
    def forward(self, x):
        return x.sum(), self.net(x).squeeze()


def looked(kind: type[nn.Module], k: int, y: torch.Tensor, x: torch.Tensor, output: Any) -> Any:
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(0)
    return examine(kind(k), x, y, sections=SECTIONS, output=output, budget=math.inf, generator=draw)


@pytest.mark.parametrize("numbers", [True, False])
@pytest.mark.parametrize(("kind", "output"), [(Squeezed, None), (Pair, 1)])
def test_a_column_that_is_squeezed_is_a_column(kind, output, numbers):
    x = torch.randn(40, 6)
    y = x[:, 0].square() if numbers else (x[:, 0] > 0).long()
    one, other = (looked(k, 1, y, x, o) for k, o in ((kind, output), (Column, None)))
    for a, b in zip(one.sections, other.sections, strict=True):
        assert a.status == b.status, a.reason
        assert a.status in ("measured", "not applicable")
        for n in b.measurements:
            if isinstance(n.value, float):
                assert a[n.name].value == pytest.approx(n.value, rel=1e-3, abs=1e-5)
    assert one["geometry"].pieces_between_examples > 1
    assert one["kernel"].rank > 1


def test_scores_of_a_single_example_have_its_axis():
    study = Study(Squeezed(3), torch.randn(9, 6), torch.arange(9) % 3)
    for rows in (1, 2, 9):
        assert study.network(study.take(rows)[0]).shape == (rows, 3)


def test_networks_that_keep_the_axis_are_taken_as_they_are():
    model, x = nn.Linear(6, 3), torch.randn(9, 6)
    assert Study(model, x).network is model
    assert Study(model, x).output is None


class OwnLoss(nn.Module):
    """One number for all examples."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 1)

    def forward(self, x):
        return self.layer(x).square().mean()


def test_one_number_for_all_examples_is_no_row_of_the_first():
    draw, x, y = torch.Generator().manual_seed(0), torch.randn(40, 6), torch.randn(40)
    found: Any = examine(OwnLoss(), x, y, loss=lambda z, _: z, generator=draw, budget=math.inf,
                         sections=["curvature", "geometry", "generalisation"])  # fmt: skip
    assert found["curvature"].largest_eigenvalue > 0
    for name in ("geometry", "generalisation"):
        assert found[name].status == "not applicable"
        assert "one number, not a row for each example" in found[name].reason


def test_a_loss_may_give_its_number_in_a_row():
    def loss(z, y):
        return nn.functional.cross_entropy(z, y).reshape(1)

    model, x, y = nn.Linear(4, 3), torch.randn(20, 4), torch.arange(20) % 3
    one, other = (
        examine(
            model, x, y, loss=given, sections=["signal", "curvature"], budget=math.inf,
            generator=torch.Generator().manual_seed(0),
        )
        for given in (loss, None)
    )  # fmt: skip
    for section in one.sections:
        assert section.status == "measured", section.reason
        assert section.measurements == other[section.name].measurements
