"""Coefficients of rounding: factors, underflow, overflow, and what is taken for granted."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.robustness.test_bounds_in_floats import networks
from vademecum.robustness import crown_bounds, interval_bounds
from vademecum.robustness.bounds._rounding import (
    Arithmetic,
    full_precision,
    gamma,
    read_arithmetic,
)

BOTH = pytest.mark.parametrize("bounds", [interval_bounds, crown_bounds])


def test_coefficients_of_rounding():
    assert gamma(10, torch.float64) * 2.0**53 == pytest.approx(10, rel=1e-12)
    assert gamma(2**20, torch.float32) == pytest.approx(1 / 15)  # 1/16 over 15/16
    with pytest.raises(ValueError, match="model must have sums of fewer terms"):
        gamma(2_000_000, torch.float32)
    x = torch.zeros(1)
    assert read_arithmetic("real", x).own == torch.float64
    assert read_arithmetic("float", x).own == torch.float32
    assert read_arithmetic("real", x).of_run(100) == 0
    assert read_arithmetic("float", x).of_run(100, "conv") == gamma(100, torch.float32)
    coarse = Arithmetic("float", torch.float32, torch.float32, {"matmul": 2.0**-10})
    assert coarse.of_run(3, "matmul") > 2 * 2.0**-10
    assert coarse.of_run(3, "conv") == gamma(3, torch.float32)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert read_arithmetic("float", x).factors["matmul"] == 2.0**-7
        with full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_coarse_factors_widen_bounds():
    layer, x = nn.Linear(4, 2), torch.rand(1, 4)
    fine = interval_bounds(layer, x, norm="linf", radius=0.0)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        coarse = interval_bounds(layer, x, norm="linf", radius=0.0)
    finally:
        torch.set_float32_matmul_precision(before)
    rounded = F.linear(x.bfloat16().float(), layer.weight.bfloat16().float(), layer.bias)
    assert not ((fine.lower <= rounded) & (rounded <= fine.upper)).all()
    assert ((coarse.lower <= rounded) & (rounded <= coarse.upper)).all()


def test_subnormal_numbers_may_be_flushed():
    layer = nn.Linear(3, 1, bias=False)
    layer.weight.data = torch.tensor([[1e-39, 2e-39, 1e-20]])
    x = torch.tensor([[1.0, 1.0, 1e-22]])
    found = interval_bounds(layer, x, norm="linf", radius=0.0, box=None)
    assert float(found.lower) < 0.0  # all of it may be lost
    assert float(found.lower) > -1e-34


def test_what_overflows_is_refused():
    layer = nn.Linear(1, 1)
    layer.weight.data = torch.tensor([[3e38]])
    with pytest.raises(ValueError, match="model must not overflow for any input"):
        interval_bounds(layer, torch.ones(1, 1), norm="linf", radius=1.0, box=None)


def test_the_result_says_what_it_assumes():
    conv, x = nn.Conv1d(1, 1, 2), torch.rand(1, 1, 4)
    assert "Winograd" in interval_bounds(conv, x, norm="linf", radius=0.1).assumes
    assert interval_bounds(conv, x, norm="linf", radius=0.1, arithmetic="real").assumes == ""


@pytest.mark.gpu
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_on_a_gpu_with_coarse_factors(norm):
    for model, shape in networks():
        model = model.eval().cuda()
        x = torch.rand(8, *shape, device="cuda")
        for bounds in (interval_bounds, crown_bounds):
            found = bounds(model, x, norm=norm, radius=0.0)
            with torch.no_grad():
                run = model(x)
            assert ((found.lower <= run) & (run <= found.upper)).all()
