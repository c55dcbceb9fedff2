"""Linear recurrent units: the equation written as a loop, steps, states, resets, precisions."""

import io
import math
import subprocess
import sys
from typing import Any, cast

import pytest
import torch
from torch import nn

from vademecum.recurrence import LRU, lru_init, memory_length
from vademecum.recurrence.unit_circle import eigenvalues
from vademecum.testing import check_part

SIZES = [
    {"d": 1, "m": 1},
    {"d": 3, "m": 5, "r_min": 0.9, "r_max": 0.99},
    {"d": 4, "m": 2, "layers": 3, "norm": True},
    {"d": 2, "m": 6, "layers": 2, "by": "modulus", "max_phase": 0.3, "activation": nn.Tanh},
]
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def made(d, m, **knobs):
    net = LRU(d, m, **knobs).double()
    for p in net.parameters():
        p.data += 0.1 * torch.randn_like(p)
    return net, torch.randn(3, 11, d).double()


def unit(net: LRU) -> Any:
    """Its first layer."""
    return net.layers[0]


def by_hand(net, x):
    """The equation of the docstring, one number after the other in time."""
    h = None
    for layer in net.layers:
        m = net.m
        B = torch.complex(layer.B[0::2], layer.B[1::2])
        C = torch.complex(layer.C[:, 0::2], -layer.C[:, 1::2])
        a = torch.exp(torch.complex(-layer.nu.exp(), layer.theta))
        u, h, y = x, torch.zeros(len(x), m, dtype=B.dtype), []
        if layer.norm is not None:
            size = (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
            u = (x - x.mean(-1, keepdim=True)) / size
            u = u * layer.norm.weight + layer.norm.bias
        for t in range(x.shape[1]):
            h = a * h + layer.log_gamma.exp() * (u[:, t].to(B.dtype) @ B.T)
            r = (h @ C.T).real + layer.D * u[:, t] + layer.bias
            y.append(x[:, t] + layer.activation(r) @ layer.W.T)
        x = torch.stack(y, 1)
    return x, h


@pytest.mark.parametrize("sizes", SIZES)
def test_lru_is_its_equation(sizes):
    net, x = made(**sizes)
    y, state = net(x)
    wanted, last = by_hand(net, x)
    assert torch.allclose(y, wanted, rtol=1e-12, atol=1e-12)
    assert last is not None
    assert torch.allclose(state[-1], last, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_give_what_the_whole_sequence_gives(sizes, dtype):
    net, x = made(**sizes)
    net, x = net.to(dtype), x.to(dtype)
    state, outputs = None, []
    for t in range(x.shape[1]):
        y, state = net.step(x[:, t], state)
        outputs.append(y)
    tol = 1e-12 if dtype == torch.float64 else 2e-5
    whole, last = net(x)
    assert torch.allclose(torch.stack(outputs, 1), whole, rtol=tol, atol=tol)
    assert state is not None
    assert state.dtype == last.dtype == dtype.to_complex()
    assert torch.allclose(state, last, rtol=tol, atol=tol)


@pytest.mark.parametrize("cut", [1, 4, 10])
def test_a_state_goes_on_where_a_sequence_was_cut(cut):
    net, x = made(**SIZES[3])
    first, state = net(x[:, :cut])
    rest, last = net(x[:, cut:], state)
    whole = net(x)
    assert torch.allclose(torch.cat((first, rest), 1), whole.output, rtol=0, atol=1e-12)
    assert torch.allclose(last, whole.state, rtol=0, atol=1e-12)


def test_gradients_of_steps_are_those_of_the_sequence():
    net, x = made(**SIZES[3])
    wanted = torch.autograd.grad(net(x).output.sin().sum(), list(net.parameters()))
    total, state = torch.zeros(()).double(), None
    for t in range(x.shape[1]):
        y, state = net.step(x[:, t], state)
        total = total + y.sin().sum()
    found = torch.autograd.grad(total, list(net.parameters()))
    for a, b in zip(found, wanted, strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-11)


def test_after_a_reset_nothing_before_is_remembered():
    net, x = made(**SIZES[2])
    reset = torch.zeros(3, 11, dtype=torch.bool)
    reset[0, 4] = reset[2, 0] = reset[2, 7] = True
    _, state = net(x.flip(1))
    y, last = net(x, state, reset=reset)
    carried, plain = net(x, state), net(x)
    afresh = net(x[:, 4:]).output[0]
    assert torch.allclose(y[0, :4], carried.output[0, :4], rtol=0, atol=1e-12)
    assert torch.allclose(y[0, 4:], afresh, rtol=0, atol=1e-12)
    assert torch.allclose(y[1], carried.output[1], rtol=0, atol=1e-12)
    assert torch.allclose(y[2, :7], plain.output[2, :7], rtol=0, atol=1e-12)
    assert torch.allclose(last[:, 2], net(x[:, 7:]).state[:, 2], rtol=0, atol=1e-12)


def test_padding_beyond_the_lengths_has_no_part():
    net, x = made(**SIZES[3])
    lengths = torch.tensor([11, 4, 1])
    x[1, 4:], x[2, 1:] = math.nan, math.inf
    y, state = net(x, lengths=lengths)
    for i, n in enumerate(lengths.tolist()):
        alone, last = net(x[i : i + 1, :n])
        assert torch.allclose(y[i, :n], alone[0], rtol=0, atol=1e-12)
        assert torch.allclose(state[:, i], last[:, 0], rtol=0, atol=1e-12)
        assert not y[i, n:].any()
    padded = torch.autograd.grad(y.sum(), list(net.parameters()))
    total = sum(net(x[i : i + 1, :n]).output.sum() for i, n in enumerate(lengths.tolist()))
    alone = torch.autograd.grad(cast(torch.Tensor, total), list(net.parameters()))
    for found, wanted in zip(padded, alone, strict=True):
        assert torch.allclose(found, wanted, rtol=1e-11, atol=1e-11)


def test_what_is_not_a_number_stays_in_its_sequence_and_its_future():
    net, x = made(**SIZES[3])
    clean = net(x).output
    x[1, 5] = math.nan
    y = net(x).output
    assert torch.equal(y[::2], clean[::2])
    assert torch.allclose(y[1, :5], clean[1, :5], rtol=0, atol=1e-12)
    assert y[1, 5:].isnan().all()


EXTREME = [-3e38, -1e4, -100.0, -30.0, -16.0, -13.5, -3.0, 0.0, 3.0, 4.5, 20.0, 100.0, 3e38]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("nu", EXTREME)
def test_eigenvalues_are_inside_the_unit_circle_for_every_parameter(nu, dtype):
    net = LRU(2, 40_001).to(dtype)
    layer = unit(net)
    layer.nu.data.fill_(nu)
    layer.theta.data = torch.linspace(-50, 50, 40_001, dtype=torch.float64).to(dtype)
    values = net.eigenvalues
    assert (values.abs() < 1).all()
    exact = values.real.double() ** 2 + values.imag.double() ** 2  # 53 bits hold 24-bit squares
    assert dtype == torch.float64 or (exact < 1).all()
    grads = torch.autograd.grad(values.real.sum() + values.imag.sum(), (layer.nu, layer.theta))
    assert all(g.isfinite().all() for g in grads)
    assert (memory_length(net) > 0).all()
    assert memory_length(net).isfinite().all()
    assert memory_length(net.half()).isfinite().all()


def test_a_state_never_outgrows_its_input():
    """Whatever the parameters, |h| stays below gain times the largest input for 3000 steps."""
    net = LRU(1, 50)
    layer = unit(net)
    layer.nu.data = torch.linspace(-40, 40, 50)
    layer.B.data.fill_(1.0)
    state = net(torch.ones(1, 3000, 1)).state
    gain = layer.log_gamma.exp() * 2**0.5 * memory_length(net)[0].clamp(max=3000).add(1)
    assert (state[0, 0].abs() <= 1.01 * gain).all()


def test_lru_init_draws_what_it_says():
    source = torch.Generator().manual_seed(1)
    drawn = lru_init(
        500, r_min=0.3, r_max=0.8, max_phase=1.0, generator=source, dtype=torch.float64
    )
    r = drawn.eigenvalues.abs()
    assert ((r > 0.3) & (r < 0.8)).all()
    assert ((drawn.theta >= 0) & (drawn.theta <= 1)).all()
    assert torch.allclose(drawn.log_gamma.exp() ** 2 + r**2, torch.ones(()).double())
    assert torch.allclose(drawn.nu, (-r.log()).log())
    again = lru_init(500, r_min=0.3, r_max=0.8, max_phase=1.0,
                     generator=torch.Generator().manual_seed(1), dtype=torch.float64)  # fmt: skip
    assert torch.equal(drawn.nu, again.nu)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rings_that_touch_0_and_1_give_finite_parameters(dtype):
    for low, high in ((0.0, 1e-45), (1 - 2e-16, 1.0)):
        drawn = lru_init(20, r_min=low, r_max=high, dtype=dtype)
        assert all(p.isfinite().all() and p.dtype == dtype for p in drawn)
        assert (eigenvalues(drawn.nu, drawn.theta).abs() < 1).all()


def test_a_white_input_keeps_its_variance():
    """The input normalisation: states have the variance of B x, whatever the eigenvalue."""
    net = LRU(1, 4, r_min=0.5, r_max=0.9).double()
    unit(net).B.data = torch.tensor([1.0, 0.0]).double().repeat(4)[:, None]
    x = torch.randn(4000, 150, 1).double()
    power = net(x).state[0].abs().square().mean(0)
    assert torch.allclose(power, torch.ones(4).double(), atol=0.15), power  # 5 standard errors


def test_lower_precision_and_autocast():
    net, x = LRU(3, 4, layers=2), torch.randn(2, 9, 3)
    wanted = net(x).output
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.allclose(net(x).output.float(), wanted, atol=0.1)
        assert torch.allclose(net.step(x[:, 0]).output.float(), wanted[:, 0], atol=0.1)
    net = net.bfloat16()
    y, state = net(x.bfloat16())
    assert y.dtype == torch.bfloat16
    assert state.dtype == torch.complex64
    assert torch.allclose(y.float(), wanted, atol=0.1)


def test_laws_of_parts():
    check_part(LRU(3, 5, layers=2), torch.randn(4, 7, 3), out_dims=(0, 1))
    check_part(LRU(4, 2, norm=True), torch.randn(3, 5, 4), out_dims=(0, 1))


def test_it_is_saved_and_loaded_with_every_parameter_real():
    net, x = made(**SIZES[2])
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = LRU(**SIZES[2]).double()
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x).output, net(x).output)
    assert not any(p.is_complex() for p in net.parameters())


COMPILED = """
import torch
from vademecum.recurrence import LRU
net, x = LRU(3, 4, layers=2, norm=True), torch.randn(2, 7, 3)
fast = torch.compile(net, fullgraph=True, backend="aot_eager")
given = {"reset": torch.rand(2, 7) < 0.2, "lengths": torch.tensor([7, 3])}
mine, other = fast(x, **given), net(x, **given)
assert torch.allclose(mine.output, other.output, atol=1e-6)
weights = list(net.parameters())
for a, b in zip(*(torch.autograd.grad(r.output.sum(), weights) for r in (mine, other))):
    assert torch.allclose(a, b, atol=1e-5)
step = torch.compile(net.step, fullgraph=True, backend="aot_eager")
for state in (None, other.state.detach()):
    for context in (torch.enable_grad, torch.no_grad):
        with context():
            one, wanted = step(x[:, 0], state), net.step(x[:, 0], state)
        assert torch.allclose(one.output, wanted.output, atol=1e-6)
"""


def test_it_compiles_whole():
    """In a process of its own: the run-time type checks of tests are not compiled."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True)


def test_derivatives_by_torch_func_and_an_empty_batch():
    net, x = made(**SIZES[3])
    slope = torch.func.jacrev(lambda x: net(x).output[0, :, 0])(x[:1])
    assert torch.allclose(slope[4, 0, 5:], torch.zeros(()).double()), "the future has no part"
    assert net(x[:0]).output.shape == (0, 11, 2)


@CUDA
@pytest.mark.gpu
def test_lru_on_cuda_is_that_of_the_cpu():
    net, x = made(**SIZES[3])
    wanted, grads = net(x), torch.autograd.grad(net(x).output.sum(), list(net.parameters()))
    net, x = net.cuda(), x.cuda()
    y, state = net(x)
    assert torch.allclose(y.cpu(), wanted.output, rtol=0, atol=1e-11)
    assert torch.allclose(state.cpu(), wanted.state, rtol=0, atol=1e-11)
    for a, b in zip(torch.autograd.grad(y.sum(), list(net.parameters())), grads, strict=True):
        assert torch.allclose(a.cpu(), b, rtol=1e-9, atol=1e-10)
    one = net.step(x[:, 0])
    assert torch.allclose(one.output, y[:, 0], rtol=0, atol=1e-11)


def test_matrices_are_drawn_so_that_sizes_stay():
    net = unit(LRU(100, 150))
    for matrix, variance in ((net.B, 1 / 200), (net.C, 1 / 150), (net.W, 1 / 100)):
        ratio = matrix.square().mean().item() / variance
        assert abs(ratio - 1) < 6 * math.sqrt(2 / matrix.numel())
