"""The scan against the loop, in float64 and in fractions, for all lengths, layouts and dtypes."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.recurrence.scan_oracles import drawn, loop, relative_error, wide
from vademecum.recurrence import scan
from vademecum.recurrence.linear_scan import _on_cpu

TOLERANCE = {torch.bfloat16: 2**-8, torch.float32: 1e-6, torch.complex64: 1e-6}


@pytest.fixture(params=["whole", "parts"])
def ways(request, monkeypatch):
    """With time as a whole, and with time in parts where there are 16 steps or more."""
    if request.param == "parts":
        monkeypatch.setattr(_on_cpu, "_NARROW", 10**6)
        monkeypatch.setattr(_on_cpu, "_LONG", 16)


@pytest.mark.parametrize("reverse", [False, True])
def test_every_length_with_random_resets(ways, reverse):
    for T in range(1, 258):
        steps = drawn(2, T, 3, dtype=torch.complex128, modulus=1.0)
        a = steps if T % 2 else steps[0, 0]
        b, initial = drawn(2, T, 3, dtype=a.dtype), drawn(2, 3, dtype=a.dtype)
        reset = torch.rand(2, T) < 0.1
        got = scan(a, b, initial=initial, reset=reset, reverse=reverse).numpy()
        h, order = initial.numpy(), reversed(range(T)) if reverse else range(T)
        factors, anew = a.expand(2, T, 3).numpy(), reset.numpy()[..., None]
        terms = b.numpy()
        for t in order:
            h = np.where(anew[:, t], terms[:, t], factors[:, t] * h + terms[:, t])
            assert np.abs(got[:, t] - h).max() < 1e-13 * max(1, np.abs(h).max()), (T, t)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.bfloat16])
@pytest.mark.parametrize("constant", [False, True])
def test_dtypes(ways, dtype, constant):
    a = drawn(*(() if constant else (2, 100)), 3, dtype=dtype, modulus=1.0)
    b, initial = drawn(2, 100, 3, dtype=dtype), drawn(2, 3, dtype=dtype)
    h = scan(a, b, initial=initial)
    kind = wide(dtype)
    assert h.dtype == dtype
    want = loop(a.to(kind), b.to(kind), initial=initial.to(kind))
    assert relative_error(h, want) < TOLERANCE.get(dtype, 1e-13)


def test_halves_are_accumulated_in_float32():
    ones = torch.ones(1000, 1, dtype=torch.bfloat16)
    assert scan(ones[0], ones)[-1].item() == 1000  # bf16 alone would stop at 256


def test_fractions():
    a, b = [Fraction(k, 4) for k in (3, -1, 2, 5)], [Fraction(k, 8) for k in (1, 7, -3, 2)]
    h, states = Fraction(1, 2), []
    for factor, term in zip(a, b, strict=True):
        h = factor * h + term
        states.append(float(h))
    columns = [torch.tensor([list(map(float, x))]).double().T for x in (a, b)]
    got = scan(*columns, initial=torch.tensor([0.5]).double())
    assert got.flatten().tolist() == states  # all of them are dyadic


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -1])
def test_time_may_be_any_axis(dim):
    b, a = drawn(3, 4, 5, 6), drawn(3, 4, 5, 6, modulus=1.0)
    want = loop(a.movedim(dim, 0).flatten(1), b.movedim(dim, 0).flatten(1))
    h = scan(a, b, dim=dim)
    assert h.shape == b.shape
    assert relative_error(h.movedim(dim, 0).flatten(1), want) < 1e-14
    constant = a.select(dim, 0)
    want = loop(constant.flatten(), b.movedim(dim, 0).flatten(1))
    assert relative_error(scan(constant, b, dim=dim).movedim(dim, 0).flatten(1), want) < 1e-14


def test_resets_belong_to_the_axes_before_the_channels():
    b, a, reset = drawn(7, 2, 3), torch.tensor(0.5).double(), torch.rand(2, 7) < 0.3
    want = loop(a, b.movedim(0, 1), reset=reset)
    assert torch.equal(scan(a, b, reset=reset, dim=0).movedim(0, 1), want)
    rows = b[:, :, 0].T
    assert torch.equal(scan(a, rows, reset=reset, dim=-1), want[..., 0])


def test_strided_expanded_conjugate_and_empty():
    a = drawn(6, dtype=torch.complex128, modulus=1.0)[::2].conj()
    b = drawn(1, 40, 6, dtype=torch.complex128)[:, ::2, ::2].conj().expand(4, -1, -1)
    h = scan(a, b)
    assert relative_error(h, loop(a, b)) < 1e-14
    assert scan(a, b[:0]).shape == (0, 20, 3)
    a = a.clone().requires_grad_()
    assert torch.autograd.grad(scan(a, b[:0]).abs().sum(), a)[0].tolist() == [0, 0, 0]


def test_inputs_broadcast():
    a, b = drawn(5, 1, 1, 3, modulus=1.0), drawn(2, 9, 1)
    want = loop(a.squeeze(-2), b.expand(5, 2, 9, 3))
    assert relative_error(scan(a, b), want) < 1e-14
    real, many = drawn(3, modulus=1.0), drawn(2, 9, 3, dtype=torch.complex128)
    assert relative_error(scan(real, many), loop(real, many)) < 1e-14


@pytest.mark.parametrize("constant", [False, True])
def test_error_is_at_most_twice_that_of_the_loop(ways, constant):
    T = 65_536
    a = torch.tensor([1 - 1e-6], dtype=torch.float32).expand(*(() if constant else (T,)), 1)
    a, b = a.expand(*a.shape[:-1], 4), torch.randn(T, 4)
    factor, terms = (a if constant else a[0]).numpy(), b.numpy()
    exact = np.empty((T, 4))
    single, double = np.zeros(4, np.float32), np.zeros(4)
    worst = np.zeros(4)
    for t in range(T):
        double = factor.astype(float) * double + terms[t]
        single = factor * single + terms[t]
        exact[t] = double
        worst = np.maximum(worst, np.abs(single - double))
    error = np.abs(scan(a, b).double().numpy() - exact).max(0)
    assert (error <= 2 * worst).all()


def test_finite_where_the_loop_is(ways):
    four = torch.full((3,), 4.0)
    assert (scan(four, torch.zeros(2_000, 3)) == 0).all()
    still = scan(four, torch.full((2_000, 3), -3.0), initial=torch.ones(3))  # 1 = 4 - 3
    assert (still == 1).all()
    steps = four.expand(2_000, 3)
    assert (scan(steps, torch.zeros(2_000, 3), reverse=True) == 0).all()


def test_other_examples_change_no_bit(ways):
    a, b = drawn(2, 300, 3, dtype=torch.float32, modulus=1.0), drawn(2, 300, 3, dtype=torch.float32)
    reset = torch.zeros(2, 300, dtype=torch.bool)
    alone = scan(a, b, reset=reset)[0]
    a[1], b[1, 7], reset[1, 50] = 3.0, torch.nan, True
    together = scan(a, b, reset=reset)
    assert torch.equal(together[0], alone)
    assert together[1, 7:50].isnan().all()
    assert together[1, 50:60].isfinite().all()
    assert torch.equal(scan(a, b, reset=reset)[0], alone)


def test_nothing_survives_a_reset(ways):
    b = torch.ones(64, 1)
    b[3] = torch.inf
    reset = torch.zeros(64, dtype=torch.bool)
    reset[[0, 40]] = True
    h = scan(torch.tensor([0.5]), b, initial=torch.tensor([torch.nan]), reset=reset)
    assert h[:3].flatten().tolist() == [1, 1.5, 1.75]
    assert h[40:43].flatten().tolist() == [1, 1.5, 1.75]


def test_a_million_steps():
    T = 999_983  # a prime
    h = scan(torch.tensor([0.5, 1.0]), torch.ones(T, 2))
    assert h[-1].tolist() == [2.0, T]


def test_the_first_factor_does_not_count_without_an_initial_state(ways):
    a = torch.full((20, 1), 0.5)
    a[0] = torch.inf
    h = scan(a, torch.ones(20, 1))[:3, 0]
    assert h.tolist() == [1.0, 1.5, 1.75]
