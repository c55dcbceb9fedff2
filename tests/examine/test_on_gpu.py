"""An examination on a GPU: the same numbers as on the CPU, and everything as before."""

import math

import pytest
import torch
from torch import nn

from vademecum.examine import examine

pytestmark = pytest.mark.gpu
MINE = ["anatomy", "signal", "curvature", "kernel", "calibration"]


def examined(device: str, dtype: torch.dtype = torch.float64):
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 5, generator=draw, dtype=torch.float64), torch.arange(40) % 3
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 3)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=draw, dtype=torch.float64) / 2)
    model, x, y = model.to(device, dtype), x.to(device, dtype), y.to(device)
    before = [p.clone() for p in model.parameters()]
    state = torch.cuda.get_rng_state()
    seeded = torch.Generator().manual_seed(1)
    found = examine(model, x, y, sections=MINE, budget=math.inf, generator=seeded)
    assert torch.cuda.get_rng_state().equal(state)
    assert all(p.equal(q) for p, q in zip(model.parameters(), before, strict=True))
    return found


def test_numbers_are_those_of_the_cpu():
    here, there = examined("cpu"), examined("cuda")
    for section in here.sections:
        assert section.status == "measured", section.reason
        other = there[section.name]
        assert other.status == "measured", other.reason + other.traceback
        for one in section.measurements:
            dropout = one.name in ("mutual_information", "dropout_log_loss")
            if isinstance(one.value, float) and not dropout:
                assert other[one.name].value == pytest.approx(one.value, rel=1e-5, abs=1e-9), one


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_precisions(dtype):
    for section in examined("cuda", dtype).sections:
        half = dtype != torch.float32 and section.name == "curvature"
        assert section.status == ("not applicable" if half else "measured"), section.traceback


def test_data_elsewhere_are_refused():
    with pytest.raises(ValueError, match="x must be on cuda:0 as model is, got cpu"):
        examine(nn.Linear(2, 2).cuda(), torch.ones(3, 2))
