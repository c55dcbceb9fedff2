"""The scan's kernels against the loop in float64; where Triton is missing the loop is visible."""

from typing import Any

import pytest
import torch

from tests.recurrence.scan_oracles import drawn, relative_error, wide
from vademecum.models import SlowPathWarning
from vademecum.recurrence import scan
from vademecum.recurrence.linear_scan import _on_cuda, _operator

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
TOLERANCE = {torch.bfloat16: 2**-6, torch.float32: 3e-6, torch.complex64: 3e-6}
CASES = [(None, None), ("initial", "reset")]


def both(dtype, shape, *, constant, names=(), reverse=False, modulus=1.0):
    """States and gradients on the device, and in double precision on the CPU."""
    N, T, D = shape
    tensors = {
        "a": drawn(*(() if constant else (N, T)), D, dtype=dtype, modulus=modulus),
        "b": drawn(N, T, D, dtype=dtype),
    }
    if "initial" in names:
        tensors["initial"] = drawn(N, D, dtype=dtype)
    reset = torch.rand(N, T) < 3 / T if "reset" in names else None
    weights = drawn(N, T, D, dtype=wide(dtype))
    results = []
    for device, kind in (("cuda", dtype), ("cpu", wide(dtype))):
        given: dict[str, Any] = {
            name: x.to(device, kind).requires_grad_() for name, x in tensors.items()
        }
        h = scan(**given, reset=None if reset is None else reset.to(device), reverse=reverse)
        gradients = torch.autograd.grad(h, list(given.values()), weights.to(device, kind))
        results.append([x.detach().cpu() for x in (h, *gradients)])
    return results


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("names", CASES, ids=["plain", "all"])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [torch.complex64, torch.float32, torch.float64, torch.complex128, torch.bfloat16],
)
def test_states_and_gradients(dtype, constant, names, reverse):
    shape = (3, 53, 40)
    got, want = both(dtype, shape, constant=constant, names=names, reverse=reverse)
    for mine, exact in zip(got, want, strict=True):
        assert mine.dtype == dtype
        assert relative_error(mine, exact) < TOLERANCE.get(dtype, 1e-13)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("modulus", [1.0, 1.1])
@pytest.mark.parametrize("constant", [False, True])
def test_time_in_parts(constant, modulus):
    shape = (1, 1031, 3)
    assert _on_cuda._steps_of_a_part(3, 1031, 8) < 1031
    for reverse in (False, True):
        got, want = both(
            torch.complex64, shape, constant=constant, names=CASES[1], reverse=reverse,
            modulus=modulus,
        )  # fmt: skip
        for mine, exact in zip(got, want, strict=True):
            assert relative_error(mine, exact) < 1e-5


@pytest.mark.gpu
@needs_cuda
def test_finite_where_the_loop_is_on_cuda():
    four = torch.full((3,), 4.0, device="cuda")
    for a in (four, four.expand(2_000, 3)):
        assert (scan(a, torch.zeros(2_000, 3, device="cuda")) == 0).all()
        b = torch.full((2_000, 3), -3.0, device="cuda")
        assert (scan(a, b, initial=torch.ones(3, device="cuda")) == 1).all()


@pytest.mark.gpu
@needs_cuda
def test_error_at_a_long_memory_on_cuda():
    T = 65_536
    b = torch.randn(T, 4)
    for constant in (True, False):
        a = torch.tensor([1 - 1e-6]).expand(*(() if constant else (T,)), 4)
        exact, loop = scan(a.double(), b.double()), b.clone()
        for t in range(1, T):
            loop[t] += (a if constant else a[t]) * loop[t - 1]
        ours = (scan(a.cuda(), b.cuda()).cpu() - exact).abs().amax(0)
        assert (ours <= 2 * (loop - exact).abs().amax(0)).all()


@pytest.mark.gpu
@needs_cuda
def test_no_bit_changes_on_cuda():
    a, b = (
        drawn(2, 2_000, 3, dtype=torch.float32, modulus=1.0).cuda(),
        torch.randn(2, 2_000, 3).cuda(),
    )
    alone = scan(a, b)
    assert torch.equal(alone, scan(a, b))
    a[1, 9], b[1, 7] = 3.0, torch.nan
    assert torch.equal(scan(a, b)[0], alone[0])


def test_a_device_without_triton_says_that_it_is_slow(monkeypatch):
    monkeypatch.setattr(_operator, "has_triton", lambda: False)
    with pytest.warns(SlowPathWarning, match="scan takes one step after another.*Triton"):
        assert not _operator._fast_on(torch.device("cuda"))
