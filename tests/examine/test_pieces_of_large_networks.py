"""How many linear pieces are looked for in a network that takes much work."""

import math

import pytest
import torch
from torch import nn

from vademecum.examine import Measurement
from vademecum.examine._clock import Clock
from vademecum.examine._study import Study
from vademecum.examine.sections import _regions


class Ruled(nn.Module):
    """Walls at equal distances along the first input."""

    def __init__(self, walls: int):
        super().__init__()
        self.layer = nn.Linear(3, walls).double()
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[1.0, 0.0, 0.0]]).expand(walls, 3))
            self.layer.bias.copy_(-(torch.arange(walls) + 0.5) / walls)

    def forward(self, x):
        return self.layer(x).relu().sum(1, keepdim=True)


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_pieces_on_a_part_of_each_way_where_all_of_it_is_too_much(monkeypatch, parts):
    walls, ways, studied = 4000, 10, []
    x = torch.rand(2 * ways, 3).double()
    x[::2, 0], x[1::2, 0] = 0.0, 1.0
    real = _regions.regions_along

    def along(network, a, b, **knobs):
        studied.append(float((b - a)[0].abs()))
        return real(network, a, b, **knobs)

    monkeypatch.setattr(_regions, "regions_along", along)
    of_all = ways * walls * 2 * (3 * walls)  # which is guessed to within a tenth
    monkeypatch.setattr(_regions, "_WORK", of_all / (parts - 0.5))
    clock = Clock(math.inf)
    items = list(_regions.pieces(Study(Ruled(walls), x), x, clock))
    pieces = [each for each in items if isinstance(each, Measurement) and each.n][-1]
    assert not clock.cut
    assert pieces.value == pytest.approx(walls + 1, abs=parts)  # a part has a wall more or less
    assert pieces.n == ways
    words = "on segments" if parts == 1 else f"on a part in {parts}, drawn at random, of segments"
    assert f"counted exactly {words} between pairs of examples" in pieces.method
    assert sum(1 for side in studied if side == pytest.approx(1 / parts)) >= ways


def test_parts_are_drawn_from_all_over_the_way():
    """Each with the same chance, so that the count is right in the mean."""
    study = Study(nn.Linear(1, 1), torch.rand(9, 1))
    a, b = torch.tensor([2.0]).double(), torch.tensor([6.0]).double()
    found = _regions._drawn_parts(study, [(a, b)] * 4000, 4)
    starts = torch.stack([start for start, _ in found])[:, 0]
    assert all(float(end - start) == pytest.approx(1.0) for start, end in found)
    counts = torch.stack([(starts == place).sum() for place in (2.0, 3.0, 4.0, 5.0)])
    assert int(counts.sum()) == 4000
    assert float((counts - 1000).abs().max()) < 5 * math.sqrt(4000 * 0.25 * 0.75)


def test_fewer_polygons_are_looked_for_where_each_is_much_work(monkeypatch):
    looked, real = [], _regions._on_plane

    def noted(study, plane, most, known):
        looked.append(most)
        return real(study, plane, most, known)

    monkeypatch.setattr(_regions, "_on_plane", noted)
    monkeypatch.setattr(_regions, "_WORK", 200.5 * 4.0 * 2 * (3 * 40 + 40 * 2))
    model = nn.Sequential(nn.Linear(3, 40), nn.ReLU(), nn.Linear(40, 2))
    x, clock = 3 * torch.randn(30, 3), Clock(math.inf)
    list(_regions.pieces(Study(model, x), x, clock))
    assert looked[-1] == 200
    assert not clock.cut


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_parts_of_a_way_are_no_points_in_half_precision(dtype):
    """A ten-thousandth of it is less than a unit in the last place of its beginning."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to(dtype)
    x = (2 + torch.randn(30, 3)).to(dtype)
    items = list(_regions.pieces(Study(model, x), x, Clock(60.0)))
    assert "pieces_between_examples" in [getattr(each, "name", "") for each in items]
